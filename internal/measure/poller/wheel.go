package poller

import (
	"math/bits"
	"time"
)

// The wheel advances one slot per tick, one turn in 41 seconds. A poll that is due later
// stays in its slot for several turns.
const (
	tick  = 10 * time.Millisecond
	slots = 4096
)

// wheel is a timer wheel: adding, removing and finding due polls take constant time. It is
// not safe for concurrent use.
type wheel struct {
	start    time.Time
	now      int64 // the last tick that was processed
	slots    [slots][]*poll
	occupied [slots / 64]uint64 // one bit per slot that is not empty
}

// position is the place of a poll in the wheel.
type position struct {
	tick   int64 // when it is due
	index  int   // in its slot
	queued bool
}

func newWheel(start time.Time) *wheel { return &wheel{start: start} }

// put schedules a poll, at the next tick if the time has passed.
func (w *wheel) put(p *poll, due time.Time) {
	w.take(p)
	at := int64((due.Sub(w.start) + tick - 1) / tick)
	at = max(at, w.now+1)
	slot := at % slots
	p.position = position{tick: at, index: len(w.slots[slot]), queued: true}
	w.slots[slot] = append(w.slots[slot], p)
	w.occupied[slot/64] |= 1 << (slot % 64)
}

// take removes a poll, if it is scheduled.
func (w *wheel) take(p *poll) {
	if !p.position.queued {
		return
	}
	slot := p.position.tick % slots
	all := w.slots[slot]
	last := all[len(all)-1]
	all[p.position.index] = last
	last.position.index = p.position.index
	all[len(all)-1] = nil
	w.slots[slot] = all[:len(all)-1]
	if len(all) == 1 {
		w.occupied[slot/64] &^= 1 << (slot % 64)
	}
	p.position.queued = false
}

// turn removes and returns the polls that are due, the earliest first.
func (w *wheel) turn(now time.Time) (due []*poll) {
	until := int64(now.Sub(w.start) / tick)
	for at := max(w.now, until-slots) + 1; at <= until; at++ {
		slot := at % slots
		for i := 0; i < len(w.slots[slot]); {
			p := w.slots[slot][i]
			if p.position.tick > until { // in a later turn
				i++
				continue
			}
			w.take(p) // moves another poll to index i
			due = append(due, p)
		}
	}
	w.now = max(w.now, until)
	return due
}

// next returns when turn has to be called next, and whether anything is scheduled.
func (w *wheel) next() (time.Time, bool) {
	from := w.now + 1
	first := from % slots
	for i := range int64(len(w.occupied) + 1) {
		word := (first/64 + i) % int64(len(w.occupied))
		set := w.occupied[word]
		switch i {
		case 0:
			set &= ^uint64(0) << (first % 64)
		case int64(len(w.occupied)): // the first word again, up to the start
			set &^= ^uint64(0) << (first % 64)
		}
		if set == 0 {
			continue
		}
		slot := word*64 + int64(bits.TrailingZeros64(set))
		return w.start.Add(time.Duration(from+(slot-first+slots)%slots) * tick), true
	}
	return time.Time{}, false
}
