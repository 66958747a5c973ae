package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 80, 89, 90)
		s.want(0, 0)
		s.measure("tank", 91, 95, 99)
		s.want(1, 1)
		call := s.calls[0]
		if call.Principal != claude || call.Device != "valve" || call.Tool != "close" || string(call.Args) != `{"port":1}` || !strings.HasPrefix(call.ID, "watch-"+w.ID+"-") {
			t.Errorf("called %+v", call)
		}
		if got := s.state(w.ID); got.Hits != 1 || got.Outcome == nil || got.Outcome.Call != call.ID || got.Outcome.Code != "" || len(got.Active) != 1 {
			t.Errorf("state %+v, outcome %+v", got, got.Outcome)
		}
		time.Sleep(2 * time.Minute)
		s.measure("tank", 88, 92) // within the hysteresis
		s.want(1, 1)
		s.measure("tank", 84, 92)
		s.want(2, 2)
	})
}

// TestLimitsHoldBack checks that an edge within the minimum interval acts when the interval
// is over, if the condition still holds, and not otherwise.
func TestLimitsHoldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 95, 80, 95)
		s.want(1, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want(2, 2)
		s.measure("tank", 80, 95, 80) // over before it may act
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.want(2, 2)
	})
}

// TestStorm checks that a flapping sensor moves nothing more often than the limits say.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(claude, func(in *Settings) { in.Every, in.PerHour = 10*time.Second, 20 })
		s.attach("tank")
		start := time.Now()
		for time.Since(start) < 70*time.Minute {
			s.keeper.Measured(ferrule.Reading{Device: "tank", Batches: []ferrule.SampleBatch{{Signal: "level", Samples: []ferrule.Sample{
				{Time: time.Now(), Value: 95}, {Time: time.Now().Add(50 * time.Millisecond), Value: 50}, {Time: time.Now().Add(80 * time.Millisecond), Value: 96}}}}})
			time.Sleep(200 * time.Millisecond)
			s.keeper.Measured(ferrule.Reading{Device: "tank", Batches: []ferrule.SampleBatch{{Signal: "level", Samples: []ferrule.Sample{{Time: time.Now(), Value: 50}}}}})
		}
		synctest.Wait()
		calls, notices := s.counts()
		if calls < 21 || calls > 40 || notices > 40 {
			t.Errorf("%d calls and %d notices in 70 minutes, want 21 to 40", calls, notices)
		}
		for i := 1; i < len(s.calls); i++ {
			if pause := calledAt(t, s.calls[i]).Sub(calledAt(t, s.calls[i-1])); pause < 10*time.Second {
				t.Fatalf("two calls within %v", pause)
			}
			if i >= 20 && calledAt(t, s.calls[i]).Sub(calledAt(t, s.calls[i-20])) < time.Hour {
				t.Fatal("more than 20 calls within an hour")
			}
		}
		if got := s.state(w.ID); got.Hits < 20_000 || got.Held < got.Hits-100 {
			t.Errorf("%d hits, %d held back", got.Hits, got.Held)
		}
	})
}

// calledAt returns the time of a call, which is in its ID.
func calledAt(t *testing.T, call *ferrule.Call) time.Time {
	at, err := strconv.ParseInt(call.ID[strings.LastIndex(call.ID, "-")+1:], 36, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(at)
}

// TestRestart checks that a restart neither repeats a call for the same edge nor loses one.
func TestRestart(t *testing.T) {
	for name, end := range map[string]func(*site){"in order": func(s *site) { s.stop() }, "crash": (*site).crash} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t).start()
				w := s.set(claude, nil)
				s.attach("tank")
				s.measure("tank", 95)
				s.want(1, 1)
				end(s)
				time.Sleep(time.Hour)
				s.start()
				defer func() { s.stop() }()
				s.attach("tank")
				s.measure("tank", 96, 97)
				s.want(1, 1)
				if got := s.state(w.ID); len(got.Gaps) == 0 || got.Gaps[0].Reason != Unseen {
					t.Errorf("gaps %+v", got.Gaps)
				}
				s.measure("tank", 80, 97)
				s.want(2, 2)
			})
		})
	}
}

