package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestHiddenDevice: a watch on many devices says nothing to an agent about those that are
// hidden from it: not that they exist, not their values, not when they met the condition.
func TestHiddenDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.hidden = map[string]bool{"tank-secret": true}
		s.start()
		defer func() { s.stop() }()
		s.attach("tank-secret")
		s.attach("tank-1")
		w := s.set(claude, func(in *Settings) { in.Condition.Device = "tank-*" })
		updates := s.updates
		s.measure("tank-secret", 10, 95.5)
		s.want(0, 0)
		if s.updates != updates {
			t.Errorf("the agent was told about a hit of a hidden device")
		}
		all := s.keeper.List(claude)
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "secret") || strings.Contains(string(text), "95.5") || all[0].Devices != 1 || all[0].Hits != 0 || all[0].Last != nil {
			t.Errorf("the agent sees %s", text)
		}
		s.measure("tank-1", 95) // the hidden device uses up nothing
		s.want(1, 1)
		if got := s.state(w.ID); got.Devices != 2 || got.Hits != 2 {
			t.Errorf("a person sees %d devices and %d hits", got.Devices, got.Hits)
		}
	})
}

// TestEventHidesCall: who sees the device of the condition may not see the one that is called.
func TestEventHidesCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.answer = func(context.Context, *ferrule.Call) error {
			return ferrule.Errorf(ferrule.Denied, "close of valve is denied")
		}
		s.attach("tank")
		s.set(maria, nil)
		s.measure("tank", 95)
		s.want(1, 1)
		text, err := json.Marshal(s.events)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.events) != 2 || strings.Contains(string(text), "valve") || strings.Contains(string(text), "port") {
			t.Errorf("events %s", text)
		}
	})
}

// TestDevicesComeAndGo: devices that fire once and are gone do not get around the limit of the
// calls of a watch.
func TestDevicesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.set(maria, func(in *Settings) { in.Condition.Device = "tank-*" })
		for i := range 20 { // in less than a minute
			id := fmt.Sprintf("tank-%d", i)
			s.attach(id)
			s.measure(id, 95)
			s.keeper.Devices().Remove(id)
		}
		if calls, _ := s.counts(); calls != 1 {
			t.Errorf("%d calls within a minute", calls)
		}
		s.stop()
		s.start() // the file has them too
		s.attach("tank-x")
		s.measure("tank-x", 95)
		if calls, _ := s.counts(); calls != 1 {
			t.Errorf("%d calls within a minute, after a restart", calls)
		}
	})
}

// TestFutureSample: a sample of the future, or a clock that was wrong, does not end a watch.
func TestFutureSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.attach("tank")
		s.set(maria, func(in *Settings) { in.Every = time.Second })
		future := time.Now().Add(365 * 24 * time.Hour)
		s.keeper.Measured(ferrule.Reading{Device: "tank", Node: s.node, Poll: "p", Time: future, Batches: []ferrule.SampleBatch{
			{Signal: "level", Samples: []ferrule.Sample{{Time: future, Value: 95}}},
		}})
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want(1, 1)
		s.measure("tank", 10, 95)
		s.want(2, 2)
	})
}

// TestOneAgentDoesNotTakeAllCalls: the calls of one agent that take long do not keep the
// watches of others from calling.
func TestOneAgentDoesNotTakeAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.answer = func(ctx context.Context, call *ferrule.Call) error {
			if call.Principal.Role == ferrule.Agent {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		s.attach("tank")
		for i := range maxCalling + 10 {
			s.set(claude, func(in *Settings) {
				in.Name = fmt.Sprint("slow ", i)
				in.Notify = nil
			})
		}
		w := s.set(maria, func(in *Settings) { in.Condition.Device = "boiler" })
		s.measure("tank", 95)
		s.attach("boiler")
		s.measure("boiler", 95)
		if got := s.state(w.ID); got.Outcome == nil || got.Outcome.Message != "called" {
			t.Errorf("outcome %+v", got.Outcome)
		}
	})
}

