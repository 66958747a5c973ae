//go:build unix

package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// stage is a Publisher on a real broker, with somebody who hears everything.
type stage struct {
	*Publisher
	t      *testing.T
	broker *mosquitto.Broker
	stop   func()
	hidden chan struct{} // closed to say that the policy has changed

	mu    sync.Mutex
	calls []string
	fail  error
	shows func(*ferrule.Tool) bool
	heard map[string][]string // payloads by topic
}

func play(t *testing.T, broker *mosquitto.Broker, change ...func(*Parts)) *stage {
	t.Helper()
	s := &stage{t: t, broker: broker, heard: make(map[string][]string), hidden: make(chan struct{})}
	s.listen()
	s.run(change...)
	return s
}

// run starts the Publisher, as a gateway that is started again does.
func (s *stage) run(change ...func(*Parts)) {
	s.t.Helper()
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.RetryMin, cfg.RetryMax = s.broker.URL, 10*time.Millisecond, 100*time.Millisecond
	parts := Parts{
		Node: node, Name: "here", Broker: "home", Client: cfg, Skip: []string{"hass"}, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		Watch:  func(w ferrule.DeviceWatcher) func() { return func() {} },
		Handle: s.handle,
		Visible: func(ferrule.Principal) ferrule.Visibility {
			s.mu.Lock()
			defer s.mu.Unlock()
			shows := s.shows
			if shows == nil {
				return ferrule.Visibility{}
			}
			return ferrule.Visibility{Shows: func(_ *ferrule.Device, _ ferrule.Operation, t *ferrule.Tool) bool { return shows(t) }}
		},
		Changed: func() <-chan struct{} {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.hidden
		},
	}
	for _, fn := range change {
		fn(&parts)
	}
	s.Publisher = New(parts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p := s.Publisher
	go func() { ended <- p.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
}

func (s *stage) handle(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("%s %s %s %s", call.Principal, call.Device, call.Tool, call.Args))
	if s.fail != nil {
		return nil, s.fail
	}
	return &ferrule.Result{Value: json.RawMessage(`"ok"`)}, nil
}

// listen hears everything on the broker.
func (s *stage) listen() {
	s.t.Helper()
	cfg := mqttclient.DefaultConfig()
	cfg.URL, cfg.RetryMin, cfg.RetryMax = s.broker.URL, 10*time.Millisecond, 100*time.Millisecond
	client := mqttclient.New(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); <-ended })
	conn, err := client.Connect(ctx)
	if err == nil {
		_, err = conn.Subscribe(ctx, func(m mqttclient.Message) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.heard[m.Topic] = append(s.heard[m.Topic], string(m.Payload))
		}, mqttclient.Filter{Topic: "#"})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// last returns the last payload on a topic, and how many there were.
func (s *stage) last(topic string) (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.heard[topic]
	if len(all) == 0 {
		return "", 0
	}
	return all[len(all)-1], len(all)
}

func (s *stage) until(topic, want string) {
	s.t.Helper()
	wait.For(s.t, topic+" is "+want, func() bool {
		got, n := s.last(topic)
		return n > 0 && got == want
	})
}

// entities waits until the device has these.
func (s *stage) entities(want ...string) {
	s.t.Helper()
	wait.For(s.t, "the entities are "+strings.Join(want, " "), func() bool {
		text, _ := s.last(node.configTopic(benchKey))
		var config struct {
			Components map[string]struct{ Platform string }
		}
		json.Unmarshal([]byte(text), &config)
		var got []string
		for key, c := range config.Components {
			got = append(got, key+"="+c.Platform)
		}
		slices.Sort(got)
		slices.Sort(want)
		return slices.Equal(got, want)
	})
}

func (s *stage) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *stage) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

func measured(signal string, value float64) ferrule.Reading {
	return ferrule.Reading{Device: "bench", Node: "here", Poll: "p", Time: time.Now(), Batches: []ferrule.SampleBatch{{Signal: signal, State: true, Samples: []ferrule.Sample{{Time: time.Now(), Value: value}}}}}
}

var (
	benchKey      = DeviceKey(node, bench)
	benchManifest = &ferrule.Manifest{Tools: []ferrule.Tool{tool("relay", oneBoolean, ferrule.Changes), tool("beep", noArguments, ferrule.Changes)}}
	relaySet      = node.command(benchKey, "relay")
	relayState    = node.state(benchKey, "relay")
)

