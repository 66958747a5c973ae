package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of what is under way.
const (
	maxFirings = 4096
	maxNotes   = 1024
	maxOwnNote = 256 // of those of one agent
	maxCalling = 64  // calls of all watches
	maxOwnCall = 16  // of those of one agent
)

// edge is a moment at which the condition became true for a device. Its notice and its call
// have limits of their own: what is open is begun when the limits allow it, if the condition
// still holds. It is guarded by the mutex of the keeper.
type edge struct {
	hit   condition.Hit
	count uint64 // is mark.Hits, with this one
	// notify and call are set while they are open, and are tried again at a time.
	notify, call bool
	at           time.Time
	held         bool // it is counted in mark.Held
	noticed      bool // its notice is begun
	// id is the ID of the call, once it is begun, and outcome is what became of it. Until it
	// is begun, why says why not.
	id      string
	outcome *Outcome
	why     error
	// sent has the last notice of each channel: it is closed when the notice is delivered.
	sent map[string]chan struct{}
}

// open reports whether something is to be done later.
func (e *edge) open() bool { return e != nil && (e.notify || e.call) }

// stored returns the hit of the edge as marks have it.
func (e *edge) stored() *condition.Hit {
	return &condition.Hit{Device: e.hit.Device, Signal: e.hit.Signal, Time: e.hit.Time, Value: e.hit.Value}
}

// firing is what is begun for an edge.
type firing struct {
	f      *follower
	edge   *edge
	notify bool
	call   bool
	over   bool // the call that was held back is not made
	told   bool // the notice of the edge was begun before
}

// met handles an edge: the condition became true. It is called with mu held.
func (k *Keeper) met(f *follower, hit condition.Hit) {
	m, w := f.mark, f.watch
	now := time.Now()
	if m.Fired.After(now.Add(maxSkew)) { // the sample, or the clock of this node, was wrong
		m.Fired = time.Time{}
	}
	if f.held || !hit.Time.After(m.Fired) || !w.live(now) {
		return
	}
	hit.Device, hit.Signal = f.device, w.Condition.Signal
	m.Hits++
	m.Active = level(&w.Condition)
	m.Open = m.Active
	k.dirty[m.key()] = true
	f.edge = &edge{hit: hit, count: m.Hits, notify: true, call: w.Call != nil}
	k.act(f)
}

// act begins what is open for the last edge of a follower, as far as the limits allow it: the
// notice within those of the device, the call within those of the watch. It is called with mu
// held.
func (k *Keeper) act(f *follower) {
	w, e, now := f.watch, f.edge, time.Now()
	j := &firing{f: f, edge: e}
	e.at = now.Add(time.Hour)
	if e.notify {
		at := now.Add(w.next(f.notified, now).Sub(now)) // with the monotonic clock
		if j.notify = !at.After(now); !j.notify {
			e.at = at
		}
	}
	if e.call && f.mark.Unsure {
		e.call, e.why = false, unsure(f)
	}
	if e.call {
		var at time.Time
		if at, e.why = k.callAt(f, now); e.why == nil {
			j.call = true
		} else if at.Before(e.at) {
			e.at = at
		}
	}
	if e.notify != j.notify || e.call != j.call {
		k.hold(f)
	}
	if j.notify || j.call {
		select {
		case k.firings <- j:
			k.begun(j, now)
		default:
			k.hold(f)
			e.at = now.Add(flushEvery)
		}
	}
	if !level(&w.Condition) { // what happens in a moment does not hold later
		e.notify, e.call = false, false
	}
	if f.edge = nil; e.open() {
		f.edge, k.timed[f] = e, true
	}
}

// begun notes that a firing is on its way. It is called with mu held.
func (k *Keeper) begun(j *firing, now time.Time) {
	if j.notify {
		j.edge.notify, j.edge.noticed = false, true
		j.f.notified = append(recent(j.f.notified, now), seconds(now))
	}
	if j.call {
		j.edge.call = false
		j.f.watch.calling = true
	}
}

// hold counts an edge that is held back, once. It is called with mu held.
func (k *Keeper) hold(f *follower) {
	if !f.edge.held {
		f.edge.held = true
		f.mark.Held++
		k.dirty[f.mark.key()] = true
	}
}

