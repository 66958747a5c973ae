package poller

import (
	"math/bits"
	"time"
)

// The wheel turns one slot in a tick, and once in 41 seconds. What is due later stays in
// its slot for so many turns.
const (
	tick  = 10 * time.Millisecond
	slots = 4096
)

// wheel holds what is to be done at which time. To put something in, to take it out and
// to find what is due costs the same however much there is. It is not safe for use by
// several goroutines.
type wheel struct {
	start time.Time
	now   int64 // the last tick that has been looked at
	slots [slots][]*probe
	full  [slots / 64]uint64 // a bit for each slot in which there is something
}

// hand is where something is in the wheel.
type hand struct {
	at    int64 // the tick at which it is due
	place int   // in its slot
	in    bool
}

func newWheel(start time.Time) *wheel { return &wheel{start: start} }

// put has a probe be due at a time, or with the next tick if that has passed.
func (w *wheel) put(p *probe, due time.Time) {
	w.take(p)
	at := int64((due.Sub(w.start) + tick - 1) / tick)
	at = max(at, w.now+1)
	slot := at % slots
	p.hand = hand{at: at, place: len(w.slots[slot]), in: true}
	w.slots[slot] = append(w.slots[slot], p)
	w.full[slot/64] |= 1 << (slot % 64)
}

// take takes a probe out, if it is in.
func (w *wheel) take(p *probe) {
	if !p.hand.in {
		return
	}
	slot := p.hand.at % slots
	all := w.slots[slot]
	last := all[len(all)-1]
	all[p.hand.place] = last
	last.hand.place = p.hand.place
	all[len(all)-1] = nil
	w.slots[slot] = all[:len(all)-1]
	if len(all) == 1 {
		w.full[slot/64] &^= 1 << (slot % 64)
	}
	p.hand.in = false
}

// turn takes out all that is due by now, the earliest first.
func (w *wheel) turn(now time.Time) (due []*probe) {
	until := int64(now.Sub(w.start) / tick)
	for at := max(w.now, until-slots) + 1; at <= until; at++ {
		slot := at % slots
		for i := 0; i < len(w.slots[slot]); {
			p := w.slots[slot][i]
			if p.hand.at > until { // another turn of the wheel
				i++
				continue
			}
			w.take(p) // and another is in its place
			due = append(due, p)
		}
	}
	w.now = max(w.now, until)
	return due
}

// next is when there is something to look at again; false if there is nothing.
func (w *wheel) next() (time.Time, bool) {
	from := w.now + 1
	first := from % slots
	for i := range int64(len(w.full) + 1) {
		word := (first/64 + i) % int64(len(w.full))
		set := w.full[word]
		switch i {
		case 0:
			set &= ^uint64(0) << (first % 64)
		case int64(len(w.full)): // it is the first again, up to where it began
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
