// Package streams stores what happens at a node in NATS streams, and delivers what
// happens at all nodes to subscribers.
//
//	events    AddEvent ─▶ spool ─(leaf: disk)─▶ shipper ─▶ stream ferrule-events
//	              └─▶ Listen ◀── event.> of other nodes
//	readings  Measured ─▶ backlog ─▶ carrier ─▶ stream ferrule-samples ─▶ Readings
//	              └─▶ Samples ◀── sample.*.<device>.> of other nodes
//	journal   Journal.Lines ─▶ shipper ─▶ seal ─▶ stream ferrule-journal ─▶ Journals
//
// Subscribers of this node's own events and readings get them whether or not NATS is
// reachable. What cannot be stored waits in memory up to a limit; a leaf stores events
// on its own disk until its hub has them.
package streams

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/cluster/concurrent"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/seal"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Journal has the records of this node's calls. Lines waits for records after a number;
// Holds reports whether the record of a number has a hash.
type Journal interface {
	Lines(ctx context.Context, after uint64, most int) (ferrule.JournalLines, error)
	Holds(seq uint64, hash string) (bool, error)
}

// Options are the parts that streams need.
type Options struct {
	Config engine.Config
	// Identity is permanent for this node, Boot differs in each run.
	Identity, Boot string
	// Secret is what the nodes of the tenant share.
	Secret  []byte
	Journal Journal
	// Problem returns why the shared streams are not open.
	Problem func() string
	Log     *slog.Logger
}

// Streams is one node's streams.
type Streams struct {
	options Options
	cfg     engine.Config
	names   engine.Names
	// journalKey seals the copies of journals.
	journalKey seal.Key

	spool     *spool
	spooled   bell // rings when a leaf has stored an event on disk
	listeners eventListeners
	carrier   carrier
	samples   sampleListeners
	tooLong   sync.Once // logs the first reading that cannot be stored

	engine   atomic.Pointer[engine.Engine]    // nil while not connected
	shared   atomic.Pointer[Shared]           // nil while not open
	readings atomic.Pointer[jetstream.Stream] // this node's; nil while not open
}

// New returns streams that are not connected.
func New(o Options) (*Streams, error) {
	key, err := seal.New(o.Secret, "journal", o.Config.Tenant)
	if err != nil {
		return nil, err
	}
	s := &Streams{
		options: o, cfg: o.Config, names: engine.Names{Tenant: o.Config.Tenant, Node: o.Config.Node}, journalKey: key,
		spool: newSpool(o.Identity + "-" + o.Boot),
	}
	s.carrier.backlog.name, s.carrier.filter = s.spool.name, s.names.Sample("*", "*", s.leaf())
	s.carrier.reject = s.rejectReading
	s.samples.names, s.samples.alone = s.names, o.Config.Alone()
	return s, nil
}

func (s *Streams) leaf() bool { return s.cfg.Mode == engine.Leaf }

// Connect subscribes to the events and readings of other nodes, until Disconnect.
func (s *Streams) Connect(e *engine.Engine) error {
	if err := s.subscribeEvents(e); err != nil {
		return err
	}
	s.engine.Store(e)
	s.samples.connect(e.Conn)
	return nil
}

// Disconnect is called before the engine is closed. Subscriptions end with the
// connection.
func (s *Streams) Disconnect() {
	s.readings.Store(nil)
	s.samples.disconnect()
	s.engine.Store(nil)
}

// Stats are counts of events.
type Stats struct {
	// Spooled is how many events wait in memory, and Lost how many were dropped
	// because too many did.
	Spooled int
	Lost    uint64
}

// Stats returns the counts. It may be called at any time.
func (s *Streams) Stats() (stats Stats) {
	stats.Spooled, stats.Lost = s.spool.count()
	return stats
}

// Unstored returns how many readings are not stored yet.
func (s *Streams) Unstored() int { return s.carrier.backlog.length() }

// Shared is the streams that all nodes share.
type Shared struct {
	engine  *engine.Engine
	events  jetstream.Stream
	journal jetstream.Stream // nil for a single node: a copy on the same disk is useless
}