// TestRingReadAgain checks that samples which another run or node has evaluated are not
// evaluated again. A board keeps its last samples, and a node that has not read them before
// gets all of them, each with a slightly different time.
func TestRingReadAgain(t *testing.T) {
	again := func(s *site, at time.Time, values ...float64) {
		b := ferrule.SampleBatch{Signal: "level"}
		for i, v := range values {
			b.Samples = append(b.Samples, ferrule.Sample{Time: at.Add(time.Duration(i) * 100 * time.Millisecond), Value: v, Within: ferrule.Duration(30 * time.Millisecond)})
		}
		s.keeper.Measured(ferrule.Reading{Device: "tank", Node: s.node, Poll: "p", Time: time.Now(), Batches: []ferrule.SampleBatch{b}})
		time.Sleep(3 * time.Second)
		synctest.Wait()
	}
	for name, test := range map[string]struct {
		end    func(*site)
		node   string
		change bool
	}{
		"restarted":                     {func(s *site) { s.stop() }, "one", false},
		"crashed":                       {(*site).crash, "one", false},
		"moved":                         {func(s *site) { s.stop() }, "two", false},
		"crashed and moved":             {(*site).crash, "two", false},
		"crashed and moved, any change": {(*site).crash, "two", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := &fakeShared{all: make(map[string][]byte)}
				one := newSite(t)
				one.shared = shared
				one.start()
				one.set(claude, func(in *Settings) {
					in.Every = time.Second
					if test.change {
						in.Condition.Above, in.Condition.Changes, in.Condition.Hysteresis = nil, true, 5
					}
				})
				one.attach("tank")
				time.Sleep(3 * time.Second)
				begin := time.Now()
				one.measure("tank", 50, 50, 95, 95)
				one.want(1, 1)
				test.end(one)
				shared.back()
				two := newSite(t)
				if two.node, two.shared = test.node, shared; test.node == "one" {
					two.file = one.file
				}
				two.start()
				defer func() { two.stop() }()
				two.attach("tank")
				time.Sleep(3 * time.Second)
				if strings.HasPrefix(name, "crashed and moved") && !test.change { // at once, which the limits do not allow yet
					two.keeper.mu.Lock()
					for _, m := range two.keeper.marks {
						m.Calls = []int64{time.Now().Unix()}
					}
					two.keeper.mu.Unlock()
				}
				again(two, begin.Add(120*time.Millisecond), 50, 50, 95, 95, 95)
				if calls, _ := two.counts(); calls != 0 {
					t.Fatalf("%d calls for an edge that was acted on before", calls)
				}
				for _, n := range two.notices {
					if len(n.Hit.Gaps) != 1 || !n.Unsure || !strings.Contains(n.NotCalled, "another node held tank") {
						t.Errorf("notice %+v", n)
					}
				}
				again(two, time.Now(), 50, 95)
				if calls, _ := two.counts(); calls != 1 && !test.change {
					t.Errorf("%d calls for the next edge", calls)
				} else if calls == 0 {
					t.Error("no call for the next change")
				}
			})
		})
	}
}

// TestCrashDuringCall checks that a call whose outcome was lost is shown as one that may have
// run, and is not made again.
func TestCrashDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.answer = func(ctx context.Context, _ *ferrule.Call) error {
			<-ctx.Done()
			return ferrule.Errorf(ferrule.Cancelled, "cancelled").AfterSend()
		}
		s.start()
		w := s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 95)
		s.want(1, 1)
		s.crash()
		s.answer = nil
		s.start()
		defer func() { s.stop() }()
		s.attach("tank")
		s.measure("tank", 96)
		s.want(1, 1)
		if got := s.state(w.ID).Outcome; got == nil || !got.MayHaveRun || got.Call != s.calls[0].ID {
			t.Errorf("outcome %+v", got)
		}
	})
}

