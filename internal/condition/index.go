package condition

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPairs is how many pairs of a condition and a device an Index has.
const maxPairs = 1 << 18

// Parts are the dependencies of an Index.
type Parts struct {
	// Follow has readings of a device passed to Index.Reading, until stop is called. It is
	// called for devices that a condition on a signal selects, from Run. It may be nil.
	Follow  func(device string) (stop func())
	Silence Silence
	Log     *slog.Logger
}

// Index evaluates many conditions. A reading costs what the conditions on its signals cost,
// whatever the number of the others. It is safe for concurrent use.
type Index struct {
	parts Parts
	wake  chan struct{} // interrupts Run

	mu      sync.Mutex
	entries map[string]*entry            // by ID
	byID    map[string]map[string]*entry // entries of a single device, by device and ID
	many    map[string]*entry            // other entries
	devices map[string]*device
	count   int // of pairs
	timers  timers
	wakeAt  time.Time       // when Run wakes up next; zero if there are no timers
	refresh map[string]bool // devices that Run must follow, or no longer
	busy    bool            // Run is following a device
	idle    chan struct{}   // closed when refresh is empty; nil if nobody waits
	warned  bool
}

// Fresh is how old a sample may be for its value to count as the present one.
const Fresh = 10 * time.Second

// Entry is a condition in an Index.
type Entry struct {
	// ID is unique in the Index.
	ID        string
	Condition Condition
	// Hit is called for each hit, with the Index locked: it must not block, and must not
	// call the Index.
	Hit func(Hit)
}

type entry struct {
	Entry
	selector Selector
	params   map[string]any
	since    time.Time
	devices  map[*device]*pair
}

// device is what an Index knows about a device.
type device struct {
	id      string
	dev     *ferrule.Device // nil if it is not in the fleet
	conn    Connection
	node    string // that of the last reading
	signals map[string][]*pair
	events  []*pair
	// following is set while Follow is in effect. Only Run uses stop.
	following bool
	stop      func()
}

// pair is one entry on one device.
type pair struct {
	entry   *entry
	device  *device
	tracker *Tracker  // nil for events
	due     time.Time // in timers; zero if it is not there
	at      int       // index in timers
}

// NewIndex returns an empty Index. Run must be called for conditions to be met by time, and
// for Follow.
func NewIndex(p Parts) *Index {
	return &Index{
		parts: p, wake: make(chan struct{}, 1), entries: make(map[string]*entry), byID: make(map[string]map[string]*entry),
		many: make(map[string]*entry), devices: make(map[string]*device), refresh: make(map[string]bool),
	}
}

// Add adds a condition. It applies to events from now on and to samples that are Fresh now or
// come later, of devices that exist and of those that appear later.
func (x *Index) Add(e Entry) error {
	if err := e.Condition.Check(); err != nil {
		return err
	}
	selector, err := ParseSelector(e.Condition.Device)
	if err != nil {
		return err
	}
	params, err := e.Condition.params()
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.entries[e.ID] != nil {
		return fmt.Errorf("condition %s exists already", e.ID)
	}
	added := &entry{Entry: e, selector: selector, params: params, since: time.Now(), devices: make(map[*device]*pair)}
	matching := x.matching(added)
	if x.count+len(matching) > maxPairs {
		return fmt.Errorf("the condition selects %d devices, and too many conditions are evaluated already; select fewer devices", len(matching))
	}
	x.entries[e.ID] = added
	if id := selector.ID(); id != "" {
		if x.byID[id] == nil {
			x.byID[id] = make(map[string]*entry)
		}
		x.byID[id][e.ID] = added
	} else {
		x.many[e.ID] = added
	}
	for _, d := range matching {
		x.attach(added, d)
	}
	return nil
}

// matching returns the devices of an entry. It is called with mu held.
func (x *Index) matching(e *entry) (all []*device) {
	id := e.selector.ID()
	if d := x.devices[id]; d != nil {
		return []*device{d}
	}
	for _, d := range x.devices {
		if d.dev != nil && e.selector.Matches(d.dev) {
			all = append(all, d)
		}
	}
	if id != "" && len(all) == 0 { // it may appear later, or another node holds it
		d := &device{id: id}
		x.devices[id] = d
		all = append(all, d)
	}
	return all
}

// forget removes a device that nothing needs. It is called with mu held.
func (x *Index) forget(d *device) {
	if d.dev == nil && !d.following && x.devices[d.id] == d && len(d.signals)+len(d.events) == 0 {
		delete(x.devices, d.id)
	}
}