const outcome = "ferrule_last_command=sensor"

// TestPublisher: a device is described, its states are retained, commands become calls by the
// broker's principal, and what became of them is told.
func TestPublisher(t *testing.T) {
	s := play(t, mosquitto.Start(t, mosquitto.Options{}))
	s.Put(bench, benchManifest)
	s.entities("beep=button", "relay_on=button", "relay_off=button", outcome)
	s.Measured(measured("relay", 1))
	s.entities("beep=button", "relay=switch", outcome)
	s.until(relayState, "ON")
	s.until(node.status(), online)
	s.until(node.availability(benchKey), online)
	if text, _ := s.last(node.configTopic(node.key())); !strings.Contains(text, `"connectivity"`) {
		t.Errorf("the gateway is %s", text)
	}
	s.broker.Publish(t, relaySet, "OFF")
	s.until(relayState, "OFF")
	s.until(node.state(benchKey, outcomeKey), "done")
	if got := s.called(); !slices.Equal(got, []string{`agent:mqtt:home bench relay {"on":false}`}) {
		t.Errorf("the calls are %v", got)
	}
	for _, c := range []struct {
		err   error
		state string
	}{
		{ferrule.Errorf(ferrule.Denied, "the policy forbids it"), "OFF"},
		{ferrule.Errorf(ferrule.Refused, "no"), "OFF"},
		{ferrule.Errorf(ferrule.Unanswered, "no answer"), "None"},
	} {
		s.set(func() { s.fail = c.err })
		s.broker.Publish(t, relaySet, "ON")
		s.until(node.state(benchKey, outcomeKey), string(ferrule.AsError(c.err).Code)+": "+c.err.Error())
		s.until(relayState, c.state)
	}
	s.Measured(measured("relay", 0)) // it is known again
	s.until(relayState, "OFF")
	s.broker.Publish(t, relaySet, "perhaps")
	s.until(node.state(benchKey, outcomeKey), `invalid: relay cannot be told "perhaps"`)
	if n := len(s.called()); n != 4 {
		t.Errorf("%d calls", n)
	}
	offlineBench := *bench
	offlineBench.State = ferrule.StateOffline
	s.Put(&offlineBench, benchManifest)
	s.until(node.availability(benchKey), offline)
	s.stop()
	s.until(node.status(), offline)
}

// TestRetainedCommand: a command that the broker has kept does not run, not even after a
// restart.
func TestRetainedCommand(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	broker.Publish(t, node.command(benchKey, "beep"), "PRESS", "-r")
	s := play(t, broker)
	s.Put(bench, benchManifest)
	s.entities("beep=button", "relay_on=button", "relay_off=button", outcome)
	s.take(t.Context(), mqttclient.Message{Topic: node.command(benchKey, "beep"), Payload: []byte("PRESS"), Retained: true})
	s.until(node.state(benchKey, outcomeKey), "denied: a retained command was ignored")
	if got := s.called(); len(got) > 0 {
		t.Errorf("the calls are %v", got)
	}
}

// TestRemoved: a device that is gone is removed, and so is one that was forgotten while the
// gateway did not run. That of another gateway stays.
func TestRemoved(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	s := play(t, broker)
	s.Put(bench, benchManifest)
	s.Measured(measured("relay", 1))
	s.until(relayState, "ON")
	s.stop()
	s.until(node.status(), offline)

	far := node
	far.ID = "def456"
	other := *bench
	other.Address = "usb:other"
	foreign := Describe(Input{Node: far, Device: &other, Manifest: benchManifest})
	broker.Publish(t, node.configTopic(foreign.Key), string(foreign.Config), "-r")
	broker.Publish(t, node.configTopic("acme"), `{"origin":{"name":"acme"},"components":{}}`, "-r")
	s.run()
	wait.For(t, "it has read what is there", func() bool { s.Publisher.mu.Lock(); defer s.Publisher.mu.Unlock(); return len(s.found) == 2 })
	s.sweep()
	s.changed()
	s.until(node.configTopic(benchKey), "")
	s.until(relayState, "")
	for _, key := range []string{foreign.Key, "acme"} {
		if text, _ := s.last(node.configTopic(key)); text == "" {
			t.Errorf("%s was removed", key)
		}
	}

	s.Put(bench, benchManifest)
	s.entities("beep=button", "relay_on=button", "relay_off=button", outcome)
	s.Remove("bench")
	s.until(node.configTopic(benchKey), "")
	s.Put(bench, benchManifest)
	s.entities("beep=button", "relay_on=button", "relay_off=button", outcome)
	s.Leave()
	s.stop()
	s.until(node.configTopic(benchKey), "")
	s.until(node.configTopic(node.key()), "")
}