// callAt returns when it is worth a try to call for a follower, and why not now. There is at most one
// call of a watch under way. It is called with mu held.
func (k *Keeper) callAt(f *follower, now time.Time) (time.Time, error) {
	w := f.watch
	switch {
	case w.calling: // idle ends the wait
		return now.Add(time.Hour), underWay[level(&w.Condition)]
	case f.mark.Intent != "": // a call of an earlier run, which is looked for
		return now.Add(tickEvery), underWay[level(&w.Condition)]
	}
	if !now.Before(w.blocked) {
		w.blocked = now.Add(w.next(k.callsOf(w), now).Sub(now)) // with the monotonic clock
	}
	if w.blocked.After(now) {
		return w.blocked, beyondLimits[level(&w.Condition)]
	}
	return now, nil
}

// Why a call is held back, by whether the condition can still hold later.
var (
	underWay     = heldBack("the call of an earlier hit is under way")
	beyondLimits = heldBack("the limits of the watch hold the call back")
)

func heldBack(why string) map[bool]error {
	return map[bool]error{
		false: ferrule.Errorf(ferrule.Limited, "not called: %s", why),
		true:  ferrule.Errorf(ferrule.Limited, "not called: %s; it may be made later, if the condition still holds then", why),
	}
}

// callsOf returns the times of the calls of a watch in the last hour, for all devices that
// this node knows or knew. It is called with mu held.
func (k *Keeper) callsOf(w *watched) []int64 {
	all := slices.Clone(w.calls)
	for _, f := range w.followers {
		all = append(all, f.mark.Calls...)
	}
	slices.Sort(all)
	return slices.Compact(all) // there is at most one in a second
}

// keepCalls remembers the calls of a mark when its device is not followed. It is called with mu
// held, or before the keeper is in use.
func (w *watched) keepCalls(m *mark) {
	if len(m.Calls) > 0 {
		w.calls = append(recent(w.calls, time.Now()), m.Calls...)
		slices.Sort(w.calls)
		w.calls = slices.Compact(w.calls)
	}
}

// fire handles what is begun for an edge: the mark first, then the notice and the call.
func (k *Keeper) fire(ctx context.Context, j *firing) {
	w, e := j.f.watch, j.edge
	who, barred := k.parts.Owner(&w.Watch)
	if j.over {
		if barred == nil && k.parts.Sees(who, e.hit.Device) {
			k.notMade(j)
		}
		return
	}
	if barred == nil && !k.parts.Sees(who, e.hit.Device) { // that it was hit is not told either
		k.mu.Lock()
		defer k.mu.Unlock()
		if e.notify, e.call = false, false; j.call {
			k.idle(w)
		}
		return
	}
	changes := j.call && k.parts.Changes != nil && k.parts.Changes(w.Call)
	n, id, ok := k.begin(j, barred, changes)
	if !ok {
		return
	}
	var unsaved error
	if id != "" {
		unsaved = k.save(j.f.mark.key())
	}
	if j.notify && barred == nil {
		k.notify(w, e, n)
		k.event(n, n.fired(&w.Watch))
	}
	k.parts.Updated(w.ID)
	switch {
	case unsaved != nil:
		k.finish(j.f, e, n, ferrule.Errorf(ferrule.Denied, "not called, because it cannot be recorded: %w", unsaved).WithHint("check that the disk of the data directory is not full"))
	case id != "":
		k.work.Go(func() { k.call(ctx, j.f, e, n, who) })
	case j.call && !j.notify && j.told && barred == nil: // its notice said that it is called, or may be later
		k.report(w, e, n, outcome(time.Now().UTC(), e, w.Call, e.why))
	}
}

