package watch

import (
	"context"
	"encoding/json"
	"fmt"
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
		if n := s.notices[1]; n.Hit.Device != "tank-2" || !strings.HasPrefix(n.NotCalled, "the call of an earlier hit is under way") || n.Outcome != nil {
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
		var of []string
		for _, n := range s.reports {
			of = append(of, fmt.Sprint(n.Hit.Value, n.Outcome.Message))
		}
		if text := strings.Join(of, ", "); text != "95called, 96called" {
			t.Errorf("outcomes %s", text)
		}
		if got := s.state(w.ID); got.Outcome.Hit.Value != 96 || got.NotCalled != "" || got.Hits != 2 || got.Held != 1 {
			t.Errorf("%+v, outcome %+v", got, got.Outcome)
		}
	})
}

// TestCallTooLate checks that those who were told that a call may be made later are told that it is
// not, once the condition does not hold any more.
func TestCallTooLate(t *testing.T) {
	const text = `It has not called close of valve {"port":1}: the call was held back until the condition did not hold any more. Nothing was sent.`
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
		if n := s.notices[1]; !strings.HasSuffix(n.Text, "it may be made later, if the condition still holds then") {
			t.Errorf("notice %q", n.Text)
		}
		s.measure("tank", 80, 97, 80) // the second edge has no notice, so it needs no outcome
		if len(s.reports) != 1 || s.reports[0].Hit.Value != 96 || !strings.HasSuffix(s.reports[0].Text, text) {
			t.Fatalf("reports %+v", s.reports)
		}
		answer(nil)
		s.want(1, 2)
		if got := s.state(w.ID); len(s.reports) != 2 || got.Outcome.Hit.Value != 95 || got.Last.Value != 96 || !strings.HasPrefix(got.NotCalled, "the call was held back until") {
			t.Errorf("%d reports, outcome %+v, last %+v, not called: %q", len(s.reports), got.Outcome, got.Last, got.NotCalled)
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

// TestOutcomeIsReported checks that no notice says that something was called before that is
// known, and that all who were told about the edge are told what became of the call.
func TestOutcomeIsReported(t *testing.T) {
	const fired = `watch "tank full" fired: level of tank is 95 (above 90). It tries to call close of valve {"port":1}; the outcome follows`
	for name, test := range map[string]struct {
		err  error
		text string
	}{
		"called":   {nil, `It has called close of valve {"port":1}.`},
		"stopped":  {ferrule.Errorf(ferrule.Denied, "everything is stopped"), `It has not called close of valve {"port":1}: everything is stopped. Nothing was sent.`},
		"refused":  {ferrule.Errorf(ferrule.Refused, "valve refused close: jammed"), `The call of close of valve {"port":1} failed: valve refused close. valve says: jammed. The device refused; the action did not run.`},
		"failed":   {ferrule.Errorf(ferrule.Failed, "close failed on valve: jammed"), `The call of close of valve {"port":1} failed: close failed on valve. valve says: jammed. The device reported an error; the action may be partly done.`},
		"silent":   {ferrule.Errorf(ferrule.Unanswered, "valve did not answer"), `The call of close of valve {"port":1} failed: valve did not answer. The action may have run.`},
		"no space": {nil, "cannot be recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.answer = func(context.Context, *ferrule.Call) error { return test.err }
				s.start()
				defer func() { s.stop() }()
				var told []Notice
				s.keeper.parts.Send[Webhook] = func(_ context.Context, n Notice) error {
					if n.Event == "watch" {
						time.Sleep(100 * time.Millisecond) // the outcome does not overtake it
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					told = append(told, n)
					return nil
				}
				s.set(maria, nil)
				s.attach("tank")
				if name == "no space" {
					s.keeper.file.Close()
				}
				s.measure("tank", 95)
				if len(told) != 2 || told[0].Event != "watch" || told[0].Text != fired || told[0].Outcome != nil {
					t.Fatalf("told %+v", told)
				}
				n := told[1]
				if n.Event != "outcome" || !strings.Contains(n.Text, test.text) || n.Hit.Value != 95 || n.Outcome == nil || n.Outcome.MayHaveRun != (test.err != nil && ferrule.AsError(test.err).MayHaveRun()) {
					t.Errorf("outcome %+v, %+v", n, n.Outcome)
				}
				if len(s.events) != 2 {
					t.Fatalf("events %+v", s.events)
				}
				var public Notice
				if err := json.Unmarshal(s.events[1].Params, &public); err != nil || public.Event != "outcome" || public.Outcome == nil || public.Outcome.Code != n.Outcome.Code || public.Outcome.Message != "" {
					t.Errorf("event %s, %v", s.events[1].Params, err)
				}
			})
		})
	}
}