// TestDiskFull checks that nothing is called if the intent cannot be recorded.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		s.keeper.file.Close()
		s.measure("tank", 95)
		s.want(0, 1)
		if got := s.state(w.ID).Outcome; got == nil || got.Code != ferrule.Denied || got.MayHaveRun {
			t.Errorf("outcome %+v", got)
		}
	})
}

// TestOwnerGone checks that a watch whose owner is not let in any more does nothing.
func TestOwnerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		s.mu.Lock()
		s.barred = ferrule.Errorf(ferrule.Denied, "the token of claude was revoked")
		s.mu.Unlock()
		s.measure("tank", 95)
		s.want(0, 0)
		if got := s.state(w.ID).Outcome; got == nil || got.Code != ferrule.Denied || !strings.Contains(got.Message, "revoked") {
			t.Errorf("outcome %+v", got)
		}
	})
}

// TestAsked checks that a call that waits for a person is visible, and that the watch makes
// no other one meanwhile.
func TestAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		answered := make(chan struct{})
		s.answer = func(ctx context.Context, call *ferrule.Call) error {
			call.Report(ferrule.Progress{Message: "waiting for approval by a person (request a1)", Asked: true})
			<-answered
			return ferrule.Errorf(ferrule.Denied, "close of valve was denied by person:maria")
		}
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		s.measure("tank", 95)
		if got := s.state(w.ID).Outcome; got == nil || !got.Waiting || !strings.Contains(got.Message, "a1") {
			t.Errorf("outcome %+v", got)
		}
		time.Sleep(5 * time.Minute)
		s.measure("tank", 80, 95)
		if c, _ := s.counts(); c != 1 {
			t.Errorf("%d calls while a person is asked", c)
		}
		close(answered)
		synctest.Wait()
		if got := s.state(w.ID).Outcome; got.Waiting || got.Code != ferrule.Denied || got.MayHaveRun {
			t.Errorf("outcome %+v", got)
		}
	})
}

// TestTakeover checks what a node does with a device that another node held before.
func TestTakeover(t *testing.T) {
	for name, test := range map[string]struct {
		crash          bool
		before         []float64
		calls, notices int // of the second node
	}{
		"released while it holds":       {false, []float64{95}, 0, 0},
		"released while it is false":    {false, []float64{50}, 1, 1},
		"crashed after a call":          {true, []float64{95}, 0, 1},
		"crashed while it is false":     {true, []float64{50}, 0, 1},
		"crashed, then false, then met": {true, []float64{95}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := &fakeShared{all: make(map[string][]byte)}
				one := newSite(t)
				one.shared = shared
				one.start()
				w := one.set(claude, nil)
				one.attach("tank")
				time.Sleep(3 * time.Second)
				one.measure("tank", test.before...)
				if test.crash {
					one.crash()
				} else {
					one.keeper.Devices().Remove("tank")
					time.Sleep(time.Second)
					one.stop()
				}
				shared.back()
				two := newSite(t)
				two.node, two.shared = "two", shared
				two.start()
				defer func() { two.stop() }()
				if got := two.state(w.ID); got.Name != "tank full" {
					t.Fatalf("the other node has %+v", got)
				}
				two.attach("tank")
				time.Sleep(3 * time.Second)
				two.measure("tank", 96)
				if strings.Contains(name, "then met") {
					time.Sleep(2 * time.Minute)
					two.measure("tank", 80, 97)
				}
				two.want(test.calls, test.notices)
			})
		})
	}
}

// TestUnclaimed checks that a node does not call while other nodes do not know that it
// evaluates the watch.
func TestUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.shared = &fakeShared{all: make(map[string][]byte), down: true}
		s.start()
		defer func() { s.stop() }()
		s.set(claude, nil)
		s.attach("tank")
		time.Sleep(5 * time.Second)
		s.measure("tank", 95)
		s.want(0, 1)
		s.shared.back()
		time.Sleep(2 * time.Minute)
		s.measure("tank", 80, 95)
		s.want(1, 2)
	})
}

