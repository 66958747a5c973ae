package watch

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Unseen is the reason of a gap in which a watch was not evaluated: the gateway did not run,
// or the device was not at this node.
const Unseen ferrule.GapReason = "unseen"

// follower evaluates a watch for one device of this node. All of it is guarded by the mutex
// of the keeper.
type follower struct {
	watch   *watched
	device  string
	tracker *condition.Tracker // nil for events
	mark    *mark
	// held is set while the condition may hold since before this run: its hits are not edges.
	held bool
	// claimed is set if other nodes know that this one evaluates, so that it may call.
	claimed bool
	// since is when evaluation was interrupted, until the first sample.
	since time.Time
	// resumed is set until the first samples after an interruption. Those until a time may be
	// ones that were evaluated before: a ring buffer has them still.
	resumed bool
	until   time.Time
	// last is the time of the last sample.
	last time.Time
	gaps []ferrule.Gap
	// notified are the times of notices in the last hour.
	notified []int64
	// edge is the last edge if something is open for it, until the condition does not hold any
	// more.
	edge *edge
}

// Devices returns what must watch the devices of this node.
func (k *Keeper) Devices() ferrule.DeviceWatcher { return deviceWatcher{k} }

type deviceWatcher struct{ *Keeper }

// Put implements ferrule.DeviceWatcher.
func (k deviceWatcher) Put(dev *ferrule.Device, _ *ferrule.Manifest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if dev.ID == ferrule.GatewayID || dev.Trust == ferrule.TrustPending {
		return
	}
	d := k.devices[dev.ID]
	if d == nil {
		d = &device{signals: make(map[string][]*follower)}
		k.devices[dev.ID] = d
	}
	d.conn.Set(dev.State == ferrule.StateOnline)
	d.dev = dev
	follow := func(w *watched) {
		if w.selector.Matches(dev) && w.followers[dev.ID] == nil {
			k.follow(w, d)
		}
	}
	for _, id := range append([]string{dev.ID}, dev.Aliases...) {
		for _, w := range k.exact[id] {
			follow(w)
		}
	}
	for _, w := range k.wide {
		follow(w)
	}
	for _, f := range d.followers() { // its labels may be others
		if !f.watch.selector.Matches(dev) {
			k.detach(f)
		}
	}
}

// followers returns all that follow a device.
func (d *device) followers() []*follower {
	all := slices.Clone(d.events)
	for _, of := range d.signals {
		all = append(all, of...)
	}
	return all
}

// Remove implements ferrule.DeviceWatcher.
func (k deviceWatcher) Remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.devices[id]; d != nil {
		for _, f := range d.followers() {
			k.detach(f)
			k.release(f)
		}
		delete(k.devices, id)
	}
}

// room returns why a watch cannot be evaluated for more devices. It is called with mu held.
func (k *Keeper) room(w *Watch, more int) error {
	switch owned := k.owned[w.Owner.Account()]; {
	case k.follows+more > maxFollowers:
		return ferrule.Errorf(ferrule.Limited, "too many watches on too many devices: limit is %d pairs", maxFollowers).WithHint("remove watches, or select fewer devices")
	case w.Owner.Role == ferrule.Agent && owned+more > maxOwnFollowers:
		return ferrule.Errorf(ferrule.Limited, "the watches of %s select too many devices: limit is %d pairs of a watch and a device", w.Owner, maxOwnFollowers).
			WithHint("remove watches, or select fewer devices")
	}
	return nil
}

// follow starts to evaluate a watch for a device. It is called with mu held.
func (k *Keeper) follow(w *watched, d *device) {
	if err := k.room(&w.Watch, 1); err != nil {
		if !k.crowded {
			k.crowded = true
			k.parts.Log.Warn("a watch is not evaluated for some devices", "watch", w.ID, "device", d.dev.ID, "err", err)
		}
		return
	}
	k.follows++
	k.owned[w.Owner.Account()]++
	f := &follower{watch: w, device: d.dev.ID, claimed: k.parts.Shared == nil}
	m := k.markOf(w.ID, d.dev)
	if m == nil {
		m = &mark{Watch: w.ID, Device: d.dev.ID, Node: k.parts.Node}
		m.Unsure = k.lost && level(&w.Condition) // another node may have called
		k.marks[m.key()] = m
	} else {
		f.since = m.At
		if k.unseen.After(f.since) {
			f.since = k.unseen
		}
		f.inherit(m, k.parts.Node)
	}
	f.mark = m
	w.followers[f.device] = f
	if w.Condition.Signal == "" {
		d.events = append(d.events, f)
		return
	}
	f.tracker = condition.NewTracker(&w.Condition, f.device, &d.conn, w.Created)
	f.tracker.Hit = func(hit condition.Hit) { k.met(f, hit) }
	if level(&w.Condition) {
		f.tracker.Cleared = func() { k.cleared(f) }
	}
	d.signals[w.Condition.Signal] = append(d.signals[w.Condition.Signal], f)
}

