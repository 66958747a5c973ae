package poller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestWheel adds and removes polls at random and compares with a map: each due poll comes
// once, at its tick, and next announces it.
func TestWheel(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newWheel(start)
	rnd := rand.New(rand.NewPCG(1, 2))
	want := make(map[*poll]time.Time) // when each is due
	now, came := start, 0
	for range 20_000 {
		switch rnd.IntN(3) {
		case 0:
			p := &poll{}
			due := now.Add(time.Duration(rnd.ExpFloat64()*float64(20*time.Second)) - time.Second)
			w.put(p, due)
			want[p] = due
		case 1:
			for p := range want {
				if rnd.IntN(2) == 0 {
					w.take(p)
					w.take(p) // no effect
					delete(want, p)
				} else {
					due := now.Add(time.Duration(rnd.IntN(100)) * time.Second)
					w.put(p, due)
					want[p] = due
				}
				break
			}
		case 2:
			next, any := w.next()
			if any != (len(want) > 0) {
				t.Fatalf("next reports %t with %d polls", any, len(want))
			}
			if !any {
				continue
			}
			for _, due := range want {
				if due.Before(next.Add(-tick)) && due.After(now) {
					t.Fatalf("a poll is due at %v, but next is %v", due, next)
				}
			}
			if now = next; rnd.IntN(50) == 0 { // turn is called late
				now = now.Add(time.Duration(rnd.IntN(100)) * time.Second)
			}
			for _, p := range w.turn(now) {
				due, known := want[p]
				if !known || due.After(now) {
					t.Fatalf("due at %v, returned at %v; scheduled: %t", due, now, known)
				}
				delete(want, p)
				came++
			}
			for _, due := range want {
				if due.Before(now.Add(-tick)) {
					t.Fatalf("due at %v, not returned by %v", due, now)
				}
			}
		}
	}
	if came < 1000 {
		t.Errorf("only %d polls were due", came)
	}
}

// TestWheelOrder checks that polls come in the order of their times.
func TestWheelOrder(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newWheel(start)
	all := []*poll{{}, {}, {}}
	for i, after := range []time.Duration{50 * time.Second, 10 * time.Second, 10*time.Second + tick} {
		w.put(all[i], start.Add(after))
	}
	if got := w.turn(start.Add(9 * time.Second)); got != nil {
		t.Errorf("%d polls, want none", len(got))
	}
	if next, any := w.next(); !any || next.After(start.Add(10*time.Second)) {
		t.Errorf("next is %v", next)
	}
	if got := w.turn(start.Add(11 * time.Second)); !slices.Equal(got, all[1:]) {
		t.Errorf("%d polls, or in the wrong order", len(got))
	}
	if got := w.turn(start.Add(50 * time.Second)); !slices.Equal(got, all[:1]) {
		t.Errorf("%d polls, want 1", len(got))
	}
	if _, any := w.next(); any {
		t.Error("the wheel is not empty")
	}
}

func TestPause(t *testing.T) {
	for _, test := range []struct {
		every time.Duration
		fails int
		want  time.Duration
	}{
		{time.Second, 0, time.Second},
		{time.Second, 1, 2 * time.Second},
		{time.Second, 3, 8 * time.Second},
		{time.Second, 7, maxPause},
		{time.Second, 1_000_000, maxPause},
		{time.Hour, 5, time.Hour},
	} {
		if got := pause(test.every, test.fails); got != test.want {
			t.Errorf("%v, %d times: %v, want %v", test.every, test.fails, got, test.want)
		}
	}
	for range 1000 {
		if got := jitter(time.Second); got < 950*time.Millisecond || got > 1050*time.Millisecond {
			t.Errorf("a second varies to %v", got)
		}
	}
}