// Limits of the streams.
const (
	eventsAge       = 7 * 24 * time.Hour
	maxEventsBytes  = 256 << 20
	eventsEach      = 256 // of one type, of one device at one node
	maxJournalBytes = 4 << 30
	maxSpoolBytes   = 64 << 20
	// Readings are on their way to histories, which store them. They stay for as long
	// as a history may be stopped.
	samplesAge      = 24 * time.Hour
	maxSamplesBytes = 4 << 30
)

// openTime is how long opening a stream may take: a cluster needs seconds to create one.
const openTime = time.Minute

// Open opens the shared streams, and creates missing ones.
func (s *Streams) Open(ctx context.Context, e *engine.Engine) (*Shared, error) {
	h := &Shared{engine: e}
	all := []func() error{func() (err error) {
		h.events, err = e.Stream(ctx, jetstream.StreamConfig{
			Name: engine.EventsStream, Description: "what happened to devices", Subjects: []string{"ferrule.*.event.>"}, MaxMsgsPerSubject: eventsEach,
			MaxAge: eventsAge, MaxBytes: e.SizeLimit(maxEventsBytes), Discard: jetstream.DiscardOld, AllowDirect: true,
		})
		return err
	}}
	if !s.cfg.Alone() {
		all = append(all, func() (err error) {
			h.journal, err = e.Stream(ctx, jetstream.StreamConfig{
				Name: engine.JournalStream, Description: "the journals of nodes", Subjects: []string{"ferrule.*.journal.*.*"},
				MaxBytes: maxJournalBytes, Discard: jetstream.DiscardNew, DenyDelete: true, DenyPurge: true, AllowDirect: true,
			})
			return err
		})
	}
	return h, concurrent.All(all...)
}

// Run ships events and the journal to the shared streams, and readings unless Local
// does, until ctx ends or one of them fails.
func (s *Streams) Run(ctx context.Context, h *Shared) error {
	s.shared.Store(h)
	defer s.shared.Store(nil)
	all := []func(context.Context) error{func(ctx context.Context) error { return s.shipEvents(ctx, h) }}
	if !h.engine.InProcess() {
		all = append(all, func(ctx context.Context) error { return s.keepReadings(ctx, h.engine) })
	}
	if !s.cfg.Alone() {
		all = append(all, func(ctx context.Context) error { return s.shipJournal(ctx, h) })
	}
	return concurrent.UntilFirst(ctx, all...)
}

// Local returns what a server in this process stores by itself, whether or not the
// shared streams are open: the readings of this node, and the events of a leaf. Each
// runs until ctx ends or it fails, with engine.ErrStuck if the server must be restarted.
func (s *Streams) Local(e *engine.Engine) (all []func(context.Context) error) {
	if e.Local != nil {
		all = append(all, func(ctx context.Context) error { return s.keepSpool(ctx, e) })
	}
	if e.InProcess() {
		all = append(all, func(ctx context.Context) error { return s.keepReadings(ctx, e) })
	}
	return all
}

// EndEvents marks the end of the events: nothing follows.
func (s *Streams) EndEvents() { s.spool.end() }

// Leave ships the last events and readings to the shared streams. A leaf's events, and
// the readings of a server in this process, are left to LeaveLocal.
func (s *Streams) Leave(ctx context.Context, h *Shared) {
	if h.engine.Local == nil {
		s.shipEvents(ctx, h)
	}
	if !h.engine.InProcess() {
		s.lastReadings(ctx, h.engine)
	}
}

// LeaveLocal stores the last events of a leaf and the last readings on disk.
func (s *Streams) LeaveLocal(ctx context.Context, e *engine.Engine) {
	if e.Local != nil {
		ctx, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		s.keepSpool(ctx, e)
	}
	if e.InProcess() {
		s.lastReadings(ctx, e)
	}
}

// farewell is how long the last messages may take.
const farewell = 2 * time.Second

// logChange returns a function that logs a failure once, and that it is over.
func (s *Streams) logChange(failed, recovered string) func(error) {
	var last string
	return func(err error) {
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now == last {
			return
		}
		if last = now; now == "" {
			s.options.Log.Info("cluster: " + recovered)
			return
		}
		s.options.Log.Warn(fmt.Sprintf("cluster: %s; retrying", failed), "err", now)
	}
}
