// Package cluster is the engine: NATS, inside this process or in a cluster that
// somebody runs. By it the nodes of a tenant know of each other's devices, call
// them, and keep copies of each other's journals.
//
//	own devices  fleet ─▶ intake ─▶ view ─plan, claim─▶ registry
//	others'      registry ─watch─▶ view ─show─▶ fleet
//	a call out   fleet ─▶ call ─▶ outbox ── node.<holder>.<run>.call ─▶
//	a call in    ── node.<self>.<run>.call ─▶ inbox ─▶ serve ─▶ fleet
//	copies       journal, spool ─▶ route ─▶ streams
//	events       intake ─▶ spool, and who listens ◀── event.> of other nodes
//	readings     Measured ─▶ backlog ─▶ carrier ─▶ stream ─▶ Readings
//	             and who listens ◀── sample.*.<device>.> of other nodes
//
// The registry is an index that can be lost: devices say what they are, so every
// node writes its own anew. A device is held by one node at a time, under an epoch
// that grows with each that takes it; a call names the epoch that it means, and a
// node that no longer holds the device so refuses it.
//
// Devices that are here are served whatever becomes of the engine.
package cluster

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Fleet is shown the devices of other nodes.
type Fleet interface {
	PutRemote(dev *ferrule.Device, laid *ferrule.Manifest, way ferrule.Handler)
	RemoveRemote(id string)
}

