package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

// startHome runs a simulated home on a broker until the test ends.
func startHome(t testing.TB, broker string) *sim.Home {
	t.Helper()
	home := sim.NewHome()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- sim.JoinHome(ctx, home, broker, slog.New(slog.DiscardHandler), func(string) error {
			select {
			case ready <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the home: %v", err)
		}
	})
	<-ready
	return home
}

// withBroker adds a broker whose devices are all adopted, and permits everything.
func withBroker(url string) func(*config.Config) {
	return func(c *config.Config) {
		c.Devices.MQTT = []config.Broker{{URL: url, Name: "house", Adopt: "all", Prefix: "homeassistant"}}
		c.Policy.Preset = "open"
	}
}

// echoed is the result of a call over MQTT.
type echoed struct {
	Confirmed bool           `json:"confirmed"`
	State     map[string]any `json:"state"`
	Note      string         `json:"note"`
}

// homeCalls are one call of each sort of device, and what it changes in the home.
var homeCalls = []struct{ device, tool, args, of, state, want string }{
	{"kitchen-lamp", "light", `{"on":true,"brightness":100}`, "kitchen_lamp", "brightness", "100"},
	{"kitchen-lamp", "light", `{"color":{"x":0.3,"y":0.4}}`, "kitchen_lamp", "color", "map[x:0.3 y:0.4]"},
	{"kettle-plug", "relay", `{"on":true}`, "kettle_plug", "relay", "ON"},
	{"bedroom-blind", "cover_position", `{"position":40}`, "bedroom_blind", "position", "40"},
	{"front-door", "lock_unlock", `{}`, "front_door", "lock", "UNLOCKED"},
	{"front-door", "lock", `{}`, "front_door", "lock", "LOCKED"},
	{"bathroom-heating", "climate_temperature", `{"temperature":22.5}`, "bathroom_heating", "setpoint", "22.5"},
	{"bathroom-heating", "climate_mode", `{"mode":"auto"}`, "bathroom_heating", "system_mode", "auto"},
}

// TestHome: an agent uses each device of a home behind a real broker, through HTTP and
// through standard input. Its state confirms each call.
func TestHome(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	home := startHome(t, broker.URL)
	g := startGateway(t, nil, withBroker(broker.URL))
	g.online("kitchen-lamp")
	for _, agent := range []*testAgent{dialAgent(t, g, modern, "/mcp"), dialAgent(t, g, legacy, "/mcp"), pipeAgent(t, g, modern), pipeAgent(t, g, legacy)} {
		for _, c := range homeCalls {
			g.online(c.device)
			told, err := agent.use(t.Context(), c.device+"__"+c.tool, c.args)
			if err != nil {
				t.Fatalf("%s: %v", agent.name, err)
			}
			var got echoed
			if json.Unmarshal([]byte(told.text), &got) != nil || !got.Confirmed {
				t.Errorf("%s: %s %s of %s: %s", agent.name, c.tool, c.args, c.device, told.text)
			}
			if state := fmt.Sprint(home.State(c.of, c.state)); state != c.want {
				t.Errorf("%s: %s %s of %s: %s is %s", agent.name, c.tool, c.args, c.device, c.state, state)
			}
		}
		told, err := agent.use(t.Context(), "back-door__state", `{}`)
		if err != nil || !strings.Contains(told.text, "contact") || !strings.Contains(told.text, "battery") {
			t.Errorf("%s: the contact says %+v, %v", agent.name, told, err)
		}
	}
	if err := home.Misbehave("front_door", sim.Mute); err != nil {
		t.Fatal(err)
	}
	_, err := g.call("front-door", "lock_unlock", `{}`, 0)
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || home.State("front_door", "lock") != "UNLOCKED" {
		t.Errorf("without an echo: %v", err)
	}
}

