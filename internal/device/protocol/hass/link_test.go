package hass

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// testLink is a link in memory. It behaves as transport.Link demands.
type testLink struct {
	offer    []byte
	incoming chan transport.Message
	closed   chan struct{}
	once     sync.Once
	broken   error // what Recv returns after the link broke

	mu        sync.Mutex
	topics    []string
	published []transport.Message
	deadlines []time.Duration
	// onSend decides what becomes of a message; nil delivers it.
	onSend func(ctx context.Context, m transport.Message) error
}

func newLink(o offer) *testLink {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return &testLink{offer: data, incoming: make(chan transport.Message, 100), closed: make(chan struct{}), broken: transport.ErrClosed}
}

func (l *testLink) Recv(ctx context.Context) (transport.Message, error) {
	if data := l.offer; data != nil {
		l.offer = nil
		return transport.Message{Channel: channelDiscovery, Data: data}, nil
	}
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
	if ctx.Err() != nil {
		return errors.Join(transport.ErrUnsent, ctx.Err())
	}
	select {
	case <-l.closed:
		return errors.Join(transport.ErrUnsent, transport.ErrClosed)
	default:
	}
	l.mu.Lock()
	deadline, _ := ctx.Deadline()
	l.published, l.deadlines = append(l.published, m), append(l.deadlines, time.Until(deadline))
	onSend := l.onSend
	l.mu.Unlock()
	if onSend != nil {
		return onSend(ctx, m)
	}
	return nil
}

func (l *testLink) Subscribe(_ context.Context, topics []string) error {
	l.topics = append(l.topics, topics...)
	return nil
}

func (l *testLink) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *testLink) Info() transport.Info {
	return transport.Info{Transport: "mqtt", Address: "home/device"}
}

// fail ends the link from the far end.
func (l *testLink) fail(err error) {
	l.once.Do(func() {
		l.broken = err
		close(l.closed)
	})
}

func (l *testLink) hear(topic, payload string) {
	l.incoming <- transport.Message{Channel: topic, Data: []byte(payload)}
}

func (l *testLink) retain(topic, payload string) {
	l.incoming <- transport.Message{Channel: topic, Data: []byte(payload), Retained: true}
}

// later passes a state after a while.
func (l *testLink) later(after time.Duration, topic, payload string) {
	time.AfterFunc(after, func() { l.hear(topic, payload) })
}

func (l *testLink) payloads() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.published {
		all = append(all, m.Channel+" "+string(m.Data))
	}
	return all
}

// rig is a greeted device whose session runs.
type rig struct {
	t        *testing.T
	link     *testLink
	session  *Session
	manifest *ferrule.Manifest
	ran      chan error
	stop     context.CancelFunc

	mu       sync.Mutex
	events   []string
	measured []ferrule.Measurement
	times    []time.Time
}

// bubble runs a test with a device in simulated time. Set changes the session before it
// runs; it may be nil.
func bubble(t *testing.T, o offer, set func(*Session), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, link: newLink(o), ran: make(chan error, 1)}
		session, manifest, err := New().Greet(t.Context(), r.link)
		if err != nil {
			t.Fatal(err)
		}
		r.session, r.manifest = session.(*Session), manifest
		if set != nil {
			set(r.session)
		}
		session.(protocol.Notifier).Notify(func(method string, params json.RawMessage) {
			r.events = append(r.events, method+" "+string(params))
		})
		session.(protocol.Reporter).Report(func(at time.Time, measured []ferrule.Measurement) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.measured, r.times = append(r.measured, measured...), append(r.times, at)
		})
		ctx, stop := context.WithCancel(context.Background())
		r.stop = stop
		go func() { r.ran <- session.Run(ctx) }()
		defer func() { stop(); <-r.ran }()
		test(t, r)
	})
}

func (r *rig) call(ctx context.Context, tool, args string) (*ferrule.Result, error) {
	return r.session.Invoke(ctx, &ferrule.Call{Device: "plug", Tool: tool, Args: json.RawMessage(args)})
}

// answer is the result of a command.
type answer struct {
	Confirmed bool
	By        string
	State     map[string]any
	Note      string
}

// result calls a tool within a minute, and fails the test if there is an error.
func (r *rig) result(tool, args string) (a answer) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	result, err := r.call(ctx, tool, args)
	if err != nil {
		r.t.Fatalf("%s: %v", tool, err)
	}
	if err := json.Unmarshal(result.Value, &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}

// fails calls a tool within a minute, and checks the error.
func (r *rig) fails(tool, args string, code ferrule.Code, final bool) *ferrule.Error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	_, err := r.call(ctx, tool, args)
	return wantError(r.t, err, code, final)
}

func wantError(t *testing.T, err error, code ferrule.Code, final bool) *ferrule.Error {
	t.Helper()
	var e *ferrule.Error
	if !errors.As(err, &e) || e.Code != code || e.Final != final {
		t.Fatalf("got %#v, want %s, final: %t", err, code, final)
	}
	return e
}

// values calls the state tool.
func (r *rig) values(args string) map[string]reading {
	r.t.Helper()
	synctest.Wait()
	result, err := r.call(r.t.Context(), toolState, args)
	if err != nil {
		r.t.Fatal(err)
	}
	var got struct{ Values map[string]reading }
	if err := json.Unmarshal(result.Value, &got); err != nil {
		r.t.Fatal(err)
	}
	return got.Values
}

// published checks what was published.
func (r *rig) published(want ...string) {
	r.t.Helper()
	if got := r.link.payloads(); !slices.Equal(got, want) {
		r.t.Errorf("published %q, want %q", got, want)
	}
}