// TestLateNotice checks what the notice says that the limits hold back longer than the call:
// what is known by then.
func TestLateNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.start()
		defer func() { s.stop() }()
		s.set(maria, nil)
		s.attach("tank")
		s.mu.Lock()
		s.barred = ferrule.Errorf(ferrule.Denied, "may not log in")
		s.mu.Unlock()
		s.measure("tank", 95) // uses up the notice
		s.mu.Lock()
		s.barred = nil
		s.mu.Unlock()
		s.measure("tank", 10, 96)
		s.want(1, 0)
		if len(s.reports) != 1 || s.reports[0].Hit.Value != 96 {
			t.Fatalf("outcomes %+v", s.reports)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want(1, 1)
		if n := s.notices[0]; n.Hit.Value != 96 || !strings.HasSuffix(n.Text, `It has called close of valve {"port":1}.`) || n.NotCalled != "" {
			t.Errorf("notice %+v", n)
		}
	})
}

// TestRestartReports checks that a call which a crash interrupted is reported, once, as what
// is known about it, and is not repeated.
func TestRestartReports(t *testing.T) {
	for name, test := range map[string]struct {
		known error
		text  string
	}{
		"not sent": {ferrule.Errorf(ferrule.Cancelled, "the gateway stopped before close was sent to valve"), "the gateway stopped before close was sent to valve; the watch does not call again for the same edge. Nothing was sent."},
		"unknown":  {ferrule.Errorf(ferrule.Unanswered, "its outcome is not known"), "The action may have run."},
		"called":   {nil, "It has called close of valve"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.slow()
				s.start()
				w := s.set(claude, nil)
				s.attach("tank")
				s.measure("tank", 95)
				time.Sleep(90 * time.Second)
				s.measure("tank", 80, 96) // its hit is the last one
				s.want(1, 2)
				s.crash()
				s.reports = nil
				var asked []LostCall
				s.lost = func(_ context.Context, calls []LostCall) []error {
					asked = calls
					return []error{test.known}
				}
				for range 2 {
					s.start()
					s.attach("tank")
					s.measure("tank", 80) // the call that was held back is not needed any more
					s.want(1, 2)
					s.stop()
				}
				if len(asked) != 1 || asked[0].ID != s.calls[0].ID || asked[0].Device != "valve" || asked[0].Tool != "close" || !asked[0].Changes || !asked[0].Began.Equal(calledAt(t, s.calls[0])) {
					t.Errorf("asked about %+v", asked)
				}
				if len(s.reports) != 1 || !strings.Contains(s.reports[0].Text, test.text) || s.reports[0].Hit.Value != 95 {
					t.Errorf("reports %+v", s.reports)
				}
				s.start()
				defer func() { s.stop() }()
				if got := s.state(w.ID); got.Outcome.Hit.Value != 95 || got.Last.Value != 96 || got.Outcome.MayHaveRun != (name == "unknown") {
					t.Errorf("outcome %+v, last %+v", got.Outcome, got.Last)
				}
			})
		})
	}
}