// Overlays lays on a manifest what its device cannot say.
type Overlays interface {
	Apply(dialect string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest
	// Names tells whether something is laid on this one device alone.
	MatchesDevice(device string) bool
}

// Manifests has what own devices said of themselves, by Kind.
type Manifests interface {
	Manifest(kind ferrule.Kind) (*ferrule.Manifest, error)
}

// Journal has the records of this node's calls. Lines waits for those after a
// number; Holds tells whether the record of a number has that hash.
type Journal interface {
	Lines(ctx context.Context, after uint64, most int) (ferrule.JournalLines, error)
	Holds(seq uint64, hash string) (bool, error)
}

// Parts is what a bus is made of.
type Parts struct {
	Config Config
	// Dir is for the engine's files.
	Dir       string
	Fleet     Fleet
	Overlays  Overlays
	Manifests Manifests
	Journal   Journal
	// Serve has an own device do what a call asks for that another node has
	// resolved.
	Serve ferrule.Handler
	// Decide serves a call of the gateway's own tools that another node's person
	// has made about an own device.
	Decide ferrule.Handler
	// Moved is told of own devices that another node has taken, or let go of. It
	// must be quick.
	Moved func(id string)
	// Meters measure calls to other nodes and of them; nil if nobody does.
	Meters  ferrule.Meters
	Version string
	Log     *slog.Logger
}

// Bus is one node's end of the engine. It is a ferrule.Follower of the node's own
// devices.
type Cluster struct {
	parts    Parts
	cfg      Config
	names    names
	identity string // of this node, for ever
	boot     string // of this run
	replies  string // subjects that answers come to begin so

	view     *view
	kinds    *kinds
	intake   *intake
	spool    *spool
	spooled  bell // rings when a leaf has spooled something
	audience audience
	carrier  carrier
	tuner    tuner
	outbox   *outbox
	inbox    *inbox
	sending  ferrule.Meter // of calls to other nodes
	work     chan struct{} // wakes whoever writes records
	trouble  chan struct{} // wakes whoever watches the registry

	publishing sync.Mutex            // held while manifests are written
	published  map[ferrule.Kind]bool // in the registry by now
	copied     string                // the run of a copy of this node that has its lease; renew's

	engine atomic.Pointer[engine] // nil while there is none
	home   atomic.Pointer[home]   // nil while it is not open
	// readings is the stream of this node's; nil while it is not open.
	readings atomic.Pointer[jetstream.Stream]
	unfit    sync.Once // tells of a reading that cannot be kept

	mu    sync.Mutex
	wrong [concerns]string
	state State
}

// State is how a node stands to the others.
type State struct {
	Mode   Mode   `json:"mode"`
	Node   string `json:"node"`
	Tenant string `json:"tenant"`
	// Working tells that what this node knows reaches the registry, since when,
	// or why not.
	Working bool      `json:"working"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why,omitempty"`
	// Nodes are the others that live.
	Nodes []string `json:"nodes,omitempty"`
	// Waiting is how many of this node's own records have yet to be written, and Unkept
	// how many readings have yet to be kept.
	Waiting int `json:"waiting"`
	Unkept  int `json:"unkept"`
}

// starting is why a bus does not work at first.
const starting = "it is being started"

// New makes a bus. Its files are in a directory, which is made.
func New(p Parts) (*Cluster, error) {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	identity, err := readIdentity(filepath.Join(p.Dir, "node"))
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	boot := strings.ToLower(cryptorand.Text()[:10])
	b := &Cluster{
		parts: p, cfg: p.Config, names: names{p.Config.Tenant, p.Config.Node}, identity: identity, boot: boot,
		spool: newSpool(identity + "-" + boot), outbox: newOutbox(boot), inbox: newInbox(), work: make(chan struct{}, 1), trouble: make(chan struct{}, 1),
		state: State{Mode: p.Config.Mode, Node: p.Config.Node, Tenant: p.Config.Tenant, Since: time.Now(), Why: starting},
	}
	b.wrong[taking] = starting
	b.carrier.backlog.name, b.carrier.under = b.spool.name, b.names.sample("*", "*", p.Config.Mode == Leaf)
	b.carrier.notFit = b.notFit
	b.tuner = tuner{names: b.names, alone: p.Config.alone()}
	b.sending = p.Meters.For(ferrule.PartNode)
	serving := p.Meters.For(ferrule.PartServe)
	b.parts.Serve, b.parts.Decide = ferrule.Measured(serving, p.Serve), ferrule.Measured(serving, p.Decide)
	b.replies = b.names.replies()
	b.kinds = newKinds(b.names, p.Overlays, p.Log)
	b.view = newView(p.Config, p.Fleet, b.kinds, b.call)
	b.kinds.arrived = b.view.arrived
	b.intake = &intake{wake: b.view.wake}
	return b, nil
}

// readIdentity reads what tells this node from another of the same name, or makes
// it.
func readIdentity(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && len(data) >= 16 && len(data) < 64 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	identity := strings.ToLower(cryptorand.Text()[:20])
	return identity, os.WriteFile(path, []byte(identity+"\n"), 0o600)
}

// Put implements ferrule.Follower: news of an own device.
func (b *Cluster) Put(dev *ferrule.Device, laid *ferrule.Manifest) { b.intake.Put(dev, laid) }

// Remove implements ferrule.Follower.
func (b *Cluster) Remove(id string) { b.intake.Remove(id) }

// Known returns the device that has an ID on another node, or had it last there.
func (b *Cluster) Known(id string) (*ferrule.Device, bool) { return b.view.known(id) }

// State tells how this node stands to the others.
func (b *Cluster) State() State {
	b.mu.Lock()
	s := b.state
	b.mu.Unlock()
	s.Nodes, s.Waiting, s.Unkept = b.view.nodes(), b.view.waiting(b.intake), b.carrier.backlog.length()
	return s
}

// concern is something that can be wrong with a bus by itself.
type concern int

const (
	taking  concern = iota // taking part at all
	leasing                // this node's lease
	writing                // the records of its devices
	concerns
)

// say notes what is wrong with something, or that nothing is, and logs it if whether
// the bus works is news.
func (b *Cluster) say(about concern, wrong string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := about == taking && b.wrong[taking] == starting
	b.wrong[about] = wrong
	why := cmp.Or(b.wrong[:]...)
	if why == starting {
		return // there is nothing to tell yet
	}
	if working := why == ""; b.state.Working == working && !first {
		b.state.Why = why
		return
	}
	b.state.Working, b.state.Why, b.state.Since = why == "", why, time.Now()
	switch {
	case why != "":
		b.parts.Log.Warn("bus: not working; devices of this node are served meanwhile", "node", b.cfg.Node, "err", why)
	case !b.cfg.alone():
		b.parts.Log.Info(fmt.Sprintf("bus: one of the nodes of %s", b.cfg.Tenant), "node", b.cfg.Node)
	}
}

// Find looks up a device that is too much for the view.
func (b *Cluster) Find(id string) (*ferrule.Device, *ferrule.Manifest, ferrule.Handler, bool) {
	h := b.home.Load()
	if h == nil || !b.view.incomplete() || ferrule.CheckID(id) != nil {
		return nil, nil, nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	e, err := h.registry.get(ctx, id)
	if err != nil || e.device == nil || e.device.Node == b.cfg.Node {
		return nil, nil, nil, false
	}
	laid := b.kinds.laid(e.device)
	if laid == nil {
		m, err := b.kinds.get(ctx, h.kinds, e.device.Kind)
		if err != nil {
			return nil, nil, nil, false
		}
		laid = b.kinds.overlaid(b.kinds.key(e.device), m)
	}
	return b.view.seenFrom(e.device, laid), laid, b.call, true
}

// findTime is how long a device may be looked for.
const findTime = time.Second

// The pace of beginning again.
const (
	againMin = 250 * time.Millisecond
	againMax = 5 * time.Second
	// farewell is how long the last records may take to be written.
	farewell = 2 * time.Second
	// openTime is how long it may take to open what nodes share: making it for the
	// first time takes a cluster seconds.
	openTime = time.Minute
	// settleTime is about how long servers take to elect a leader.
	settleTime = 5 * time.Second
)

// Run runs the engine until ctx ends. What goes wrong with it is told by State, and
// tried again: devices that are here do not need it.
func (b *Cluster) Run(ctx context.Context) error {
	digesting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { b.digest(digesting) })
	defer wg.Wait()
	defer stop()
	again(ctx, func() {
		if err := b.life(ctx); ctx.Err() == nil {
			b.say(taking, err.Error())
		}
	})
	return nil
}

// again does something until ctx ends, with a pause between that grows as long as
// it fails quickly.
func again(ctx context.Context, do func()) {
	for wait := againMin; ; wait = min(2*wait, againMax) {
		began := time.Now()
		do()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > againMax {
			wait = againMin
		}
		sleep(ctx, wait)
	}
}

// life is an engine from its start to its end.
func (b *Cluster) life(whole context.Context) error {
	e, err := startEngine(b.cfg, b.parts.Dir, b.parts.Log, b.reconnected)
	if err != nil {
		return err
	}
	defer e.close()
	if _, err := e.conn.Subscribe(b.replies+"*", b.outbox.receive); err != nil {
		return err
	}
	if err := b.overhear(e); err != nil {
		return err
	}
	b.engine.Store(e)
	defer b.engine.Store(nil)
	b.tuner.begin(e.conn)
	defer b.tuner.end()
	defer b.readings.Store(nil)
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, keep := range b.chores(e) {
		wg.Go(func() {
			again(ctx, func() {
				if errors.Is(keep(ctx, e), errStuck) {
					cancel()
				}
			})
		})
	}
	ear := &ear{bus: b, engine: e}
	defer ear.stop()
	defer cancel()
	again(ctx, func() {
		err := b.attend(ctx, e, ear)
		if ctx.Err() == nil {
			b.say(taking, b.because(e, err).Error())
		}
		if errors.Is(err, errStuck) || e.server != nil && !e.server.JetStreamEnabled() {
			cancel() // a new one may find room
		}
	})
	cancel()
	wg.Wait()
	if whole.Err() != nil {
		b.keepLast(context.WithoutCancel(whole), e)
	}
	return errStuck
}

// chores are what a node does whether or not it takes part: an engine in this process
// keeps by itself what happens at this node and what is measured.
func (b *Cluster) chores(e *engine) (all []func(context.Context, *engine) error) {
	if e.local != nil {
		all = append(all, b.keepSpool)
	}
	if e.server != nil {
		all = append(all, b.keepReadings)
	}
	return all
}

// keepLast keeps on disk what has happened and what was measured at last: the events of
// a leaf, whether its hub is there or not.
func (b *Cluster) keepLast(ctx context.Context, e *engine) {
	if e.local != nil {
		ctx, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		b.lastNews()
		b.keepSpool(ctx, e)
	}
	if e.server != nil {
		b.lastReadings(ctx, e)
	}
}

// reconnected is called when a server was lost and another found.
func (b *Cluster) reconnected() {
	b.outbox.pokeAll()
	b.troubled()
}

// attend takes part, from opening what nodes share until it cannot go on. Calls of other
// nodes do not need what they share: once this node has taken part it goes on to listen,
// unless another has its name.
func (b *Cluster) attend(ctx context.Context, e *engine, ear *ear) (err error) {
	defer func() {
		if errors.Is(err, errTaken) {
			ear.stop()
		}
	}()
	h, err := b.enter(ctx, e)
	if err != nil {
		return err
	}
	if err := ear.listen(ctx); err != nil {
		return err
	}
	b.home.Store(h)
	defer b.home.Store(nil)
	b.say(leasing, "")
	b.say(writing, "")
	b.published = make(map[ferrule.Kind]bool)
	session, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	b.kinds.begin(session, h.kinds, &wg)
	err = together(session, b.duties(e, h))
	b.kinds.end()
	cancel()
	wg.Wait()
	if ctx.Err() != nil {
		ear.stop()
		b.leave(context.WithoutCancel(ctx), e, h)
	}
	return err
}

// enter opens what nodes share, and takes this node's lease.
func (b *Cluster) enter(ctx context.Context, e *engine) (*home, error) {
	if err := b.greeted(ctx, e); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	h, err := b.openHome(ctx, e)
	if err != nil {
		return nil, b.because(e, err)
	}
	return h, nil
}

// greeted waits until there is somebody to ask. If that takes long, the state says so.
func (b *Cluster) greeted(ctx context.Context, e *engine) error {
	soon, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	if e.linked(soon) == nil {
		return nil
	}
	if away := e.away(); away != nil && ctx.Err() == nil {
		b.say(taking, b.because(e, away).Error())
	}
	return e.linked(ctx)
}

// duties are what a node does while it takes part.
func (b *Cluster) duties(e *engine, h *home) []func(context.Context) error {
	all := []func(context.Context) error{
		func(ctx context.Context) error { return b.keepOwn(ctx, e, h) },
		func(ctx context.Context) error { return b.shipEvents(ctx, e, h) },
	}
	if e.server == nil {
		all = append(all, func(ctx context.Context) error { return b.keepReadings(ctx, e) })
	}
	if b.cfg.alone() {
		known := make(chan struct{})
		close(known)
		return append(all, func(ctx context.Context) error { return b.watchDevices(ctx, h, known) })
	}
	return append(all,
		func(ctx context.Context) error { return b.keepLease(ctx, e, h.lease) },
		func(ctx context.Context) error { return b.shipJournal(ctx, e, h) },
		func(ctx context.Context) error { return b.keepView(ctx, h) },
	)
}

// watchDevices keeps the registry in view. What it tells waits until it is known
// which nodes live: whether a device can be reached depends on its node.
func (b *Cluster) watchDevices(ctx context.Context, h *home, known <-chan struct{}) error {
	wait := func() (ok bool) {
		select {
		case <-known:
			return true
		case <-ctx.Done():
			return false
		}
	}
	told := func(id string, data []byte, revision uint64) {
		if wait() {
			b.view.told(id, data, revision)
		}
	}
	b.view.begin()
	return h.registry.watch(ctx, told, func() {
		if wait() {
			b.view.complete()
			b.say(taking, "")
		}
	})
}

// keepView keeps nodes and devices in view until ctx ends. After trouble it looks at
// all of them anew: a watch that was lost with a server may be silent for long.
func (b *Cluster) keepView(ctx context.Context, h *home) error {
	for {
		look, cancel := context.WithCancel(ctx)
		anew := make(chan struct{})
		go func() {
			defer close(anew)
			select {
			case <-b.trouble:
				cancel()
			case <-look.Done():
			}
		}()
		err := b.watchAll(look, h)
		again := look.Err() != nil || errors.Is(err, context.Canceled)
		cancel()
		<-anew
		if !again || ctx.Err() != nil {
			return err
		}
	}
}

// watchAll watches nodes and devices.
func (b *Cluster) watchAll(ctx context.Context, h *home) error {
	known := make(chan struct{})
	return together(ctx, []func(context.Context) error{
		func(ctx context.Context) error {
			return b.watchNodes(ctx, h, sync.OnceFunc(func() { close(known) }))
		},
		func(ctx context.Context) error { return b.watchDevices(ctx, h, known) },
	})
}

// troubled has everything looked at anew, when servers have had time to agree again.
func (b *Cluster) troubled() {
	time.AfterFunc(settleTime+rand.N(settleTime), func() {
		select {
		case b.trouble <- struct{}{}:
		default:
		}
	})
}

// together does things at once until one of them ends, and then waits for all.
func together(ctx context.Context, all []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(all))
	for _, do := range all {
		go func() { ended <- do(ctx) }()
	}
	err := <-ended
	cancel()
	for range len(all) - 1 {
		<-ended
	}
	return err
}

// lastNews takes in what has become of own devices: nothing follows it.
func (b *Cluster) lastNews() {
	for _, e := range b.view.settle(b.intake) {
		b.happened(e)
	}
	b.spool.end()
}

// leave tells all others what has become of this node's devices, as far as there is
// time, and that it has ended.
func (b *Cluster) leave(ctx context.Context, e *engine, h *home) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	b.lastNews()
	b.writeAll(ctx, h) // or as much as there is time for
	if e.local == nil {
		b.shipEvents(ctx, e, h)
	}
	if e.server == nil {
		b.lastReadings(ctx, e)
	}
	if !b.cfg.alone() {
		b.giveUpLease(ctx, e, h)
	}
}
