package homeassistant

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// testLink is a link in memory to a device that the test plays.
type testLink struct {
	incoming chan transport.Message
	closed   chan struct{}
	once     sync.Once
	broken   error // what Recv returns after the link broke

	mu     sync.Mutex
	sent   []call
	onSend func(c call) error // decides what becomes of a call; nil does nothing
}

func newTestLink(offer home.Offer) *testLink {
	l := &testLink{incoming: make(chan transport.Message, 1000), closed: make(chan struct{}), broken: transport.ErrClosed}
	l.pass(channelOffer, offer, false)
	l.pass(channelStates, map[string]home.State{}, true)
	return l
}

// pass hands a message to the session.
func (l *testLink) pass(channel string, value any, retained bool) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	l.incoming <- transport.Message{Channel: channel, Data: data, Retained: retained}
}

// is passes a state: its value, and attributes as a JSON object.
func (l *testLink) is(entity, value, attributes string) { l.isUnder("", entity, value, attributes) }

func (l *testLink) isUnder(context, entity, value, attributes string) {
	s := home.State{Value: value, Context: context, Changed: time.Now(), Updated: time.Now()}
	if attributes != "" {
		if err := json.Unmarshal([]byte(attributes), &s.Attributes); err != nil {
			panic(err)
		}
	}
	l.pass(channelStates, map[string]home.State{entity: s}, false)
}

// answers passes the result of a call.
func (l *testLink) answers(c call) { l.pass(channelResult, result{ID: c.ID, Context: "ours"}, false) }

func (l *testLink) fails(c call, code, message string) {
	l.pass(channelResult, result{ID: c.ID, Error: &callError{code, message}}, false)
}

func (l *testLink) Recv(ctx context.Context) (transport.Message, error) {
	select {
	case m := <-l.incoming:
		return m, nil
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	case <-l.closed:
		return transport.Message{}, l.broken
	}
}

func (l *testLink) Send(ctx context.Context, m transport.Message) error {
	select {
	case <-l.closed:
		return transport.ErrUnsent
	default:
	}
	if ctx.Err() != nil {
		return errors.Join(transport.ErrUnsent, ctx.Err())
	}
	var c call
	if err := json.Unmarshal(m.Data, &c); err != nil || m.Channel != channelCall {
		panic(err)
	}
	l.mu.Lock()
	l.sent = append(l.sent, c)
	onSend := l.onSend
	l.mu.Unlock()
	if onSend != nil {
		return onSend(c)
	}
	return nil
}

func (l *testLink) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *testLink) Info() transport.Info {
	return transport.Info{Transport: "homeassistant", Address: "home/device"}
}

// fail ends the link from the far end.
func (l *testLink) fail(err error) {
	l.once.Do(func() {
		l.broken = err
		close(l.closed)
	})
}

// bench is a greeted device whose session runs.
type bench struct {
	t        *testing.T
	link     *testLink
	session  *Session
	manifest *ferrule.Manifest
	measured []ferrule.Measurement
	events   []string
}

// on runs a test with a device, in simulated time.
func on(t *testing.T, offer home.Offer, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newTestLink(offer)
		session, manifest, err := New().Greet(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, link: l, session: session.(*Session), manifest: manifest}
		session.(protocol.Reporter).Report(func(_ time.Time, m []ferrule.Measurement) { b.measured = append(b.measured, m...) })
		session.(protocol.Notifier).Notify(func(method string, params json.RawMessage) {
			b.events = append(b.events, method+" "+string(params))
		})
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- session.Run(ctx) }()
		test(t, b)
		cancel()
		<-ran
	})
}

// call calls a tool with the time that tools have.
func (b *bench) call(tool, args string) (outcome, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 65*time.Second)
	defer cancel()
	synctest.Wait() // the session has heard everything
	r, err := b.session.Invoke(ctx, &ferrule.Call{Device: "device", Tool: tool, Args: json.RawMessage(args)})
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	if err := json.Unmarshal(r.Value, &o); err != nil {
		b.t.Fatal(err)
	}
	return o, nil
}

// ok calls a tool that must not fail.
func (b *bench) ok(tool, args string) outcome {
	b.t.Helper()
	o, err := b.call(tool, args)
	if err != nil {
		b.t.Fatalf("%s: %v", tool, err)
	}
	return o
}

// fails calls a tool that must fail with a code.
func (b *bench) fails(tool, args string, code ferrule.Code, mayHaveRun bool) *ferrule.Error {
	b.t.Helper()
	o, err := b.call(tool, args)
	if err == nil {
		b.t.Fatalf("%s succeeded: %+v", tool, o)
	}
	e := ferrule.AsError(err)
	if e.Code != code || e.MayHaveRun() != mayHaveRun {
		b.t.Errorf("%s: got %s, may have run: %t: %s", tool, e.Code, e.MayHaveRun(), e.Message)
	}
	return e
}

// sends checks what was sent so far: SERVICE ENTITY.
func (b *bench) sends(want ...string) {
	b.t.Helper()
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	var got []string
	for _, c := range b.link.sent {
		got = append(got, c.Domain+"."+c.Service+" "+strings.Join(c.Entities, " "))
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		b.t.Errorf("sent %q, want %q", got, want)
	}
}

// confirmed reports whether an outcome says so.
func (o outcome) confirmed() bool { return o.Confirmed != nil && *o.Confirmed }

// service returns a service with these fields for all entities of its domain.
func service(domain, name string, fields ...string) home.Service {
	s := home.Service{Domain: domain, Name: name, Targets: []home.Target{{Domains: []string{domain}}}}
	for _, f := range fields {
		s.Fields = append(s.Fields, home.Field{Name: f, Selector: json.RawMessage(`{"text":null}`)})
	}
	return s
}

// device returns the offer of a device with one entity of each domain.
func device(entities []home.Entity, services ...home.Service) home.Offer {
	return home.Offer{Device: home.Device{ID: "d1", Name: "Device", Model: "Model", Entities: entities}, Services: services, Temperature: "°C"}
}