// Ready waits until the devices of all conditions are followed.
func (x *Index) Ready(ctx context.Context) error {
	x.mu.Lock()
	if len(x.refresh) == 0 && !x.busy {
		x.mu.Unlock()
		return nil
	}
	if x.idle == nil {
		x.idle = make(chan struct{})
	}
	idle := x.idle
	x.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Remove removes a condition. Its Hit is not called any more when Remove returns.
func (x *Index) Remove(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[id]
	if e == nil {
		return
	}
	delete(x.entries, id)
	delete(x.many, id)
	if id := e.selector.ID(); id != "" {
		if delete(x.byID[id], e.ID); len(x.byID[id]) == 0 {
			delete(x.byID, id)
		}
	}
	for _, p := range e.devices {
		x.detach(p)
		x.forget(p.device)
	}
}

// Len returns how many conditions there are.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.entries)
}

// Gaps returns the gaps in which a condition may have been met unseen since it was added or
// last met, by device.
func (x *Index) Gaps(id string) map[string][]ferrule.Gap {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[string][]ferrule.Gap)
	if e := x.entries[id]; e != nil {
		for d, p := range e.devices {
			if p.tracker != nil && len(p.tracker.eval.gaps) > 0 {
				all[d.id] = slices.Clone(p.tracker.eval.gaps)
			}
		}
	}
	return all
}

// attach makes an entry apply to a device. It is called with mu held.
func (x *Index) attach(e *entry, d *device) {
	if e.devices[d] != nil {
		return
	}
	if x.count >= maxPairs {
		if !x.warned && x.parts.Log != nil {
			x.parts.Log.Error("too many conditions: new devices are not evaluated", "limit", maxPairs)
		}
		x.warned = true
		return
	}
	x.count++
	p := &pair{entry: e, device: d, at: -1}
	e.devices[d] = p
	if e.Condition.Event != "" {
		d.events = append(d.events, p)
		return
	}
	p.tracker = NewTracker(&e.Condition, d.id, &d.conn, e.since)
	p.tracker.Hit, p.tracker.Oldest = e.Hit, e.since.Add(-Fresh)
	if d.signals == nil {
		d.signals = make(map[string][]*pair)
	}
	d.signals[e.Condition.Signal] = append(d.signals[e.Condition.Signal], p)
	x.refollow(d)
}

// detach ends an entry on a device. It is called with mu held.
func (x *Index) detach(p *pair) {
	x.count--
	d, e := p.device, p.entry
	delete(e.devices, d)
	x.timers.set(p, time.Time{})
	if p.tracker == nil {
		d.events = without(d.events, p)
	} else if name := e.Condition.Signal; len(d.signals[name]) > 1 {
		d.signals[name] = without(d.signals[name], p)
	} else {
		delete(d.signals, name)
		x.refollow(d)
	}
}

// without returns a new list without p. Lists may be in use.
func without(list []*pair, p *pair) []*pair {
	kept := make([]*pair, 0, len(list)-1)
	for _, other := range list {
		if other != p {
			kept = append(kept, other)
		}
	}
	return kept
}

// refollow has Run follow a device, or no longer. It is called with mu held.
func (x *Index) refollow(d *device) {
	if d.following != (len(d.signals) > 0) {
		x.refresh[d.id] = true
		x.ring()
	}
}

func (x *Index) ring() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// put adds or replaces a device of the fleet.
func (x *Index) put(dev *ferrule.Device) {
	if dev.ID == ferrule.GatewayID {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.devices[dev.ID]
	if d == nil {
		d = &device{id: dev.ID}
		x.devices[dev.ID] = d
	}
	before := d.dev
	d.dev = dev
	d.conn.Set(dev.State == ferrule.StateOnline)
	if before != nil && maps.Equal(before.Labels, dev.Labels) && len(before.Aliases) == len(dev.Aliases) {
		return
	}
	for _, id := range append([]string{dev.ID}, dev.Aliases...) {
		for _, e := range x.byID[id] {
			x.attach(e, d)
		}
	}
	for _, e := range x.many {
		if matches, p := e.selector.Matches(dev), e.devices[d]; matches {
			x.attach(e, d)
		} else if p != nil {
			x.detach(p)
		}
	}
}

func (x *Index) removeDevice(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.devices[id]
	if d == nil {
		return
	}
	d.dev = nil
	d.conn.Set(false)
	for _, p := range d.pairs() {
		if p.entry.selector.ID() != id {
			x.detach(p)
		}
	}
	x.forget(d)
}

// pairs returns all pairs of a device.
func (d *device) pairs() []*pair {
	all := slices.Clone(d.events)
	for _, list := range d.signals {
		all = append(all, list...)
	}
	return all
}

// Devices returns what must watch the devices of the fleet.
func (x *Index) Devices() ferrule.DeviceWatcher { return deviceWatcher{x} }

type deviceWatcher struct{ x *Index }

func (w deviceWatcher) Put(dev *ferrule.Device, _ *ferrule.Manifest) { w.x.put(dev) }
func (w deviceWatcher) Remove(id string)                             { w.x.removeDevice(id) }

// Reading evaluates a reading, also one of states that were seen to be unchanged and are not
// stored. Readings of one device must come one after the other.
func (x *Index) Reading(r ferrule.Reading) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := x.devices[r.Device]; d != nil && len(d.signals) > 0 {
		d.node = r.Node
		x.evaluate(d, &r, nil)
	}
}

