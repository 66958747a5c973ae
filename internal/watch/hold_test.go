package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// door polls a state, seconds apart. A state that had to hold for a time is known to have held
// when the next poll says that it has ended.
func (s *site) door(seconds int, states ...float64) {
	for _, v := range states {
		time.Sleep(time.Duration(seconds) * time.Second)
		now := time.Now()
		s.keeper.Measured(ferrule.Reading{Device: "door", Node: s.node, Poll: "p", Time: now, Batches: []ferrule.SampleBatch{
			{Signal: "open", State: true, Samples: []ferrule.Sample{{Time: now, Value: v}}},
		}})
	}
	time.Sleep(time.Second) // of the fake clock
	synctest.Wait()
}

func openFor(d time.Duration) func(*Settings) {
	return func(in *Settings) {
		open := 1.0
		in.Condition = condition.Condition{Device: "door", Signal: "open", Equals: &open, For: ferrule.Duration(d)}
		in.Every = 10 * time.Minute
	}
}

// TestHeldAcrossRestart checks that a state that held before a restart, and until the second
// sample after it, is one edge.
func TestHeldAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		s.attach("door")
		s.set(maria, openFor(5*time.Second))
		s.door(10, 0, 1, 1)
		s.want(1, 1)
		s.stop()
		time.Sleep(time.Hour) // past the limits
		s.start()
		defer s.stop()
		s.attach("door")
		s.door(10, 1, 0)
		s.want(1, 1)
		s.door(10, 1, 1) // the next edge
		s.want(2, 2)
	})
}

// TestClearedBySameSample checks that a hit that the limits hold back does not fire if the
// sample that proves it also says that the condition does not hold any more.
func TestClearedBySameSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer s.stop()
		s.attach("door")
		id := s.set(maria, openFor(5*time.Second)).ID
		s.door(10, 0, 1, 1, 0)
		s.want(1, 1)
		s.door(10, 1, 0) // an edge within the limits of the first, and over
		if w := s.state(id); w.Hits != 2 || w.Held != 1 || len(w.Active) != 0 {
			t.Errorf("%d hits, %d held, active %v; want 2, 1 and none", w.Hits, w.Held, w.Active)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s.want(1, 1)
	})
}
