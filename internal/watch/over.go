package watch

import (
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// giveUp ends an edge whose condition does not hold any more. Those who were told that its call may
// be made later are told that it is not. It is called with mu held.
func (k *Keeper) giveUp(f *follower) {
	e := f.edge
	if f.edge = nil; !e.open() || !e.call || !e.noticed {
		return
	}
	e.notify, e.call = false, false
	select {
	case k.firings <- &firing{f: f, edge: e, over: true}:
	default: // as for a notice that does not fit
	}
}

// notMade records and reports that the call of an edge was held back until it was too late.
func (k *Keeper) notMade(j *firing) {
	w, m, e := j.f.watch, j.f.mark, j.edge
	k.mu.Lock()
	if k.watches[w.ID] != w || e.id != "" {
		k.mu.Unlock()
		return
	}
	e.why = ferrule.Errorf(ferrule.Limited, "not called: the call was held back until the condition did not hold any more")
	o := outcome(time.Now().UTC(), e, w.Call, e.why)
	switch last := e.hit.Time.Equal(m.Fired); {
	case last && m.Intent != "":
		m.NotCalled = notCalled(e.why)
	case last:
		m.Outcome, m.NotCalled = o, ""
	}
	k.dirty[m.key()] = true
	n := k.noticeOf(j.f, e)
	k.mu.Unlock()
	k.report(w, e, n, o)
	k.parts.Updated(w.ID)
}