// TestWideWatchesAreBounded: an agent cannot use up the memory with watches on all devices, nor
// can devices that come and go.
func TestWideWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		const devices = 400
		for i := range devices {
			s.attach(fmt.Sprintf("tank-%d", i))
		}
		above, n := 90.0, 0
		var err error
		for ; n < MaxOwn; n++ {
			_, err = s.keeper.Set(claude, Settings{Name: fmt.Sprint("w", n), Condition: condition.Condition{Device: "*", Signal: "level", Above: &above}})
			if err != nil {
				break
			}
		}
		if err == nil || ferrule.AsError(err).Code != ferrule.Limited || n != maxOwnFollowers/devices {
			t.Fatalf("after %d watches on %d devices: %v", n, devices, err)
		}
		for i := range 1000 {
			id := fmt.Sprintf("visitor-%d", i)
			s.attach(id)
			s.keeper.Devices().Remove(id)
		}
		s.keeper.mu.Lock()
		follows, marks := s.keeper.follows, len(s.keeper.marks)
		s.keeper.mu.Unlock()
		if follows > maxOwnFollowers || marks > maxOwnFollowers {
			t.Errorf("%d followers and %d marks", follows, marks)
		}
		s.set(maria, nil) // a person still can
		s.attach("tank")
		s.measure("tank", 95)
		s.want(1, 1)
	})
}

// TestOneAgentDoesNotFillQueue: an agent whose watches notify all the time does not keep the
// notices of others from being sent.
func TestOneAgentDoesNotFillQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		release := make(chan struct{})
		told := make(map[string]int)
		s.keeper.parts.Send[Webhook] = func(_ context.Context, n Notice) error { // a slow one
			<-release
			s.mu.Lock()
			defer s.mu.Unlock()
			told[n.Name]++
			return nil
		}
		const devices = 20
		for i := range devices {
			s.attach(fmt.Sprintf("tank-%d", i))
		}
		for i := range 2 * maxNotes / devices {
			s.set(claude, func(in *Settings) {
				in.Name, in.Call, in.Condition.Device = fmt.Sprint("noise ", i), nil, "tank-*"
			})
		}
		s.set(maria, func(in *Settings) { in.Call, in.Condition.Device = nil, "boiler" })
		for i := range devices {
			s.measure(fmt.Sprintf("tank-%d", i), 95)
		}
		s.attach("boiler")
		s.measure("boiler", 95)
		close(release)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if told["tank full"] != 1 {
			t.Errorf("the person was told %d times, and others %d times", told["tank full"], len(told))
		}
	})
}

// TestMarksThatDidNotFit: a node that could not keep the marks of others does not call for what
// may be an edge for which another node has called.
func TestMarksThatDidNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		w := s.set(maria, nil)
		k := s.keeper
		k.mu.Lock()
		for i := len(k.marks); i < maxMarks; i++ {
			m := &mark{Watch: w.ID, Device: fmt.Sprintf("d-%d", i), Hits: 1}
			k.marks[m.key()] = m
		}
		k.mu.Unlock()
		m, err := json.Marshal(mark{Watch: w.ID, Device: "tank", Node: "two", Version: 1, Hits: 1, Active: true})
		if err != nil {
			t.Fatal(err)
		}
		k.hearMark(keyOf(w.ID, "tank"), m)
		s.attach("tank")
		s.measure("tank", 95)
		s.want(0, 1)
		s.measure("tank", 10, 95)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if calls, _ := s.counts(); calls != 1 {
			t.Errorf("%d calls after it was false", calls)
		}
	})
}

// TestOneEdgeOneCall: an edge whose call is within the limits and whose notice is not, because
// the edge before notified and did not call, calls once.
func TestOneEdgeOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.attach("tank")
		s.set(maria, nil)
		s.mu.Lock()
		s.barred = ferrule.Errorf(ferrule.Denied, "may not log in")
		s.mu.Unlock()
		s.measure("tank", 95)
		s.mu.Lock()
		s.barred = nil
		s.mu.Unlock()
		s.measure("tank", 10, 95)
		if calls, _ := s.counts(); calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls, _ := s.counts(); calls != 1 {
			t.Errorf("%d calls for one edge", calls)
		}
	})
}

// TestNoNumberIsNoValue: a sample without a number does not end what holds, so a restart after
// it does not call a second time.
func TestNoNumberIsNoValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t).start()
		defer func() { s.stop() }()
		s.attach("tank")
		s.set(maria, func(in *Settings) { in.Every = time.Second })
		s.measure("tank", 95, math.Inf(-1), math.NaN())
		s.want(1, 1)
		s.stop()
		s.start()
		s.attach("tank")
		s.measure("tank", 95)
		s.want(1, 1)
	})
}
