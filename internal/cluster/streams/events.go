package streams

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// AddEvent stores an event of an own device and passes it to listeners.
func (s *Streams) AddEvent(e ferrule.Event) {
	e.Node = s.cfg.Node
	s.spool.add(e)
	s.listeners.pass(e)
}

// LoseEvent counts an event that could not be added.
func (s *Streams) LoseEvent() { s.spool.lose() }

// Listen calls fn with every new event of the tenant, each once, until stop is called:
// with those of this node always, and with those of other nodes while NATS is reachable.
// Calls are sequential, in order for each device. The event is shared and read-only. Fn
// must not block and must not call stop. With only, fn gets events of these types.
func (s *Streams) Listen(fn func(ferrule.Event), only ...ferrule.EventType) (stop func()) {
	return s.listeners.add(&eventListener{fn, only})
}

// eventListeners has the listeners, and how far the events of other nodes were passed on.
type eventListeners struct {
	mu     sync.Mutex
	all    []*eventListener
	passed map[string]mark // by node
}

type eventListener struct {
	fn   func(ferrule.Event)
	only []ferrule.EventType
}

func (l *eventListener) accepts(t ferrule.EventType) bool {
	return len(l.only) == 0 || slices.Contains(l.only, t)
}

// mark is the number of the last message of an origin.
type mark struct {
	origin string
	last   uint64
}

// maxMarks is how many nodes are remembered.
const maxMarks = 4096

func (l *eventListeners) add(listener *eventListener) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, listener)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(other *eventListener) bool { return other == listener })
	}
}

// accept reports whether any listener accepts an event type.
func (l *eventListeners) accept(t ferrule.EventType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(listener *eventListener) bool { return listener.accepts(t) })
}

// pass calls the listeners with an event of this node.
func (l *eventListeners) pass(e ferrule.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call(e)
}

// call calls the listeners. It is called with mu held.
func (l *eventListeners) call(e ferrule.Event) {
	e.Seq = 0 // a leaf's disk spool numbers events again
	for _, listener := range l.all {
		if listener.accepts(e.Type) {
			listener.fn(e)
		}
	}
}

// passOnce calls the listeners with an event of another node, unless it did before: an
// event that the stream did not accept is published again.
func (l *eventListeners) passOnce(e ferrule.Event, at mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.passed[e.Node]; before.origin == at.origin && at.last <= before.last {
		return
	}
	if l.passed == nil || len(l.passed) >= maxMarks {
		l.passed = make(map[string]mark)
	}
	l.passed[e.Node] = at
	l.call(e)
}

// subscribeEvents subscribes to the events of other nodes.
func (s *Streams) subscribeEvents(e *engine.Engine) error {
	if s.cfg.Alone() {
		return nil
	}
	sub, err := e.Conn.Subscribe(s.names.Subject("event.>"), func(msg *nats.Msg) {
		what := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
		if !s.listeners.accept(ferrule.EventType(what)) {
			return
		}
		if event, at, err := parseEvent(s.names, msg); err == nil && event.Node != s.cfg.Node {
			s.listeners.passOnce(event, at)
		}
	})
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(maxSpool, maxSpoolBytes)
}

// maxEvent is the maximum size of an event in bytes.
const maxEvent = 64 << 10

// parseEvent parses an event of a node, and rejects what no node sends.
func parseEvent(n engine.Names, msg *nats.Msg) (e ferrule.Event, at mark, err error) {
	if len(msg.Data) > maxEvent {
		return e, at, fmt.Errorf("event has %d bytes, limit is %d", len(msg.Data), maxEvent)
	}
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		return e, at, err
	}
	if err := e.Bound(); err != nil {
		return e, at, err
	}
	if err := ferrule.CheckID(e.Node); err != nil {
		return e, at, err
	}
	if sender := (engine.Names{Tenant: n.Tenant, Node: e.Node}); msg.Subject != sender.Event(e.Device, string(e.Type)) {
		return e, at, fmt.Errorf("event of %s has subject %q", e.Device, msg.Subject)
	}
	at.origin = ferrule.Clean(msg.Header.Get(originHeader), ferrule.MaxWord)
	at.last, err = strconv.ParseUint(msg.Header.Get(lastHeader), 10, 64)
	return e, at, err
}

// encodeEvent encodes an event without HTML escapes, which could make it too long for
// its receiver.
func encodeEvent(e ferrule.Event) ([]byte, error) {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(e); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}