// inherit takes over what a mark says about the time before.
func (f *follower) inherit(m *mark, node string) {
	f.resumed, f.until = true, time.Now()
	if m.Node == node && !m.Unsure && f.since.Before(f.until) {
		f.until = f.since
	}
	if !level(&f.watch.Condition) {
		return
	}
	if m.Active && m.Open { // neither its notice nor its call is certain
		m.Active, m.Open = false, false
		m.Hits = max(m.Hits, 1) - 1
	}
	f.held = m.Active
	if m.Node != node && !m.Released {
		// That node may have called after it was cut off. What holds now may be the same edge.
		f.held, m.Unsure = false, true
	}
}

// markOf returns the mark of a watch and a device, which may have had another name. It is
// called with mu held.
func (k *Keeper) markOf(watch string, dev *ferrule.Device) *mark {
	if m := k.marks[keyOf(watch, dev.ID)]; m != nil {
		return m
	}
	for _, alias := range dev.Aliases {
		if m := k.marks[keyOf(watch, alias)]; m != nil {
			next := *m
			next.Device = dev.ID
			k.marks[next.key()] = &next
			k.dirty[next.key()] = true
			return &next
		}
	}
	return nil
}

// detach ends the evaluation of a watch for a device. It is called with mu held.
func (k *Keeper) detach(f *follower) {
	if d := k.devices[f.device]; d != nil {
		same := func(other *follower) bool { return other == f }
		d.events = slices.DeleteFunc(d.events, same)
		signal := f.watch.Condition.Signal
		if d.signals[signal] = slices.DeleteFunc(d.signals[signal], same); len(d.signals[signal]) == 0 {
			delete(d.signals, signal)
		}
	}
	delete(k.timed, f)
	f.edge = nil
	if f.watch.followers[f.device] == f {
		delete(f.watch.followers, f.device)
		f.watch.keepCalls(f.mark)
		k.follows--
		account := f.watch.Owner.Account()
		if k.owned[account]--; k.owned[account] == 0 {
			delete(k.owned, account)
		}
		if m := f.mark; m.Hits == 0 && m.Version == 0 && k.marks[m.key()] == m { // it says nothing
			delete(k.marks, m.key())
			delete(k.dirty, m.key())
		}
	}
}

// release tells other nodes that the mark is complete. It is called with mu held.
func (k *Keeper) release(f *follower) {
	if m := f.mark; k.parts.Shared != nil && f.claimed && m.Intent == "" {
		m.Released = true
		k.shareMark(m)
	}
}

// shareMark shows the mark of a watch that calls to other nodes. It is called with mu held.
func (k *Keeper) shareMark(m *mark) {
	if k.parts.Shared == nil {
		return
	}
	m.Version = max(uint64(time.Now().UnixMicro()), m.Version+1)
	if data, err := json.Marshal(m); err == nil {
		k.outbox.Put(markKey+m.key(), data)
	}
}

// hearMark handles the mark of another node.
func (k *Keeper) hearMark(key string, value []byte) {
	m, err := parseMark(key, value)
	if err != nil {
		k.parts.Log.Warn("ignored the mark of a watch of another node", "err", err)
		return
	}
	report := func() {}
	k.mu.Lock()
	defer func() {
		k.mu.Unlock()
		report()
	}()
	known := k.marks[key]
	if m.Node == k.parts.Node && known != nil || known != nil && known.Version >= m.Version {
		return
	}
	if m.Node == k.parts.Node && !m.Released {
		m.Unsure = true // this node has lost its file, and may have called
		if m.Intent != "" {
			report = k.lose(&m, ferrule.Errorf(ferrule.Unanswered, "this node has lost its records, and the outcome of the call is not known"))
		}
	}
	if w := k.watches[m.Watch]; w != nil && w.followers[m.Device] != nil {
		// The device was there before, or is there now: then this node loses it soon.
		f := w.followers[m.Device]
		*f.mark = m
		f.claimed = false
		f.inherit(f.mark, k.parts.Node)
	} else if len(k.marks) < maxMarks {
		k.marks[key] = &m // its watch may be heard of later
	} else {
		k.lost = true
		return
	}
	k.dirty[key] = true
}