// TestOtherNode: only the node that holds a device publishes it. One that has held it before
// says that it is not there, and does not remove or replace what the other one published.
func TestOtherNode(t *testing.T) {
	s := play(t, mosquitto.Start(t, mosquitto.Options{}))
	s.Put(bench, benchManifest)
	s.until(node.availability(benchKey), online)
	away := *bench
	away.Node = "there"
	s.Put(&away, benchManifest)
	s.until(node.availability(benchKey), offline)
	far := node
	far.ID = "def456"
	theirs := string(Describe(Input{Node: far, Device: &away, Manifest: benchManifest}).Config)
	s.broker.Publish(t, node.configTopic(benchKey), theirs, "-r")
	s.until(node.configTopic(benchKey), theirs)
	s.broker.Publish(t, node.command(benchKey, "beep"), "PRESS")
	unknownYet := *bench // this node does not know yet that it has moved
	unknownYet.State = ferrule.StateOffline
	s.stop()
	s.run()
	s.Put(&unknownYet, benchManifest)
	lamp := *bench
	lamp.ID, lamp.Address = "lamp", "usb:lamp"
	s.Put(&lamp, benchManifest)
	s.until(node.availability(DeviceKey(node, &lamp)), online)
	if got, _ := s.last(node.configTopic(benchKey)); got != theirs {
		t.Errorf("the other node's message was replaced by %s", got)
	}
	s.Put(bench, benchManifest)
	s.until(node.availability(benchKey), online)
	if got, _ := s.last(node.configTopic(benchKey)); got == theirs {
		t.Error("it came back, and the other node's message is still there")
	}
	if got := s.called(); len(got) > 0 {
		t.Errorf("the calls are %v", got)
	}
}

// TestNotPublished: pending devices and those that Home Assistant has already are not
// published, nor is what the policy does not show.
func TestNotPublished(t *testing.T) {
	s := play(t, mosquitto.Start(t, mosquitto.Options{}))
	pending, came := *bench, *bench
	pending.ID, pending.Address, pending.Trust = "pending", "usb:pending", ferrule.TrustPending
	came.ID, came.Address, came.Protocol = "came", "usb:came", "hass"
	s.set(func() { s.shows = func(t *ferrule.Tool) bool { return t.Name == "beep" } })
	s.Put(&pending, benchManifest)
	s.Put(&came, benchManifest)
	s.Put(bench, benchManifest)
	s.entities("beep=button", outcome)
	changed := s.hidden
	s.set(func() {
		s.shows, s.hidden = func(*ferrule.Tool) bool { return false }, make(chan struct{})
	})
	close(changed)
	s.until(node.configTopic(benchKey), "")
	for _, dev := range []*ferrule.Device{&pending, &came} {
		if _, n := s.last(node.configTopic(DeviceKey(node, dev))); n > 0 {
			t.Errorf("%s was published", dev.ID)
		}
	}
}

// TestEvents: a notification of a device becomes an event, after Home Assistant could read
// that there is such a sort.
func TestEvents(t *testing.T) {
	s := play(t, mosquitto.Start(t, mosquitto.Options{}))
	s.Put(bench, &ferrule.Manifest{})
	s.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: "bench", Node: "here", Method: "pressed", Params: json.RawMessage(`{"times":2}`)})
	s.entities("ferrule_events=event")
	wait.For(t, "the event", func() bool {
		text, _ := s.last(node.state(benchKey, eventsKey))
		return strings.Contains(text, `"event_type":"pressed"`) && strings.Contains(text, `{"times":2}`)
	})
}

// TestEventsOfPending: what a device says before its owner adopts it is never published, and
// nothing waits for it.
func TestEventsOfPending(t *testing.T) {
	p := quiet()
	pending := *bench
	pending.Trust = ferrule.TrustPending
	p.Put(&pending, benchManifest)
	p.resume(t.Context())
	p.HandleEvent(ferrule.Event{Type: ferrule.Notified, Device: "bench", Node: "here", Method: "pressed"})
	p.collect()
	if p.waits() {
		t.Error("an event waits")
	}
	p.Put(bench, benchManifest)
	p.collect()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.devices["bench"].waiting); n > 0 {
		t.Errorf("%d events wait", n)
	}
}

