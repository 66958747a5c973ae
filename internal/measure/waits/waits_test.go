package waits_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/measure/waits"
)

// waitTest is a tool wait_for with devices a, b and c in rooms.
type waitTest struct {
	t     *testing.T
	waits *waits.Waits
	index *condition.Index
	// hidden is the device that agents do not see.
	hidden atomic.Value
	// latest has present values by device.
	latest map[string]float64
}

func newWaitTest(t *testing.T) *waitTest {
	t.Helper()
	w := &waitTest{t: t, index: condition.NewIndex(condition.Parts{}), latest: make(map[string]float64)}
	w.hidden.Store("")
	all := fleet.New(nil)
	all.WatchDevices(w.index.Devices())
	for i, id := range []string{"a", "b", "c"} {
		all.Put(&ferrule.Device{ID: id, State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Labels: map[string]string{"room": fmt.Sprint("r", i/2)}}, &ferrule.Manifest{}, nil)
	}
	w.waits = waits.New(waits.Parts{
		Index: w.index, Devices: all.Devices,
		Find: func(_ *ferrule.Call, id string) (*ferrule.Device, bool) {
			dev, _, ok := all.Lookup(id)
			return dev, ok && id != w.hidden.Load()
		},
		Event: func(devices []*ferrule.Device, event string) error {
			if event == "gnoe" {
				return ferrule.Errorf(ferrule.NotFound, "unknown event %q of %d devices", event, len(devices))
			}
			return nil
		},
		Current: func(_ context.Context, _ *ferrule.Call, dev *ferrule.Device, signal string) (r ferrule.Reading, ok bool, err error) {
			if signal == "never" {
				return r, false, ferrule.Errorf(ferrule.NotFound, "nobody measures it")
			}
			v, ok := w.latest[dev.ID]
			return w.reading(dev.ID, v), ok, nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go w.index.Run(ctx)
	return w
}

func (w *waitTest) reading(device string, v float64) ferrule.Reading {
	return ferrule.Reading{Device: device, Batches: []ferrule.SampleBatch{{Signal: "t", Samples: []ferrule.Sample{{Time: time.Now(), Value: v}}}}}
}

// sample passes a sample of a device to the conditions.
func (w *waitTest) sample(device string, v float64) { w.index.Reading(w.reading(device, v)) }

type waitResult struct {
	waits.Output
	err error
}

// start calls the tool.
func (w *waitTest) start(ctx context.Context, by *ferrule.Call, args string) <-chan waitResult {
	w.t.Helper()
	results := make(chan waitResult, 1)
	var in waits.Input
	if err := json.Unmarshal([]byte(args), &in); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		out, err := w.waits.Handle(ctx, by, in)
		results <- waitResult{out, err}
	}()
	synctest.Wait()
	return results
}

var agentCall = &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "local/test"}}

func (w *waitTest) wants(results <-chan waitResult, want string) {
	w.t.Helper()
	synctest.Wait()
	got := "waiting"
	select {
	case r := <-results:
		got = fmt.Sprint(r.Met, r.err != nil)
		for _, h := range r.Hits {
			got += fmt.Sprintf(" %d:%s", h.Condition, h.Device)
			if h.Value != nil {
				got += fmt.Sprint("=", *h.Value)
			}
		}
		for _, m := range r.Missed {
			got += fmt.Sprintf(" missed %s %v", m.Device, m.To.Sub(m.From))
		}
		if r.err != nil {
			got += " " + string(ferrule.AsError(r.err).Code)
		}
		if n := w.index.Len(); n != 0 {
			w.t.Errorf("%d conditions are left", n)
		}
	default:
	}
	if got != want {
		w.t.Errorf("got %q, want %q", got, want)
	}
}