// TestRefusalsAreLimited checks that calls which are refused before they begin do not get around
// the limits of notices: a signal can oscillate with each sample.
func TestRefusalsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.shared = &fakeShared{all: make(map[string][]byte), down: true} // nothing is called
		s.start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		s.attach("tank")
		for range 20 {
			s.measure("tank", 95, 80)
		}
		s.want(0, 1)
		if got := s.state(w.ID); got.Hits != 20 || len(s.reports) != 0 || len(s.events) != 1 {
			t.Errorf("%d hits, outcomes %+v, %d events", got.Hits, s.reports, len(s.events))
		}
	})
}

// TestWhoMayChange checks that agents see and change their own watches only, and that a
// person sees and stops all.
func TestWhoMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(claude, nil)
		other := ferrule.Principal{Role: ferrule.Agent, Name: "cursor", Auth: ferrule.AuthToken}
		if all := s.keeper.List(other); len(all) != 0 {
			t.Errorf("another agent sees %+v", all)
		}
		if _, err := s.keeper.Remove(other, w.ID); ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("another agent removes it: %v", err)
		}
		if got, err := s.keeper.Enable(maria, "tank full", false); err != nil || !got.Off || got.OffBy != "person:maria" {
			t.Errorf("disabled: %+v, %v", got, err)
		}
		if _, err := s.keeper.Enable(claude, w.ID, true); ferrule.AsError(err).Code != ferrule.Denied {
			t.Errorf("the agent enables what a person disabled: %v", err)
		}
		if got := s.set(claude, func(in *Settings) { in.ID = w.ID }); !got.Off {
			t.Error("the agent enables what a person disabled by setting it again")
		}
		s.attach("tank")
		s.measure("tank", 95)
		s.want(0, 0)
		if _, err := s.keeper.Remove(maria, w.ID); err != nil || len(s.keeper.List(maria)) != 0 {
			t.Errorf("removed: %v, %+v", err, s.keeper.List(maria))
		}
	})
}

// TestManyDevices checks that a watch on many devices notifies for each, and that its calls
// have one limit.
func TestManyDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(maria, func(in *Settings) { in.Condition.Device = "tank-*" })
		for i := range 5 {
			s.attach(fmt.Sprintf("tank-%d", i))
		}
		s.attach("pump")
		if got := s.state(w.ID).Devices; got != 5 {
			t.Fatalf("%d devices", got)
		}
		s.measure("tank-0", 95)
		s.measure("tank-1", 95)
		s.measure("pump", 95)
		s.want(1, 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want(2, 2)
	})
}

func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(maria, func(in *Settings) { in.Expires = time.Minute })
		s.attach("tank")
		s.measure("tank", 50)
		time.Sleep(time.Minute)
		s.measure("tank", 95)
		s.want(0, 0)
		if !s.state(w.ID).Expired {
			t.Error("it has not expired")
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("abcdefghij", []byte(`{"id":"abcdefghij","name":"n","owner":{"role":"agent","name":"a"},"condition":{"device":"tank","signal":"level","above":1},"every":"1m0s","per_hour":3,"created":"2026-01-01T00:00:00Z","version":1}`))
	f.Add("abcdefghij", []byte(`{"id":"abcdefghij","removed":true,"version":1}`))
	f.Fuzz(func(t *testing.T, id string, data []byte) {
		w, err := parse(id, data)
		if err != nil {
			return
		}
		again, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(id, again); err != nil {
			t.Fatalf("%s is read, and %s is not: %v", data, again, err)
		}
	})
}

func FuzzParseMark(f *testing.F) {
	f.Add("abcdefghij.tank", []byte(`{"watch":"abcdefghij","device":"tank","node":"one","version":3,"hits":1,"intent":"watch-1","calls":[1,2]}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		m, err := parseMark(key, data)
		if err == nil && (m.key() != key || len(m.Calls) > MaxPerHour) {
			t.Fatalf("%s is read as %+v", data, m)
		}
	})
}
