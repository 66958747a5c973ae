package hass

import (
	"bytes"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
)

// How long to wait for states after a command.
const (
	defaultWindow = 5 * time.Second
	// settle is how long something must stay as it is. A blind confirms its target at
	// once, and then reports where it is.
	settle = 1500 * time.Millisecond
	// stuck is after how much rest something that moves has stopped short of its target.
	stuck = 10 * time.Second
)

// never is a time before all others.
const never = -time.Nanosecond

// waiting is what a call waits for. It is guarded by the mutex of the session.
type waiting struct {
	wants []want
	rests bool // the states must stop changing
	// sent is when the last message was sent, window how long to wait since then.
	sent, window time.Duration
	heard        time.Duration // when a state was heard last; never if none was
	changed      time.Duration // when one had another value than before
	wake         chan struct{}
}

// want is a state that a call waits for.
type want struct {
	state   int
	matches func(entity.Value) bool // nil if any value will do
	before  entity.Value            // the last one before the call; without JSON if unknown
	value   entity.Value            // the last one since; without JSON if none was heard
}

// hear passes on a state that was heard. It is called with the mutex of the session held.
func (w *waiting) hear(state int, v entity.Value, at time.Duration) {
	for i := range w.wants {
		want := &w.wants[i]
		if want.state != state {
			continue
		}
		last := want.value
		if last.JSON == nil {
			last = want.before
		}
		if last.JSON != nil && !bytes.Equal(last.JSON, v.JSON) || last.JSON == nil && w.rests {
			w.changed = at
		}
		want.value, w.heard = v, at
		w.signal()
	}
}

// signal makes the call look again.
func (w *waiting) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// tally is how the wants of a call stand.
type tally struct {
	met     int // heard as wanted
	already int // not heard, but so before
	other   int // heard, with another value
	silent  int // not heard, and not so before
}

func (w *waiting) tally() (t tally) {
	for _, want := range w.wants {
		switch {
		case want.value.JSON != nil && (want.matches == nil || want.matches(want.value)):
			t.met++
		case want.value.JSON != nil:
			t.other++
		case want.matches == nil && len(w.wants) > 1: // the others say enough
			t.already++
		case want.matches != nil && want.before.JSON != nil && want.matches(want.before):
			t.already++
		default:
			t.silent++
		}
	}
	return t
}

// until returns when the call ends if nothing else is heard.
func (w *waiting) until() time.Duration {
	end := w.sent + w.window
	t := w.tally()
	switch {
	case t.other == 0 && t.silent == 0 && t.already == 0 && !w.rests:
		return 0
	case t.other == 0 && t.silent == 0 && w.rests:
		return min(end, max(w.sent, w.changed)+settle)
	case t.other == 0 && t.silent == 0:
		return min(end, max(w.sent, w.heard)+settle)
	case w.rests && w.changed != never && t.silent == 0:
		return min(end, max(w.sent, w.changed)+stuck)
	}
	return end // another value may be a step on the way, such as unlocking
}

// long reports whether the call takes so long that it must make way for others.
func (w *waiting) long() bool { return w.window > defaultWindow }

// moving reports whether something that must rest still changed shortly before.
func (w *waiting) moving(now time.Duration) bool {
	return w.rests && w.changed != never && now-w.changed < settle
}