// TestHomeFaults: devices that do not report, report something else, or do not hear, while
// the broker is killed, paused and cut off. Each call has one outcome, what is confirmed has
// run, and no command is published twice.
func TestHomeFaults(t *testing.T) {
	calls := 10_000 // of all devices
	if testing.Short() {
		calls = 500
	}
	broker := mosquitto.Start(t, mosquitto.Options{})
	home := startHome(t, broker.URL)
	cut := newCutter(t, broker.Address)
	g := startGateway(t, nil, withBroker("mqtt://"+cut.Addr().String()), func(c *config.Config) {
		c.Calls.PerMinute, c.Calls.Refused = 0, 0
	})
	g.online("kitchen-lamp")
	g.online("bathroom-heating")
	ctx, stop := context.WithCancel(t.Context())
	var disturbing sync.WaitGroup
	disturbing.Go(func() { disturb(ctx, t, home, broker, cut) })
	lamp := &homeCaller{t: t, g: g, device: "kitchen-lamp", outcomes: map[string]int{}}
	heating := &homeCaller{t: t, g: g, device: "bathroom-heating", outcomes: map[string]int{}}
	var calling sync.WaitGroup
	calling.Go(func() {
		for i := range calls / 2 {
			lamp.call("light", fmt.Sprintf(`{"on":true,"brightness":%d}`, 1+i%254), fmt.Sprintf(`"brightness":%d`, 1+i%254))
		}
	})
	calling.Go(func() {
		for i := range calls / 2 {
			want := 5 + float64(i%51)/2
			heating.call("climate_temperature", fmt.Sprintf(`{"temperature":%v}`, want), fmt.Sprintf("%v", want))
		}
	})
	calling.Wait()
	stop()
	disturbing.Wait()
	for _, c := range []*homeCaller{lamp, heating} {
		c.check(home.Commands())
		t.Logf("%s: %v", c.device, c.outcomes)
	}
}

// homeCaller calls one device again and again, each time with another value.
type homeCaller struct {
	t         *testing.T
	g         *testGateway
	device    string
	sent      []string // what each call publishes, if it does
	confirmed []bool
	outcomes  map[string]int
}

func (c *homeCaller) call(tool, args, published string) {
	answer, err := c.g.call(c.device, tool, args, 300*time.Millisecond)
	var got echoed
	what := ""
	switch {
	case err != nil:
		what = string(ferrule.AsError(err).Code)
		if e := ferrule.AsError(err); e.Code == ferrule.Internal {
			c.t.Errorf("%s: %v", c.device, err)
		}
	case json.Unmarshal([]byte(answer), &got) != nil:
		c.t.Errorf("%s: %s", c.device, answer)
	case got.Confirmed:
		what = "confirmed"
	default:
		what = "not confirmed"
	}
	c.outcomes[what]++
	c.sent, c.confirmed = append(c.sent, published), append(c.confirmed, what == "confirmed" && got.Note == "")
}

// check compares what the device received with what was sent: in this order, each at most
// once, and all that was confirmed.
func (c *homeCaller) check(commands []sim.Command) {
	next, received := 0, 0
	arrived := make([]bool, len(c.sent))
	for _, command := range commands {
		if !strings.Contains(command.Topic, strings.ReplaceAll(c.device, "-", "_")) {
			continue
		}
		received++
		for next < len(c.sent) && !strings.Contains(command.Payload, c.sent[next]) {
			next++
		}
		if next == len(c.sent) {
			c.t.Errorf("%s: command %d, %s, was published twice or out of order", c.device, received, command.Payload)
			return
		}
		arrived[next] = true
		next++
	}
	for i, confirmed := range c.confirmed {
		if confirmed && !arrived[i] {
			c.t.Errorf("%s: call %d is confirmed, but the device never got it", c.device, i)
		}
	}
	c.outcomes["received"] = received
	if c.outcomes["confirmed"] < len(c.sent)/10 {
		c.t.Errorf("%s: only %d of %d calls were confirmed", c.device, c.outcomes["confirmed"], len(c.sent))
	}
}

// disturb makes devices misbehave, and breaks the connection to the broker in all ways,
// until ctx ends. Then everything works again.
func disturb(ctx context.Context, t *testing.T, home *sim.Home, broker *mosquitto.Broker, cut *cutter) {
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	faults := []sim.Fault{sim.Mute, sim.Deaf, sim.Lying, sim.Clamped}
	for n := 0; ctx.Err() == nil; n++ {
		pause(time.Second + rand.N(time.Second))
		device := []string{"kitchen_lamp", "bathroom_heating"}[n%2]
		switch n % 7 {
		case 0:
			cut.cut(true)
		case 1:
			broker.Kill()
			pause(200 * time.Millisecond)
			broker.Restart(t)
		case 2:
			broker.Pause()
			pause(500 * time.Millisecond)
			broker.Resume()
		default:
			home.Misbehave(device, faults[n%len(faults)])
			pause(500 * time.Millisecond)
			home.Misbehave(device, sim.Obedient)
		}
	}
}
