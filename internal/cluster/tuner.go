package cluster

import (
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Samples calls fn with what is measured of one signal of a device from now on, or of
// all of them if signal is empty, until stop is called: at this node whatever becomes of
// the engine, at other nodes as far as it comes by way of it. Fn is called with one
// reading at a time, which is shared and read only; it must not block, and must not call
// stop.
func (b *Cluster) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	return b.tuner.join(device, &hearer{signal, fn})
}

// tuner has a station for each device that somebody listens to.
type tuner struct {
	names names
	alone bool // there are no other nodes

	mu       sync.Mutex
	conn     *nats.Conn // nil while there is none
	stations map[string]*station
}

// station is one device and those who listen to it.
type station struct {
	sub   *nats.Subscription // nil while there is none
	all   []*hearer
	heard map[string]mark // by node
}

// hearer is one who listens.
type hearer struct {
	signal string
	fn     func(ferrule.Reading)
}

func (t *tuner) join(device string, h *hearer) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stations[device]
	if s == nil {
		if t.stations == nil {
			t.stations = make(map[string]*station)
		}
		s = &station{heard: make(map[string]mark)}
		t.stations[device] = s
		t.subscribe(device, s)
	}
	s.all = append(s.all, h)
	return sync.OnceFunc(func() { t.leave(device, s, h) })
}

func (t *tuner) leave(device string, s *station, h *hearer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *hearer) bool { return other == h })
	if len(s.all) > 0 {
		return
	}
	delete(t.stations, device)
	if s.sub != nil {
		s.sub.Unsubscribe()
	}
}

// begin listens by way of an engine, and end no longer.
func (t *tuner) begin(conn *nats.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conn = conn
	for device, s := range t.stations {
		t.subscribe(device, s)
	}
}

func (t *tuner) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conn = nil
	for _, s := range t.stations {
		s.sub = nil // it has ended with its connection
	}
}

// How much that was measured elsewhere may wait to be heard.
const (
	maxUnheard      = 1024
	maxUnheardBytes = 4 << 20
)

// subscribe hears what other nodes measure of a device. It is called with mu held.
func (t *tuner) subscribe(device string, s *station) {
	if t.alone || t.conn == nil || ferrule.CheckID(device) != nil {
		return
	}
	own := t.names.subject("sample." + t.names.node + ".")
	sub, err := t.conn.Subscribe(t.names.subject("sample.*."+device+".>"), func(msg *nats.Msg) {
		if strings.HasPrefix(msg.Subject, own) {
			return // it was heard when it was measured
		}
		if r, err := t.names.parseReading(msg.Subject, msg.Data); err == nil {
			t.tellOnce(r, idOf(msg.Header))
		}
	})
	if err != nil {
		return // the connection is closed, and another will be made
	}
	sub.SetPendingLimits(maxUnheard, maxUnheardBytes)
	s.sub = sub
}

// tell tells of a reading of this node.
func (t *tuner) tell(r ferrule.Reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.stations[r.Device]; s != nil {
		s.tell(r)
	}
}

// tellOnce tells of a reading of another node, unless it was told before: what is not
// taken by the stream at first is sent again.
func (t *tuner) tellOnce(r ferrule.Reading, at mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stations[r.Device]
	if s == nil {
		return
	}
	if before := s.heard[r.Node]; at.origin != "" && before.origin == at.origin && at.last <= before.last {
		return
	}
	if len(s.heard) >= maxMarks {
		clear(s.heard)
	}
	s.heard[r.Node] = at
	s.tell(r)
}

func (s *station) tell(r ferrule.Reading) {
	for _, h := range s.all {
		if h.signal == "" {
			h.fn(r)
			continue
		}
		for i := range r.Batches {
			if r.Batches[i].Signal == h.signal {
				one := r
				one.Batches = r.Batches[i : i+1 : i+1]
				h.fn(one)
			}
		}
	}
}
