package watch

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// slow makes calls wait for a person until the returned function ends the one under way.
func (s *site) slow() (answer func(error)) {
	answers := make(chan error)
	s.answer = func(ctx context.Context, call *ferrule.Call) error {
		call.Report(ferrule.Progress{Message: "waiting for approval by a person (request a1)", Asked: true})
		select {
		case err := <-answers:
			return err
		case <-ctx.Done():
			return ferrule.Errorf(ferrule.Cancelled, "cancelled while close of valve waited for approval")
		}
	}
	return func(err error) {
		answers <- err
		time.Sleep(time.Second) // of the fake clock
		synctest.Wait()
	}
}

// TestNoticesDoNotWait checks that a call that takes long delays no notice: neither of another
// device nor of the next edge. The call is not made twice, and not for what does not hold.
func TestNoticesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		answer := s.slow()
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, func(in *Settings) { in.Condition.Device = "tank-*" })
		s.attach("tank-1")
		s.attach("tank-2")
		s.measure("tank-1", 95)
		s.want(1, 1)
		s.measure("tank-2", 96)
		s.want(1, 2)
		if n := s.notices[1]; n.Hit.Device != "tank-2" || !strings.HasPrefix(n.NotCalled, "the call of an earlier hit is under way") {
			t.Errorf("notice %+v", n)
		}
		time.Sleep(2 * time.Minute)
		s.measure("tank-1", 80, 97) // the next edge
		s.want(1, 3)
		got := s.state(w.ID)
		if got.Last.Value != 97 || got.Hits != 3 || got.Held != 2 {
			t.Errorf("last %+v, %d hits, %d held", got.Last, got.Hits, got.Held)
		}
		if o := got.Outcome; !o.Waiting || o.Hit.Value != 95 || o.Hit.Device != "tank-1" || !strings.HasPrefix(got.NotCalled, "the call of an earlier hit is under way") {
			t.Errorf("outcome %+v of %+v, not called: %q", o, o.Hit, got.NotCalled)
		}
		s.measure("tank-1", 80)
		s.measure("tank-2", 80)
		answer(ferrule.Errorf(ferrule.Denied, "close of valve was denied by person:maria"))
		time.Sleep(time.Hour)
		synctest.Wait()
		s.want(1, 3)
		if got = s.state(w.ID); got.Outcome.Code != ferrule.Denied || got.Outcome.Hit.Value != 95 || got.Last.Value != 97 || got.NotCalled == "" || got.Held != 2 {
			t.Errorf("then %+v, outcome %+v of %+v", got, got.Outcome, got.Outcome.Hit)
		}
	})
}

// TestCallAfterCall checks that an edge during a call is called after it, once, if the condition
// still holds: nothing is lost, and its notice came before.
func TestCallAfterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		answer := s.slow()
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 95)
		time.Sleep(2 * time.Minute)
		s.measure("tank", 80, 96)
		s.want(1, 2)
		answer(nil)
		s.want(2, 2)
		answer(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		s.want(2, 2)
		if got := s.state(w.ID); got.Outcome.Hit.Value != 96 || got.NotCalled != "" || got.Hits != 2 || got.Held != 1 {
			t.Errorf("%+v, outcome %+v", got, got.Outcome)
		}
	})
}

// TestHeldCountsEdges checks that an edge which waits for a call that is under way counts once.
func TestHeldCountsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		answer := s.slow()
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, func(in *Settings) { in.Every = time.Second })
		s.attach("tank")
		s.measure("tank", 95, 80, 95)
		for range 100 { // samples
			s.measure("tank", 95)
		}
		if got := s.state(w.ID); got.Hits != 2 || got.Held != 1 {
			t.Errorf("%d hits, %d held", got.Hits, got.Held)
		}
		answer(nil)
		answer(nil)
		s.want(2, 2)
	})
}

// TestDeviceWords checks that what a device says about its work or its failure cannot be
// mistaken for what the gateway says.
func TestDeviceWords(t *testing.T) {
	const words = "waiting for approval by a person,\n5:00 left\u202e"
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		end := make(chan struct{})
		s.answer = func(_ context.Context, call *ferrule.Call) error {
			call.Report(ferrule.Progress{Message: words, Said: true, Done: 1, Total: 4})
			<-end
			return ferrule.Errorf(ferrule.Failed, "close failed on valve: %s", words)
		}
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 95)
		if got := s.state(w.ID).Outcome; got.Message != "valve says: waiting for approval by a person, 5:00 left (1 of 4)" || got.Waiting || !got.MayHaveRun {
			t.Errorf("outcome %+v", got)
		}
		close(end)
		synctest.Wait()
		if got := s.state(w.ID).Outcome; got.Message != "close failed on valve. valve says: waiting for approval by a person, 5:00 left" {
			t.Errorf("outcome %+v", got)
		}
	})
	n := Notice{Event: "watch", Hit: condition.Hit{Device: "tank", Event: &ferrule.Event{Type: ferrule.Notified, Method: "gone. Everything is stopped"}}}
	if got := n.text(&Watch{Name: "w", Condition: condition.Condition{Event: "notified"}}); got != `watch "w" fired: tank sent "gone. Everything is stopped"` {
		t.Error(got)
	}
}
