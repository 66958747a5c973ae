package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Listen calls fn with every event of the tenant from now on, each once, until stop is
// called: those of this node whatever becomes of the engine, and those of other nodes
// as far as they come by way of it. Fn is called with one event at a time, in order for
// each device, which is shared and read only; it must not block, and must not call
// stop. With only, it is called with those events alone: of a large fleet, what comes and
// goes is much.
func (b *Cluster) Listen(fn func(ferrule.Event), only ...ferrule.EventType) (stop func()) {
	return b.audience.join(&listener{fn, only})
}

// Said takes in what an own device said by itself. It does not block: of too many, some
// are lost, which is counted.
func (b *Cluster) Said(e ferrule.Event) {
	if !b.intake.say(e) {
		b.spool.lose()
	}
}

// happened keeps an event of an own device, and tells those who listen.
func (b *Cluster) happened(e ferrule.Event) {
	e.Node = b.cfg.Node
	b.spool.add(e)
	b.audience.tell(e)
}

// audience is those who listen, and how far they have heard.
type audience struct {
	mu    sync.Mutex
	all   []*listener
	heard map[string]mark // by node
}

// listener is one who listens, to some events or to all.
type listener struct {
	fn   func(ferrule.Event)
	only []ferrule.EventType
}

func (l *listener) wants(what ferrule.EventType) bool {
	return len(l.only) == 0 || slices.Contains(l.only, what)
}

// mark is how far the events of a node have come.
type mark struct {
	origin string
	last   uint64
}

// maxMarks is how many nodes are remembered.
const maxMarks = 4096

func (a *audience) join(l *listener) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, l)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = slices.DeleteFunc(a.all, func(other *listener) bool { return other == l })
	}
}

// wants tells whether anybody listens to such an event.
func (a *audience) wants(what ferrule.EventType) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.all, func(l *listener) bool { return l.wants(what) })
}

func (a *audience) tell(e ferrule.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pass(e)
}

// pass tells all who listen. It is called with mu held.
func (a *audience) pass(e ferrule.Event) {
	e.Seq = 0 // a leaf numbers them anew when it keeps them
	for _, l := range a.all {
		if l.wants(e.Type) {
			l.fn(e)
		}
	}
}

// tellOnce tells of an event of another node, unless it was told before: what is not
// taken by the stream at first is sent again.
func (a *audience) tellOnce(e ferrule.Event, at mark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before := a.heard[e.Node]; before.origin == at.origin && at.last <= before.last {
		return
	}
	if a.heard == nil || len(a.heard) >= maxMarks {
		a.heard = make(map[string]mark)
	}
	a.heard[e.Node] = at
	a.pass(e)
}

// overhear subscribes to what happens to devices of other nodes.
func (b *Cluster) overhear(e *engine) error {
	if b.cfg.alone() {
		return nil // there are none
	}
	sub, err := e.conn.Subscribe(b.names.subject("event.>"), func(msg *nats.Msg) {
		what := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
		if !b.audience.wants(ferrule.EventType(what)) {
			return
		}
		if event, at, err := b.names.parseEvent(msg); err == nil && event.Node != b.cfg.Node {
			b.audience.tellOnce(event, at)
		}
	})
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(maxSpool, spoolBytes)
}

// maxEvent is the longest event in bytes.
const maxEvent = 64 << 10

// parseEvent reads an event as a node has sent it, and refuses what no node sends.
func (n names) parseEvent(msg *nats.Msg) (e ferrule.Event, at mark, err error) {
	if len(msg.Data) > maxEvent {
		return e, at, fmt.Errorf("an event of %d bytes", len(msg.Data))
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
	if of := (names{n.tenant, e.Node}); msg.Subject != of.event(e.Device, string(e.Type)) {
		return e, at, fmt.Errorf("an event of %s is sent as %q", e.Device, msg.Subject)
	}
	at.origin = ferrule.Clean(msg.Header.Get(originHeader), ferrule.MaxWord)
	at.last, err = strconv.ParseUint(msg.Header.Get(lastHeader), 10, 64)
	return e, at, err
}

// encodeEvent is an event as it is sent, with what its device said as it stands: were
// anything in it escaped, it might be too long for whoever reads it.
func encodeEvent(e ferrule.Event) ([]byte, error) {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(e); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}
