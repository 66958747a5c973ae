package poller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestWheel puts things in and takes them out at random, and compares with a list: what
// is due comes once, at its tick, and the wheel knows when.
func TestWheel(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newWheel(start)
	rnd := rand.New(rand.NewPCG(1, 2))
	want := make(map[*probe]time.Time) // when each is due
	now, came := start, 0
	for range 20_000 {
		switch rnd.IntN(3) {
		case 0:
			p := &probe{}
			due := now.Add(time.Duration(rnd.ExpFloat64()*float64(20*time.Second)) - time.Second)
			w.put(p, due)
			want[p] = due
		case 1:
			for p := range want {
				if rnd.IntN(2) == 0 {
					w.take(p)
					w.take(p) // which does nothing
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
				t.Fatalf("it says %t, and there are %d", any, len(want))
			}
			if !any {
				continue
			}
			for p, due := range want {
				if due.Before(next.Add(-tick)) && due.After(now) {
					t.Fatalf("%v is due, and it looks at %v", p.due, next)
				}
			}
			if now = next; rnd.IntN(50) == 0 { // it slept for longer
				now = now.Add(time.Duration(rnd.IntN(100)) * time.Second)
			}
			for _, p := range w.turn(now) {
				due, known := want[p]
				if !known || due.After(now) {
					t.Fatalf("due at %v came at %v; known: %t", due, now, known)
				}
				delete(want, p)
				came++
			}
			for _, due := range want {
				if due.Before(now.Add(-tick)) {
					t.Fatalf("due at %v has not come by %v", due, now)
				}
			}
		}
	}
	if came < 1000 {
		t.Errorf("it tested little: %d came", came)
	}
}

// TestWheelOrder: what is due earlier comes earlier.
func TestWheelOrder(t *testing.T) {
	start := time.Unix(1000, 0)
	w := newWheel(start)
	all := []*probe{{}, {}, {}}
	for i, after := range []time.Duration{50 * time.Second, 10 * time.Second, 10*time.Second + tick} {
		w.put(all[i], start.Add(after))
	}
	if got := w.turn(start.Add(9 * time.Second)); got != nil {
		t.Errorf("%d came", len(got))
	}
	if next, any := w.next(); !any || next.After(start.Add(10*time.Second)) {
		t.Errorf("it looks at %v", next)
	}
	if got := w.turn(start.Add(11 * time.Second)); !slices.Equal(got, all[1:]) {
		t.Errorf("%d came, or in another order", len(got))
	}
	if got := w.turn(start.Add(50 * time.Second)); !slices.Equal(got, all[:1]) {
		t.Errorf("%d came", len(got))
	}
	if _, any := w.next(); any {
		t.Error("something is left")
	}
}

func TestLateness(t *testing.T) {
	var c counts
	for range 98 {
		c.lateBy(3 * time.Millisecond)
	}
	c.lateBy(-time.Second) // earlier is not late
	c.lateBy(150 * time.Millisecond)
	s := (&Poller{}).Stats()
	if s.Late.Quantile(0.99) != 0 {
		t.Errorf("of none: %v", s.Late.Quantile(0.99))
	}
	for i := range c.late {
		s.Late.Counts[i] = c.late[i].Load()
	}
	for share, want := range map[float64]time.Duration{0.5: 5 * time.Millisecond, 0.99: 5 * time.Millisecond, 1: 200 * time.Millisecond} {
		if got := s.Late.Quantile(share); got != want {
			t.Errorf("%v are no later than %v, want %v", share, got, want)
		}
	}
	c.lateBy(time.Hour)
	s.Late.Counts[len(LateBounds)] = c.late[len(LateBounds)].Load()
	if got := s.Late.Quantile(1); got != 10*time.Second {
		t.Errorf("the last was later than %v", got)
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
		{time.Second, 7, longest},
		{time.Second, 1_000_000, longest},
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