// TestHiddenLater: a device that is hidden while the broker cannot be reached leaves no state
// there.
func TestHiddenLater(t *testing.T) {
	p := quiet()
	p.Put(bench, benchManifest)
	p.resume(t.Context())
	p.Measured(measured("relay", 1))
	p.collect()
	p.forget() // the connection was lost
	p.parts.Visible = func(ferrule.Principal) ferrule.Visibility {
		return ferrule.Visibility{Shows: func(*ferrule.Device, ferrule.Operation, *ferrule.Tool) bool { return false }}
	}
	p.refresh()
	removed := make(map[string]bool)
	for _, m := range p.collect() {
		if len(m.payload) > 0 {
			t.Errorf("%s is published: %s", m.topic, m.payload)
		}
		removed[m.topic] = true
	}
	for _, topic := range []string{node.configTopic(benchKey), relayState, node.availability(benchKey)} {
		if !removed[topic] {
			t.Errorf("%s stays", topic)
		}
	}
}

// TestForgedConfig: a message of another client of the broker, in the name of this gateway,
// does not make it publish to what is not a topic.
func TestForgedConfig(t *testing.T) {
	components := map[string]any{"+": map[string]string{"platform": "sensor"}, "a/#": map[string]string{"platform": "sensor"}, "fine": map[string]string{"platform": "sensor"}}
	for i := range 10_000 {
		components[fmt.Sprintf("x%d", i)] = map[string]string{"platform": "sensor"}
	}
	forged := encodeConfig(node, map[string]any{}, components, node.status())
	p := quiet()
	p.read(mqttclient.Message{Topic: node.configTopic("ferrule_forged"), Payload: forged})
	p.sweep()
	all := p.collect()
	if len(all) > maxEntities+3 || len(all) < 3 {
		t.Errorf("%d messages", len(all))
	}
	for _, m := range all {
		if strings.ContainsAny(m.topic, "+#") || strings.Count(m.topic, "/") > 4 {
			t.Errorf("it publishes to %s", m.topic)
		}
	}
}

// quiet returns a Publisher that is not connected.
func quiet() *Publisher {
	return New(Parts{
		Node: node, Name: "here", Broker: "home", Log: slog.New(slog.DiscardHandler),
		Visible: func(ferrule.Principal) ferrule.Visibility { return ferrule.Visibility{} },
	})
}

// TestBrokerRestart: a broker that has lost everything gets it again.
func TestBrokerRestart(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	s := play(t, broker)
	s.Put(bench, benchManifest)
	s.Measured(measured("relay", 1))
	s.until(relayState, "ON")
	broker.Kill()
	broker.Restart(t)
	after := play(t, broker) // hears what is retained
	after.stop()
	after.until(relayState, "ON")
	after.until(node.configTopic(benchKey), string(s.describe("bench")))
}

// describe returns the message of a device.
func (s *stage) describe(id string) []byte {
	s.Publisher.mu.Lock()
	defer s.Publisher.mu.Unlock()
	return s.devices[id].described.Config
}

// TestFlood: commands beyond what can wait are dropped, and told.
func TestFlood(t *testing.T) {
	release := make(chan struct{})
	p := New(Parts{Node: node, Name: "here", Broker: "home", Skip: nil, Log: slog.New(slog.DiscardHandler),
		Handle: func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			<-release
			return &ferrule.Result{}, nil
		},
		Visible: func(ferrule.Principal) ferrule.Visibility { return ferrule.Visibility{} }})
	p.Put(bench, benchManifest)
	p.resume(t.Context())
	p.collect()
	for range 100 {
		p.take(t.Context(), mqttclient.Message{Topic: node.command(benchKey, "beep"), Payload: []byte("PRESS")})
	}
	p.mu.Lock()
	waiting, told := len(p.queues[node.command(benchKey, "beep")]), p.devices["bench"].states[outcomeKey]
	p.mu.Unlock()
	if waiting > maxQueue || !strings.HasPrefix(told, "busy") {
		t.Errorf("%d wait, and it says %q", waiting, told)
	}
	close(release)
	p.tasks.Wait()
}