// TestOpenAcrossInterruptions checks that a notice and a call that the limits hold back are not
// lost if evaluation is interrupted, and are made once.
func TestOpenAcrossInterruptions(t *testing.T) {
	for name, interrupt := range map[string]func(s *site, id string){
		"stop":  func(s *site, _ string) { s.stop(); s.start(); s.attach("tank") },
		"crash": func(s *site, _ string) { s.crash(); s.start(); s.attach("tank") },
		"device away": func(s *site, _ string) {
			s.keeper.Devices().Remove("tank")
			s.attach("tank")
		},
		"watch changed": func(s *site, id string) { s.set(claude, func(in *Settings) { in.ID, in.Name = id, "full" }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t).start()
				defer func() { s.stop() }()
				w := s.set(claude, nil)
				s.attach("tank")
				s.measure("tank", 95)
				s.measure("tank", 80, 96)
				s.want(1, 1)
				interrupt(s, w.ID)
				for range 2 {
					s.measure("tank", 97)
					time.Sleep(2 * time.Minute)
					s.want(2, 2)
					interrupt(s, w.ID)
				}
				if got := s.state(w.ID); got.Hits != 2 || len(got.Active) != 1 {
					t.Errorf("%d hits, active %v", got.Hits, got.Active)
				}
			})
		})
	}
}

// TestStopReports checks that the outcome of a call that ends because the gateway stops is
// delivered.
func TestStopReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.slow()
		s.start()
		s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 95)
		s.stop()
		if len(s.reports) != 1 || s.reports[0].Outcome.Code != ferrule.Cancelled || s.reports[0].Outcome.MayHaveRun {
			t.Errorf("reports %+v", s.reports)
		}
	})
}

// TestChangeDuringCall checks that the outcome of a call is not lost when its watch is changed
// while it is under way, and that other nodes do not take the mark for a complete one.
func TestChangeDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.shared = &fakeShared{all: make(map[string][]byte)}
		answer := s.slow()
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		time.Sleep(3 * time.Second)
		s.measure("tank", 95)
		s.set(claude, func(in *Settings) { in.ID, in.Every = w.ID, time.Hour })
		time.Sleep(3 * time.Second)
		answer(nil)
		if got := s.state(w.ID); got.Outcome.Message != "called" {
			t.Errorf("outcome %+v", got.Outcome)
		}
		if len(s.reports) != 1 || s.reports[0].Outcome.Message != "called" {
			t.Errorf("reports %+v", s.reports)
		}
		s.shared.mu.Lock()
		defer s.shared.mu.Unlock()
		var m mark
		if err := json.Unmarshal(s.shared.all[markKey+keyOf(w.ID, "tank")], &m); err != nil || m.Released {
			t.Errorf("mark %+v, %v", m, err)
		}
	})
}

// TestTakeoverReports checks that a node which takes over a device reports a call of the node
// before whose outcome it does not know.
func TestTakeoverReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fakeShared{all: make(map[string][]byte)}
		one := newSite(t)
		one.shared = shared
		one.slow()
		one.start()
		one.set(claude, nil)
		one.attach("tank")
		time.Sleep(3 * time.Second)
		one.measure("tank", 95)
		one.want(1, 1)
		time.Sleep(3 * time.Second)
		one.crash()
		shared.back()
		two := newSite(t)
		two.node, two.shared = "two", shared
		two.start()
		defer func() { two.stop() }()
		two.attach("tank")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(two.reports) != 1 || !two.reports[0].Outcome.MayHaveRun || two.reports[0].Hit.Value != 95 {
			t.Errorf("reports %+v", two.reports)
		}
	})
}

// TestReturnAfterTakeover checks that a node which comes back after a crash does not replace the
// mark of the node that has taken its device over meanwhile.
func TestReturnAfterTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fakeShared{all: make(map[string][]byte)}
		one := newSite(t)
		one.shared = shared
		one.slow()
		one.start()
		one.set(claude, nil)
		one.attach("tank")
		time.Sleep(3 * time.Second)
		one.measure("tank", 95)
		one.want(1, 1)
		one.crash()
		shared.back()
		two := newSite(t)
		two.node, two.shared = "two", shared
		two.start()
		defer func() { two.stop() }()
		two.attach("tank")
		time.Sleep(3 * time.Second)
		two.measure("tank", 50)
		shared.late = true
		one.start()
		defer func() { one.stop() }()
		time.Sleep(2 * time.Minute) // it reports its call
		synctest.Wait()
		shared.sync()
		two.measure("tank", 96)
		two.want(1, 1)
		one.want(1, 1)
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
