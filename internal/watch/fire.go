package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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

// firing is a hit that fires.
type firing struct {
	f      *follower
	hit    condition.Hit
	notify bool
	call   bool
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
	k.dirty[m.key()] = true
	k.limit(f, hit)
}

// limit fires a hit, or holds it back. What is held back fires later if the condition still
// holds then. It is called with mu held.
func (k *Keeper) limit(f *follower, hit condition.Hit) {
	w, now := f.watch, time.Now()
	j := &firing{f: f, hit: hit}
	var notifyAt, callAt time.Time
	notifyAt = w.next(f.notified, now)
	j.notify = !notifyAt.After(now)
	if w.Call != nil {
		callAt = w.next(k.callsOf(w), now)
		j.call = !callAt.After(now) && !w.calling
		if w.calling {
			callAt = now.Add(time.Second)
		}
	}
	if w.Call != nil && !j.call || !j.notify {
		f.mark.Held++
		k.dirty[f.mark.key()] = true
		if level(&w.Condition) && !f.mark.Unsure && !j.call { // one edge, one call: its notice is not worth a second
			f.late, f.lateAt = &hit, notifyAt
			if w.Call != nil {
				f.lateAt = callAt
			}
			k.timed[f] = true
		}
	}
	if w.Call != nil && !j.call {
		j.notify = j.notify && f.late == nil // the notice comes with the call
	}
	if !j.notify && !j.call {
		return
	}
	select {
	case k.firings <- j:
	default:
		f.mark.Held++
		return
	}
	if j.notify {
		f.notified = append(recent(f.notified, now), seconds(now))
	}
	if j.call {
		w.calling = true
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

// fire handles one hit: the mark first, then notices and the call.
func (k *Keeper) fire(ctx context.Context, j *firing) {
	w := j.f.watch
	who, barred := k.parts.Owner(&w.Watch)
	if barred == nil && !k.parts.Sees(who, j.hit.Device) { // that it was hit is not told either
		if j.call {
			k.mu.Lock()
			k.idle(w)
			k.mu.Unlock()
		}
		return
	}
	n, id, ok := k.begin(j, barred)
	if !ok {
		return
	}
	if id != "" {
		if err := k.save(j.f.mark.key()); err != nil {
			k.finish(j.f, id, ferrule.Errorf(ferrule.Denied, "not called, because it cannot be recorded: %w", err).WithHint("check that the disk of the data directory is not full"))
			id = ""
		}
	}
	if j.notify && barred == nil {
		k.notify(w, n)
		k.event(n, n.fired(&w.Watch))
	}
	k.parts.Updated(w.ID)
	if id != "" {
		k.work.Go(func() { k.call(ctx, j.f, who, id) })
	}
}

// begin marks a hit as fired. It returns the notice, and the ID of the call if the watch
// calls. Ok is false if the watch has changed meanwhile.
func (k *Keeper) begin(j *firing, barred error) (n Notice, id string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, w, m := j.f, j.f.watch, j.f.mark
	if k.watches[w.ID] != w || !w.live(time.Now()) {
		if j.call {
			k.idle(w)
		}
		return n, "", false
	}
	m.Fired, m.Value, m.At = j.hit.Time, j.hit.Value, time.Now().UTC()
	m.Outcome = &Outcome{Time: m.At, Message: "notified"}
	err := barred
	if w.Call != nil && err == nil {
		if err = k.mayCall(f); err == nil && !j.call {
			err = ferrule.Errorf(ferrule.Limited, "not called: the limits of the watch hold the call back")
		}
	}
	switch {
	case err != nil:
		m.Outcome = outcome(m.At, "", err)
	case j.call:
		id = "watch-" + w.ID + "-" + strconv.FormatInt(m.At.UnixMicro(), 36)
		m.Intent, m.Calls = id, append(recent(m.Calls, m.At), seconds(m.At))
		m.Outcome = &Outcome{Time: m.At, Call: id, Message: "calling", MayHaveRun: true}
		k.calling++
		k.byOwner[w.Owner.Account()]++
		k.shareMark(m)
	}
	if j.call && id == "" {
		k.idle(w)
	}
	k.dirty[m.key()] = true
	n = Notice{Event: "watch", Watch: w.ID, Name: w.Name, Hit: j.hit, Count: m.Hits, Held: m.Held, Unsure: f.mark.Unsure}
	n.Hit.Gaps = n.Hit.Gaps[max(0, len(n.Hit.Gaps)-maxShown):]
	if w.Call != nil {
		n.Call = w.Call.String()
		if id == "" {
			n.NotCalled = strings.TrimPrefix(m.Outcome.Message, "not called: ")
		}
	}
	n.Text = n.text(&w.Watch)
	return n, id, true
}

// mayCall returns why a watch must not call now. The policy decides later, in the pipeline.
// It is called with mu held.
func (k *Keeper) mayCall(f *follower) error {
	switch {
	case f.watch.followers[f.device] != f:
		return ferrule.Errorf(ferrule.Offline, "not called: %s is not at this node any more", f.device)
	case f.mark.Unsure:
		return ferrule.Errorf(ferrule.Denied, "not called: another node held %s before and may have called for the same edge", f.device).
			WithHint("check the device; the watch calls again after its condition was false")
	case !f.claimed:
		return ferrule.Errorf(ferrule.Denied, "not called: other nodes do not know yet that this node evaluates the watch").WithHint("check the connection to the cluster")
	case f.watch.Owner.Role == ferrule.Agent && k.byOwner[f.watch.Owner.Account()] >= maxOwnCall:
		return ferrule.Errorf(ferrule.Limited, "not called: %d calls of watches of %s are under way", maxOwnCall, f.watch.Owner)
	case k.calling >= maxCalling:
		return ferrule.Errorf(ferrule.Limited, "not called: %d calls of watches are under way", k.calling)
	}
	return nil
}

// idle says that no call of a watch is under way. It is called with mu held.
func (k *Keeper) idle(w *watched) {
	w.calling = false
	if now := k.watches[w.ID]; now != nil {
		now.calling = false
	}
}

// call makes the call of a watch, once, as its owner. The ID of the call in the journal
// names the watch and the hit.
func (k *Keeper) call(ctx context.Context, f *follower, who ferrule.Principal, id string) {
	w := f.watch
	_, err := k.parts.Handle(ctx, &ferrule.Call{
		ID: id, Principal: who, Client: ferrule.Client{Name: ferrule.WatchClient, Version: w.ID}, Device: w.Call.Device, Tool: w.Call.Tool, Args: slices.Clone(w.Call.Args),
		Progress: func(p ferrule.Progress) { k.waiting(f, id, p) },
	})
	k.finish(f, id, err)
}

// waiting shows what a call waits for.
func (k *Keeper) waiting(f *follower, id string, p ferrule.Progress) {
	k.mu.Lock()
	first := false
	if m := f.mark; m.Intent == id && p.Log == nil {
		first = m.Outcome == nil || !m.Outcome.Waiting
		m.Outcome = &Outcome{Time: m.At, Call: id, Waiting: true, Message: ferrule.OneLine(ferrule.Clean(p.Message, ferrule.MaxText), maxMessage)}
	}
	k.mu.Unlock()
	if first {
		k.parts.Updated(f.watch.ID)
	}
}

// finish records the outcome of a call.
func (k *Keeper) finish(f *follower, id string, err error) {
	k.mu.Lock()
	m := f.mark
	if m.Intent == id {
		m.Intent, m.Outcome = "", outcome(time.Now().UTC(), id, err)
	}
	k.calling--
	account := f.watch.Owner.Account()
	if k.byOwner[account]--; k.byOwner[account] == 0 {
		delete(k.byOwner, account)
	}
	k.idle(f.watch)
	k.dirty[m.key()] = true
	k.shareMark(m)
	if f.watch.followers[f.device] != f { // it was waited for
		k.release(f)
	}
	k.mu.Unlock()
	if failed := k.save(m.key()); failed != nil {
		k.parts.Log.Error("the outcome of a watch is not saved; after a restart its call counts as one that may have run", "watch", f.watch.ID, "err", failed)
	}
	if err != nil {
		e := ferrule.AsError(err)
		k.event(Notice{Event: "outcome", Watch: f.watch.ID, Name: f.watch.Name, Hit: condition.Hit{Device: f.device}},
			fmt.Sprintf("%s: the call of the watch failed (%s); `ferrule watch list` says why", f.watch.Name, e.Code))
		k.parts.Log.Warn("the call of a watch failed", "watch", f.watch.ID, "device", f.watch.Call.Device, "tool", f.watch.Call.Tool, "call", id, "err", e)
	}
	k.parts.Updated(f.watch.ID)
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