// Interrupted says that readings of other nodes than this one may be lost: a gap for each of
// their signals.
func (x *Index) Interrupted(node string) {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.devices {
		if d.node == node || d.node == "" {
			continue
		}
		for _, list := range d.signals {
			for _, p := range list {
				p.tracker.interrupted(now)
				x.schedule(p)
			}
		}
	}
}

// Prime gives a condition the latest values from before it was added. It changes nothing if a
// later sample has come.
func (x *Index) Prime(id string, r ferrule.Reading) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d, e := x.devices[r.Device], x.entries[id]; d != nil && e != nil {
		x.evaluate(d, &r, e)
	}
}

// evaluate evaluates a reading, for only one entry if that is not nil. It is called with mu
// held.
func (x *Index) evaluate(d *device, r *ferrule.Reading, first *entry) {
	lag, silent := x.parts.Silence.Of(r)
	for i := range r.Batches {
		b := &r.Batches[i]
		for _, p := range d.signals[b.Signal] {
			if first != nil && (first != p.entry || !p.tracker.eval.fresh) {
				continue
			}
			p.tracker.Feed(b, lag, silent)
			x.schedule(p)
		}
	}
}

// Event evaluates an event.
func (x *Index) Event(e ferrule.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.devices[e.Device]
	if d == nil {
		return
	}
	for _, p := range d.events {
		if c := &p.entry.Condition; c.matchesEvent(&e, p.entry.params) {
			p.entry.Hit(Hit{Device: d.id, Time: e.Time, Event: &e})
		}
	}
}

// schedule sets the timer of a pair. It is called with mu held.
func (x *Index) schedule(p *pair) {
	next := p.tracker.Due()
	if next.Equal(p.due) {
		return
	}
	x.timers.set(p, next)
	if !next.IsZero() && (x.wakeAt.IsZero() || next.Before(x.wakeAt)) {
		x.wakeAt = next
		x.ring()
	}
}

// Run meets conditions by time, and follows devices, until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer x.unfollow()
	for {
		x.follow()
		if next := x.advance(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-x.wake:
		}
	}
}

// advance meets conditions whose time has come, and returns when to call it again.
func (x *Index) advance(now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.timers) > 0 && !x.timers[0].due.After(now) {
		p := x.timers[0]
		x.timers.set(p, time.Time{})
		p.tracker.Advance(now)
	}
	if x.wakeAt = (time.Time{}); len(x.timers) > 0 {
		x.wakeAt = x.timers[0].due
	}
	return x.wakeAt
}

// follow follows the devices that a condition selects, and no others. Follow is called
// without the lock: readings come with the lock of the source held.
func (x *Index) follow() {
	for {
		d, on := x.nextRefresh()
		if d == nil {
			return
		}
		var stop func()
		if on && x.parts.Follow != nil {
			stop = x.parts.Follow(d.id)
		} else if !on && d.stop != nil {
			d.stop()
		}
		d.stop = stop
		x.mu.Lock()
		x.forget(d)
		x.mu.Unlock()
	}
}

// nextRefresh returns a device to be followed, or no longer; nil if there is none.
func (x *Index) nextRefresh() (d *device, on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.refresh {
		delete(x.refresh, id)
		d := x.devices[id]
		if d == nil {
			continue
		}
		if on := len(d.signals) > 0; on != d.following {
			d.following, x.busy = on, true
			return d, on
		}
	}
	if x.busy = false; x.idle != nil {
		close(x.idle)
		x.idle = nil
	}
	return nil, false
}

// unfollow ends all Follows.
func (x *Index) unfollow() {
	x.mu.Lock()
	var stops []func()
	for _, d := range x.devices {
		if d.stop != nil {
			stops = append(stops, d.stop)
		}
		d.stop, d.following = nil, false
	}
	x.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