// maxMarks limits the marks of this node and others.
const maxMarks = 4 * MaxWatches

// Measured takes a reading of a device of this node. It does not block.
func (k *Keeper) Measured(r ferrule.Reading) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.devices[r.Device]
	if d == nil || len(d.signals) == 0 {
		return
	}
	lag, silent := k.parts.Silence.Of(&r)
	for i := range r.Batches {
		b := &r.Batches[i]
		for _, f := range d.signals[b.Signal] {
			next := *b
			next.Samples = f.unseen(b.Samples)
			f.seen(&next)
			f.tracker.Feed(&next, lag, silent)
			k.time(f)
		}
	}
}

// seen notes the gaps of a batch and its last time, and the gap before its first sample if
// evaluation was interrupted.
func (f *follower) seen(b *ferrule.SampleBatch) {
	gaps := b.Gaps
	if len(b.Samples) > 0 && !f.since.IsZero() {
		if first := b.Samples[0].Time; first.After(f.since) {
			unseen := ferrule.Gap{From: f.since, To: first, Reason: Unseen}
			f.tracker.Gap(unseen)
			gaps = append([]ferrule.Gap{unseen}, gaps...)
		}
		f.since = time.Time{}
	}
	if n := len(b.Samples); n > 0 {
		f.last = b.Samples[n-1].Time
	}
	if len(gaps) > 0 {
		f.gaps = slices.Concat(f.gaps, gaps)
		f.gaps = f.gaps[max(0, len(f.gaps)-maxShown):]
	}
}

// unseen returns the samples that were not evaluated before an interruption. It always has the
// last one, which is as new as what any other run or node has seen: what it says is true now.
func (f *follower) unseen(samples []ferrule.Sample) []ferrule.Sample {
	for len(samples) > 0 && samples[0].Time.Before(f.watch.Created) { // a buffer of the device is read later: not what was asked for
		samples = samples[1:]
	}
	if !f.resumed || len(samples) == 0 {
		return samples
	}
	f.resumed = false
	for len(samples) > 1 && !samples[0].Time.Add(-time.Duration(samples[0].Within)).After(f.until) {
		samples = samples[1:]
	}
	return samples
}

// time sees to it that a follower hears of the time, if it needs to. It is called with mu
// held.
func (k *Keeper) time(f *follower) {
	if f.edge.open() || !f.tracker.Due().IsZero() {
		k.timed[f] = true
	} else {
		delete(k.timed, f)
	}
}

// cleared handles that the condition does not hold any more. It is called with mu held.
func (k *Keeper) cleared(f *follower) {
	f.held = false
	k.giveUp(f)
	if f.mark.Active || f.mark.Unsure {
		f.mark.Active, f.mark.Open, f.mark.Unsure = false, false, false
		k.dirty[f.mark.key()] = true
	}
}

// HandleEvent takes an event of a device. Events of devices of other nodes are ignored.
func (k *Keeper) HandleEvent(e ferrule.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.devices[e.Device]
	if d == nil || e.Node != k.parts.Node {
		return
	}
	if e.Type == ferrule.Gone {
		for _, f := range d.followers() {
			f.since, f.resumed, f.until = e.Time, true, f.last
		}
	}
	for _, f := range d.events {
		if f.watch.Condition.MatchesEvent(&e) {
			k.met(f, condition.Hit{Device: e.Device, Time: e.Time, Event: &e})
		}
	}
}

// advance says that time has passed. It is called with mu held.
func (k *Keeper) advance(now time.Time) {
	for f := range k.timed {
		f.tracker.Advance(now)
		if f.edge.open() && !f.edge.at.After(now) {
			k.act(f)
		}
		k.time(f)
	}
}