// begin marks an edge as fired. It returns the notice, and the ID of the call if the watch
// calls. Ok is false if the watch has changed meanwhile.
func (k *Keeper) begin(j *firing, barred error, changes bool) (n Notice, id string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, w, m, e := j.f, j.f.watch, j.f.mark, j.edge
	j.told = e.noticed
	now := time.Now().UTC()
	if k.watches[w.ID] != w || !w.live(now) {
		if j.call {
			k.idle(w)
		}
		return n, "", false
	}
	if j.call {
		if e.why = k.mayCall(f); e.why == nil && barred == nil {
			id = callID(w.ID, now)
		} else {
			k.idle(w)
		}
	}
	if barred != nil {
		e.why, e.notify, e.call = barred, false, false
	}
	if e.hit.Time.After(m.Fired) { // a call that comes later does not change which hit was the last
		m.Fired, m.Value, m.At = e.hit.Time, e.hit.Value, now
	}
	switch {
	case id != "":
		e.id = id
		m.Intent, m.Changes, m.Calls = id, changes, append(recent(m.Calls, now), seconds(now))
		m.Outcome, m.NotCalled = &Outcome{Time: now, Hit: e.stored(), Call: id, Message: "calling", MayHaveRun: true}, ""
		k.calling++
		k.byOwner[w.Owner.Account()]++
		k.shareMark(m)
	case e.id != "": // a notice that the limits held back, and not the call
	case m.Intent != "": // the outcome is that of the call under way
		m.NotCalled = notCalled(e.why)
	default:
		m.Outcome, m.NotCalled = &Outcome{Time: now, Hit: e.stored(), Message: "notified"}, ""
		if e.why != nil {
			m.Outcome = outcome(now, e, w.Call, e.why)
		}
	}
	if e.count == m.Hits && w.followers[f.device] == f { // the last hit
		m.Open = e.open() && e.id == ""
	}
	k.dirty[m.key()] = true
	return k.noticeOf(f, e), id, true
}

// noticeOf returns the notice of an edge. It is called with mu held.
func (k *Keeper) noticeOf(f *follower, e *edge) Notice {
	w, m := f.watch, f.mark
	n := Notice{Event: "watch", Watch: w.ID, Name: w.Name, Hit: e.hit, Count: m.Hits, Held: m.Held, Unsure: m.Unsure}
	n.Hit.Gaps = n.Hit.Gaps[max(0, len(n.Hit.Gaps)-maxShown):]
	if w.Call != nil {
		n.Call = w.Call.String()
		if n.Outcome = e.outcome; e.id == "" {
			n.NotCalled = notCalled(e.why)
		}
	}
	n.Text = n.text(&w.Watch)
	return n
}

// notCalled returns the reason of an error as it follows "not called".
func notCalled(why error) string {
	if why == nil {
		return ""
	}
	return strings.TrimPrefix(ferrule.OneLine(ferrule.Clean(ferrule.AsError(why).Message, ferrule.MaxText), maxMessage), "not called: ")
}

// mayCall returns why a watch must not call now. The policy decides later, in the pipeline.
// It is called with mu held.
func (k *Keeper) mayCall(f *follower) error {
	switch {
	case f.watch.followers[f.device] != f:
		return ferrule.Errorf(ferrule.Offline, "not called: %s is not at this node any more", f.device)
	case f.mark.Unsure:
		return unsure(f)
	case !f.claimed:
		return ferrule.Errorf(ferrule.Denied, "not called: other nodes do not know yet that this node evaluates the watch").WithHint("check the connection to the cluster")
	case f.watch.Owner.Role == ferrule.Agent && k.byOwner[f.watch.Owner.Account()] >= maxOwnCall:
		return ferrule.Errorf(ferrule.Limited, "not called: %d calls of watches of %s are under way", maxOwnCall, f.watch.Owner)
	case k.calling >= maxCalling:
		return ferrule.Errorf(ferrule.Limited, "not called: %d calls of watches are under way", k.calling)
	}
	return nil
}

// unsure returns why a watch does not call for what may be an edge of another node.
func unsure(f *follower) error {
	return ferrule.Errorf(ferrule.Denied, "not called: another node held %s before and may have called for the same edge", f.device).
		WithHint("check the device; the watch calls again after its condition was false")
}

// idle says that no call of a watch is under way. Edges that wait for that are tried at the next
// tick. It is called with mu held.
func (k *Keeper) idle(w *watched) {
	w.calling = false
	if now := k.watches[w.ID]; now != nil {
		now.calling = false
		for _, f := range now.followers {
			if f.edge.open() {
				f.edge.at = time.Time{}
			}
		}
	}
}

