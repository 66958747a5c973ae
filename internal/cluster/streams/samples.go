package streams

import (
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Samples calls fn with every new reading of a device, until stop is called: with those
// of this node always, and with those of other nodes while NATS is reachable. If signal
// is not empty, a reading has only that signal. Calls are sequential. The reading is
// shared and read-only. Fn must not block and must not call stop.
func (s *Streams) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	return s.samples.add(device, &sampleListener{signal, fn})
}

// sampleListeners has the listeners by device, with one subscription for each device.
type sampleListeners struct {
	names engine.Names
	alone bool // there are no other nodes

	mu      sync.Mutex
	conn    *nats.Conn // nil while not connected
	devices map[string]*deviceListeners
}

// deviceListeners are the listeners to one device.
type deviceListeners struct {
	sub    *nats.Subscription // nil while not connected
	all    []*sampleListener
	passed map[string]mark // by node
}

type sampleListener struct {
	signal string
	fn     func(ferrule.Reading)
}

func (s *sampleListeners) add(device string, l *sampleListener) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[device]
	if d == nil {
		if s.devices == nil {
			s.devices = make(map[string]*deviceListeners)
		}
		d = &deviceListeners{passed: make(map[string]mark)}
		s.devices[device] = d
		s.subscribe(device, d)
	}
	d.all = append(d.all, l)
	return sync.OnceFunc(func() { s.remove(device, d, l) })
}

func (s *sampleListeners) remove(device string, d *deviceListeners, l *sampleListener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.all = slices.DeleteFunc(d.all, func(other *sampleListener) bool { return other == l })
	if len(d.all) > 0 {
		return
	}
	delete(s.devices, device)
	if d.sub != nil {
		d.sub.Unsubscribe()
	}
}

func (s *sampleListeners) connect(conn *nats.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	for device, d := range s.devices {
		s.subscribe(device, d)
	}
}

func (s *sampleListeners) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	for _, d := range s.devices {
		d.sub = nil // it ends with its connection
	}
}

// Limits of readings of other nodes that wait to be passed on, per device.
const (
	maxUnread      = 1024
	maxUnreadBytes = 4 << 20
)

// subscribe subscribes to the readings of a device at other nodes. It is called with mu
// held.
func (s *sampleListeners) subscribe(device string, d *deviceListeners) {
	if s.alone || s.conn == nil || ferrule.CheckID(device) != nil {
		return
	}
	own := s.names.Subject("sample." + s.names.Node + ".")
	sub, err := s.conn.Subscribe(s.names.Subject("sample.*."+device+".>"), func(msg *nats.Msg) {
		if strings.HasPrefix(msg.Subject, own) {
			return // passed on when it was measured
		}
		if r, err := parseReading(s.names, msg.Subject, msg.Data); err == nil {
			s.passOnce(r, readingID(msg.Header))
		}
	})
	if err != nil {
		return // the connection is closed; connect subscribes again
	}
	sub.SetPendingLimits(maxUnread, maxUnreadBytes)
	d.sub = sub
}

// pass passes on a reading of this node.
func (s *sampleListeners) pass(r ferrule.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[r.Device]; d != nil {
		d.call(r)
	}
}

// passOnce passes on a reading of another node, unless it did before: a reading that the
// stream did not accept is published again.
func (s *sampleListeners) passOnce(r ferrule.Reading, at mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[r.Device]
	if d == nil {
		return
	}
	if before := d.passed[r.Node]; at.origin != "" && before.origin == at.origin && at.last <= before.last {
		return
	}
	if len(d.passed) >= maxMarks {
		clear(d.passed)
	}
	d.passed[r.Node] = at
	d.call(r)
}

func (d *deviceListeners) call(r ferrule.Reading) {
	for _, l := range d.all {
		if l.signal == "" {
			l.fn(r)
			continue
		}
		for i := range r.Batches {
			if r.Batches[i].Signal == l.signal {
				one := r
				one.Batches = r.Batches[i : i+1 : i+1]
				l.fn(one)
			}
		}
	}
}