// TestWaitFor checks any and all, values from before, the deadline with gaps, and a caller who
// leaves.
func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitTest(t)
		const above = `{"device":"a","signal":"t","above":5}`
		r := w.start(t.Context(), agentCall, `{"conditions":[`+above+`,{"device":"room=r0","signal":"t","below":0}]}`)
		w.sample("a", 5)
		w.sample("c", -1)
		w.wants(r, "waiting")
		w.sample("b", -1)
		w.wants(r, "true false 1:b=-1")

		both := `{"conditions":[` + above + `,{"device":"b","event":"gone"}],"all":true}`
		r = w.start(t.Context(), agentCall, both)
		w.sample("a", 6)
		w.sample("a", 7)
		w.index.Event(ferrule.Event{Device: "c", Type: ferrule.Gone})
		w.wants(r, "waiting")
		w.index.Event(ferrule.Event{Device: "b", Type: ferrule.Gone})
		w.wants(r, "true false 0:a=6 1:b")

		r = w.start(t.Context(), agentCall, both)
		w.sample("a", 6)
		time.Sleep(time.Minute)
		w.wants(r, "false false 0:a=6")

		r = w.start(t.Context(), agentCall, `{"conditions":[`+above+`],"deadline":"10s"}`)
		time.Sleep(time.Second)
		w.index.Reading(ferrule.Reading{Device: "a", Batches: []ferrule.SampleBatch{{Signal: "t", Gaps: []ferrule.Gap{{From: time.Now().Add(-time.Hour), To: time.Now(), Reason: ferrule.Lost}}}}})
		time.Sleep(9 * time.Second)
		w.wants(r, "false false missed a 1s")

		w.latest["a"] = 9
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[`+above+`]}`), "true false 0:a=9")
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[{"device":"*","signal":"t","above":5}]}`), "true false 0:a=9")

		ctx, cancel := context.WithCancel(t.Context())
		r = w.start(ctx, agentCall, `{"conditions":[{"device":"b","signal":"t","above":5}],"deadline":"24h"}`)
		cancel()
		w.wants(r, "false true cancelled")

		short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the call has less time than it asks for
		defer cancel()
		r = w.start(short, agentCall, `{"conditions":[{"device":"b","signal":"t","above":5}],"deadline":"1h"}`)
		time.Sleep(3*time.Second - 200*time.Millisecond)
		w.wants(r, "false false")
	})
}

// TestWaitForHidden checks that a caller waits only for devices that it may see, when the call
// begins and when the condition is met.
func TestWaitForHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitTest(t)
		w.hidden.Store("a")
		w.latest["a"] = 9
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[{"device":"a","signal":"t","above":5}]}`), "false true not_found")
		r := w.start(t.Context(), agentCall, `{"conditions":[{"device":"*","signal":"t","above":5}]}`)
		w.sample("a", 10)
		w.wants(r, "waiting")
		w.hidden.Store("b") // the policy was changed
		w.sample("b", 10)
		w.wants(r, "waiting")
		w.sample("c", 10)
		w.wants(r, "true false 0:c=10")
	})
}

// TestWaitForLimits checks the number of calls that wait for one account, and what is refused.
func TestWaitForLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitTest(t)
		const args = `{"conditions":[{"device":"a","signal":"t","above":5}]}`
		var mu sync.Mutex
		var progress []string
		noted := *agentCall
		noted.Progress = func(p ferrule.Progress) {
			mu.Lock()
			defer mu.Unlock()
			progress = append(progress, p.Message)
		}
		var all []<-chan waitResult
		for range 8 {
			all = append(all, w.start(t.Context(), &noted, args))
		}
		other := &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "local/another"}}
		if r := <-w.start(t.Context(), other, args); ferrule.AsError(r.err).Code != ferrule.Limited {
			t.Errorf("a ninth call of the account: %+v", r)
		}
		r := w.start(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "token:x"}}, args)
		time.Sleep(6 * time.Second)
		w.sample("a", 6)
		synctest.Wait()
		for _, r := range append(all, r) {
			if got := <-r; !got.Met {
				t.Errorf("%+v", got)
			}
		}
		if len(progress) != 8 || !strings.Contains(progress[0], "waiting for a t above 5, 5s of 1m0s") {
			t.Errorf("progress is %q", progress)
		}
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[{"device":"a","signal":"never","above":5}]}`), "false true not_found")
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[{"device":"x*","signal":"t","above":5}]}`), "false true not_found")
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[{"device":"a","event":"gone"},{"device":"b","event":"gnoe"}]}`), "false true not_found")
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[{"device":"a","signal":"t"}]}`), "false true invalid")
		w.wants(w.start(t.Context(), agentCall, `{"conditions":[`+strings.Repeat(`{"device":"a","event":"gone"},`, 8)+`{"device":"a","event":"gone"}]}`), "false true invalid")
	})
}