// call makes the call of an edge, once, as the owner of the watch. The ID of the call in the
// journal names the watch and the hit.
func (k *Keeper) call(ctx context.Context, f *follower, e *edge, n Notice, who ferrule.Principal) {
	w := f.watch
	_, err := k.parts.Handle(ctx, &ferrule.Call{
		ID: e.id, Principal: who, Client: ferrule.Client{Name: ferrule.WatchClient, Version: w.ID}, Device: w.Call.Device, Tool: w.Call.Tool, Args: slices.Clone(w.Call.Args),
		Progress: func(p ferrule.Progress) { k.progress(f, e, p) },
	})
	k.finish(f, e, n, err)
}

// progress shows how far a call is.
func (k *Keeper) progress(f *follower, e *edge, p ferrule.Progress) {
	text := ferrule.OneLine(ferrule.Clean(p.Text(f.watch.Call.Device), ferrule.MaxText), maxMessage)
	if p.Log != nil || text == "" {
		return
	}
	k.mu.Lock()
	changed := false
	if m := f.mark; m.Intent == e.id {
		changed = m.Outcome == nil || m.Outcome.Waiting != p.Asked || m.Outcome.Message == "calling"
		m.Outcome = &Outcome{Time: time.Now().UTC(), Hit: e.stored(), Call: e.id, Waiting: p.Asked, MayHaveRun: !p.Asked, Message: text}
	}
	k.mu.Unlock()
	if changed {
		k.parts.Updated(f.watch.ID)
	}
}

// finish records the outcome of a call, and reports it.
func (k *Keeper) finish(f *follower, e *edge, n Notice, err error) {
	w := f.watch
	k.mu.Lock()
	m := f.mark
	e.outcome = outcome(time.Now().UTC(), e, w.Call, err)
	if m.Intent == e.id {
		m.Intent, m.Outcome = "", e.outcome
	}
	k.calling--
	account := w.Owner.Account()
	if k.byOwner[account]--; k.byOwner[account] == 0 {
		delete(k.byOwner, account)
	}
	k.idle(w)
	k.dirty[m.key()] = true
	k.shareMark(m)
	if now := k.watches[w.ID]; now == nil || now.followers[f.device] == nil { // it was waited for
		k.release(f)
	}
	k.mu.Unlock()
	if failed := k.save(m.key()); failed != nil {
		k.parts.Log.Error("the outcome of a watch is not saved; after a restart its call counts as one that may have run", "watch", w.ID, "err", failed)
	}
	if err != nil {
		k.parts.Log.Warn("the call of a watch failed", "watch", w.ID, "device", w.Call.Device, "tool", w.Call.Tool, "call", e.id, "err", ferrule.AsError(err))
	}
	k.report(w, e, n, e.outcome)
	k.parts.Updated(w.ID)
}

// report sends the outcome of a call to all who got the notice of its edge.
func (k *Keeper) report(w *watched, e *edge, n Notice, o *Outcome) {
	n.Event, n.NotCalled, n.Outcome = "outcome", "", o
	n.Text = n.text(&w.Watch)
	k.notify(w, e, n)
	text := w.Name + ": the call of the watch has ended"
	if o.Code != "" {
		text = fmt.Sprintf("%s: the call of the watch failed (%s); `ferrule watch list` says why", w.Name, o.Code)
	}
	k.event(n, text)
}

// save writes a mark to the file.
func (k *Keeper) save(key string) error {
	k.saving.Lock()
	defer k.saving.Unlock()
	k.mu.Lock()
	m := k.marks[key]
	if m == nil {
		k.mu.Unlock()
		return nil
	}
	data, err := json.Marshal(m)
	delete(k.dirty, key)
	k.mu.Unlock()
	if err == nil {
		err = k.file.Put(markKey+key, json.RawMessage(data))
	}
	if err != nil {
		k.mu.Lock()
		k.dirty[key] = true
		k.mu.Unlock()
	}
	return err
}
