package poller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
)

// world is a road with devices at its end, and a place for what was measured.
type world struct {
	*poller.Poller
	t     *testing.T
	start time.Time

	mu       sync.Mutex
	answer   func(call *ferrule.Call) (string, error) // "1" and nil if it is nil
	took     func(call *ferrule.Call) time.Duration   // 0 if it is nil
	refuse   bool                                     // there is no room for readings
	asked    map[string][]time.Duration               // when, by device and tool
	timeouts map[string]time.Duration
	readings []ferrule.Reading
	last     map[string]string          // what a device was last asked for
	brought  map[string]ferrule.Reading // what came of it, by device and tool
	under    map[string]bool            // devices that are being asked
	most     int                        // of them at once
}

// open starts a Sense. It ends with the test, which must be in a bubble.
func open(t *testing.T, change func(*poller.Parts)) *world {
	t.Helper()
	w := &world{
		t: t, start: time.Now(), asked: make(map[string][]time.Duration), timeouts: make(map[string]time.Duration),
		last: make(map[string]string), brought: make(map[string]ferrule.Reading), under: make(map[string]bool),
	}
	parts := poller.Parts{Config: poller.DefaultConfig(), Handle: w.handle, Publish: w.publish, Node: "here", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&parts)
	}
	w.Poller = poller.New(parts)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	w.mu.Lock()
	if w.under[call.Device] {
		w.t.Errorf("%s is asked for two things at once", call.Device)
	}
	if call.Principal != (ferrule.Principal{Role: ferrule.Gateway, Name: "sense"}) || call.Operation != ferrule.CallTool {
		w.t.Errorf("%v asks for %s", call.Principal, call.Operation)
	}
	w.under[call.Device] = true
	w.last[call.Device] = call.Tool
	w.most = max(w.most, len(w.under))
	sent := time.Now()
	key := call.Device + " " + call.Tool
	w.asked[key] = append(w.asked[key], sent.Sub(w.start))
	w.timeouts[key] = time.Duration(call.Timeout)
	answer, took := w.answer, w.took
	w.mu.Unlock()
	if took != nil {
		select {
		case <-time.After(took(call)):
		case <-ctx.Done():
		}
	}
	text, err := "1", ctx.Err()
	if answer != nil && err == nil {
		text, err = answer(call)
	}
	w.mu.Lock()
	delete(w.under, call.Device)
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &ferrule.Result{Value: json.RawMessage(text), Sent: sent, Answered: time.Now()}, nil
}

func (w *world) publish(r ferrule.Reading) bool {
	if err := r.Check(); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse {
		return false
	}
	w.readings = append(w.readings, r)
	w.brought[r.Device+" "+w.last[r.Device]] = r
	return true
}

// set changes what the devices do.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// seen is what there is to see: how many were asked for something, how many were at once,
// and what was measured.
func (w *world) seen() (asked, most int, readings []ferrule.Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked), w.most, w.readings
}

// forget drops what was seen so far.
func (w *world) forget() { w.set(func() { clear(w.asked); w.readings = nil }) }

// times is when a device was asked for something.
func (w *world) times(key string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[key]
}

// gaps is how long it was from one to the next.
func gaps(times []time.Duration) (all []time.Duration) {
	for i := 1; i < len(times); i++ {
		all = append(all, times[i]-times[i-1])
	}
	return all
}

// told is all samples of a signal.
func (w *world) told(device, signal string) (samples []ferrule.Sample, holes []ferrule.Gap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.readings {
		for _, s := range r.Batches {
			if r.Device == device && s.Signal == signal {
				samples, holes = append(samples, s.Samples...), append(holes, s.Gaps...)
			}
		}
	}
	return samples, holes
}

// online is a device that is there.
func online(id string) *ferrule.Device {
	return &ferrule.Device{ID: id, Kind: "k", Protocol: "d", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
}

// in is a device in another state.
func in(state ferrule.State, id string) *ferrule.Device {
	dev := online(id)
	dev.State = state
	return dev
}

// polled is a manifest with a tool that wants to be polled.
func polled(every time.Duration) *ferrule.Manifest {
	return &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads, Poll: ferrule.Duration(every)}}}
}

// slack is what the ticks of the wheel add.
const slack = 10 * time.Millisecond

// near tells whether d is about as long as it should be.
func near(d, want time.Duration) bool {
	return d >= want-want/20 && d <= want+want/20+slack
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.took = func(*ferrule.Call) time.Duration { return 20 * time.Millisecond }
		w.Put(online("robot"), polled(2*time.Second))
		time.Sleep(1000 * time.Second)
		times := w.times("robot look")
		if n := len(times); n < 480 || n > 520 {
			t.Errorf("asked %d times", n)
		}
		if first := times[0]; first > 2*time.Second+slack {
			t.Errorf("first asked after %v", first)
		}
		least, most := time.Hour, time.Duration(0)
		for _, gap := range gaps(times) {
			least, most = min(least, gap), max(most, gap)
		}
		if !near(least, 2*time.Second) || !near(most, 2*time.Second) || most-least < 100*time.Millisecond {
			t.Errorf("asked again after %v to %v", least, most)
		}
		_, _, readings := w.seen()
		if len(readings) != len(times) {
			t.Errorf("%d readings", len(readings))
		}
		r := readings[0]
		want := ferrule.Sample{Time: w.start.Add(times[0] + 10*time.Millisecond), Value: 1, Within: ferrule.Duration(10 * time.Millisecond)}
		if r.Device != "robot" || r.Node != "here" || r.Poll != "look" || !r.Time.Equal(w.start.Add(times[0]+20*time.Millisecond)) ||
			len(r.Batches) != 1 || r.Batches[0].Signal != "look" || len(r.Batches[0].Samples) != 1 || r.Batches[0].Samples[0] != want || len(r.Batches[0].Gaps) != 0 {
			t.Errorf("got %+v", r)
		}
		if s := w.Stats(); s.Devices != 1 || s.Probes != 1 || s.BackingOff != 0 || int(s.Reads) != len(times) || s.Failures != 0 || int(s.Samples) != len(times) || s.Late.Quantile(1) > 10*time.Millisecond {
			t.Errorf("counted %+v", s)
		}
	})
}

// goroutines is how many goroutines there are that measure.
func goroutines() (n int) {
	buf := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(one, "poller.(*Poller)") {
			n++
		}
	}
	return n
}

// TestManySignals: ten thousand signals are on one wheel. At rest there is one goroutine,
// and while devices are asked no more than may be.
func TestManySignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices, each, every = 625, 16, 5 * time.Second
		w := open(t, func(p *poller.Parts) { p.Config.InFlight = 32 })
		w.took = func(*ferrule.Call) time.Duration { return 5 * time.Millisecond }
		laid := &ferrule.Manifest{}
		for i := range each {
			laid.Tools = append(laid.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(every)})
		}
		for i := range devices {
			w.Put(online(fmt.Sprint("d", i)), laid)
		}
		synctest.Wait()
		if n := goroutines(); n != 1 {
			t.Errorf("%d goroutines at rest", n)
		}
		most := 0
		for range 97 {
			time.Sleep(105 * time.Millisecond)
			most = max(most, goroutines())
		}
		_, atOnce, _ := w.seen()
		if most > 1+32 || most < 8 || atOnce > 32 || atOnce < 8 {
			t.Errorf("%d goroutines, %d devices asked at once", most, atOnce)
		}
		for i := range devices {
			for j := range each {
				key := fmt.Sprintf("d%d look%d", i, j)
				if n := len(w.times(key)); n < 1 || n > 3 {
					t.Errorf("%s was asked %d times", key, n)
				}
			}
		}
		s := w.Stats()
		if s.Probes != devices*each || s.Samples+32 < s.Reads || s.Late.Quantile(0.99) > 50*time.Millisecond {
			t.Errorf("counted %+v", s)
		}
		t.Logf("%d signals of %d devices, %d reads a second: %d devices at once at most, 99 of 100 reads late by no more than %v",
			devices*each, devices, s.Reads/10, atOnce, s.Late.Quantile(0.99))
		for i := range devices {
			w.Remove(fmt.Sprint("d", i))
		}
		time.Sleep(time.Minute)
		w.forget()
		time.Sleep(time.Minute)
		asked, _, _ := w.seen()
		if n := goroutines(); n != 1 || asked != 0 || w.Stats().Probes != 0 {
			t.Errorf("%d goroutines and %d probes when all are gone", n, asked)
		}
	})
}

// TestInFlight: no more devices are asked at once than may be, and each gets its turn.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(p *poller.Parts) { p.Config.InFlight = 3 })
		w.took = func(*ferrule.Call) time.Duration { return time.Second }
		for i := range 30 {
			w.Put(online(fmt.Sprint("d", i)), polled(4*time.Second))
		}
		time.Sleep(200 * time.Second)
		if _, most, _ := w.seen(); most != 3 {
			t.Errorf("%d at once", most)
		}
		for i := range 30 {
			if n := len(w.times(fmt.Sprintf("d%d look", i))); n < 18 || n > 22 {
				t.Errorf("d%d was asked %d times", i, n)
			}
		}
	})
}

// TestOneAtATime: a device is asked for one thing at a time, and for all in turn.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.took = func(*ferrule.Call) time.Duration { return 100 * time.Millisecond }
		laid := &ferrule.Manifest{}
		for i := range 20 {
			laid.Tools = append(laid.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		}
		w.Put(online("robot"), laid)
		time.Sleep(100 * time.Second)
		for i := range 20 {
			if n := len(w.times(fmt.Sprint("robot look", i))); n < 45 || n > 52 {
				t.Errorf("asked for look%d %d times", i, n)
			}
		}
		if s := w.Stats(); s.Late.Quantile(0.5) < 100*time.Millisecond {
			t.Errorf("it was never late: %+v", s.Late)
		}
	})
}

// TestSlow: a device that takes long to answer is asked less often, and as before when it
// is quick again.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for _, test := range []struct{ took, want time.Duration }{
			{100 * time.Millisecond, time.Second},
			{250 * time.Millisecond, time.Second},
			{500 * time.Millisecond, 2 * time.Second},
			{2 * time.Second, 8 * time.Second},
			{10 * time.Millisecond, time.Second},
		} {
			w.set(func() { w.took = func(*ferrule.Call) time.Duration { return test.took } })
			w.Put(online("robot"), polled(time.Second))
			time.Sleep(20 * time.Second) // it gets used to it
			w.forget()
			time.Sleep(100 * time.Second)
			for _, gap := range gaps(w.times("robot look")) {
				if !near(gap, test.want) {
					t.Errorf("took %v: asked again after %v", test.took, gap)
				}
			}
			if len(w.times("robot look")) < 10 {
				t.Errorf("took %v: asked %d times", test.took, len(w.times("robot look")))
			}
		}
	})
}

// TestBackOff: after each failure the pause is twice as long, and after a success it is as
// it was.
func TestBackOff(t *testing.T) {
	for _, code := range []ferrule.Code{
		ferrule.Unanswered, ferrule.Offline, ferrule.Busy, ferrule.Failed, ferrule.Refused, ferrule.Invalid,
		ferrule.NotFound, ferrule.Denied, ferrule.Pending, ferrule.Internal, "",
	} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, nil)
				w.answer = func(*ferrule.Call) (string, error) {
					if code == "" {
						return `"warm"`, nil // an answer without a number
					}
					return "", ferrule.Errorf(code, "no")
				}
				w.Put(online("robot"), polled(time.Second))
				time.Sleep(20 * time.Minute)
				want := 2 * time.Second
				all := gaps(w.times("robot look"))
				for i, gap := range all {
					if !near(gap, want) {
						t.Errorf("pause %d was %v, want %v", i, gap, want)
					}
					want = min(2*want, 2*time.Minute)
				}
				if s := w.Stats(); len(all) < 10 || s.BackingOff != 1 || s.Failures != s.Reads || s.Samples != 0 {
					t.Errorf("%d pauses, counted %+v", len(all), s)
				}
				w.set(func() { w.answer = nil })
				w.forget()
				time.Sleep(5 * time.Minute)
				for i, gap := range gaps(w.times("robot look")) {
					if !near(gap, time.Second) {
						t.Errorf("when it was well again, pause %d was %v", i, gap)
					}
				}
				if s := w.Stats(); len(w.times("robot look")) < 100 || s.BackingOff != 0 {
					t.Errorf("asked %d times, counted %+v", len(w.times("robot look")), s)
				}
			})
		})
	}
}

// TestRests: a device that does not answer is left in peace by all its probes; one of
// which only one fails is not.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := &ferrule.Manifest{}
		for i := range 10 {
			laid.Tools = append(laid.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		}
		w.took = func(call *ferrule.Call) time.Duration { return time.Duration(call.Timeout) }
		w.answer = func(*ferrule.Call) (string, error) { return "", ferrule.Errorf(ferrule.Unanswered, "silence") }
		w.Put(online("robot"), laid)
		time.Sleep(10 * time.Minute)
		w.forget()
		time.Sleep(20 * time.Minute)
		n := 0
		for i := range 10 {
			n += len(w.times(fmt.Sprint("robot look", i)))
		}
		if n < 8 || n > 12 {
			t.Errorf("a silent device was asked %d times in 20 minutes", n)
		}
		w.set(func() {
			w.took = nil
			w.answer = func(call *ferrule.Call) (string, error) {
				if call.Tool == "look3" {
					return "", ferrule.Errorf(ferrule.Failed, "broken")
				}
				return "1", nil
			}
		})
		time.Sleep(5 * time.Minute)
		w.forget()
		time.Sleep(4 * time.Minute)
		for i := range 10 {
			want := 240
			if i == 3 {
				want = 2
			}
			if n := len(w.times(fmt.Sprint("robot look", i))); n < want*9/10 || n > want*11/10+1 {
				t.Errorf("look%d was asked for %d times", i, n)
			}
		}
	})
}

// TestRestsFromTheSeldom: what is seldom asked for, and is not answered, has the others wait no
// longer than any.
func TestRestsFromTheSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := polled(time.Second)
		laid.Tools = append(laid.Tools, ferrule.Tool{Name: "seldom", Effect: ferrule.Reads, Poll: ferrule.Duration(6 * time.Hour)})
		w.answer = func(call *ferrule.Call) (string, error) {
			if call.Tool == "seldom" {
				return "", ferrule.Errorf(ferrule.Unanswered, "silence")
			}
			return "1", nil
		}
		w.Put(online("robot"), laid)
		time.Sleep(time.Hour)
		if n := len(w.times("robot seldom")); n != 1 {
			t.Fatalf("asked for what is seldom %d times", n)
		}
		for _, gap := range gaps(w.times("robot look")) {
			if gap > 2*time.Minute+8*time.Second { // with what varies, and its own pace
				t.Errorf("asked again after %v", gap)
			}
		}
		if n := len(w.times("robot look")); n < 3300 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestPatience: an answer is waited for as long as it should take, unless the owner says
// how long the tool may take.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for name, test := range map[string]struct{ every, deadline, want time.Duration }{
			"often":    {time.Second, 0, 5 * time.Second},
			"seldom":   {40 * time.Second, 0, 10 * time.Second},
			"never":    {10 * time.Minute, 0, 30 * time.Second},
			"as-owner": {time.Second, time.Minute, 0},
		} {
			laid := polled(test.every)
			laid.Tools[0].Deadline = ferrule.Duration(test.deadline)
			w.Put(online(name), laid)
			time.Sleep(5*time.Second + slack)
			var got time.Duration
			w.set(func() { got = w.timeouts[name+" look"] })
			if got != test.want || len(w.times(name+" look")) == 0 {
				t.Errorf("%s: waits for %v", name, got)
			}
		}
	})
}

// TestAway: a device that is not there, or not trusted, is not asked, and is when it is
// back.
func TestAway(t *testing.T) {
	laid := polled(time.Second)
	held := online("robot")
	held.Trust = ferrule.TrustPending
	for name, away := range map[string]func(*world){
		"offline":  func(w *world) { w.Put(in(ferrule.StateOffline, "robot"), laid) },
		"released": func(w *world) { w.Put(in(ferrule.StateReleased, "robot"), laid) },
		"pending":  func(w *world) { w.Put(held, laid) },
		"gone":     func(w *world) { w.Remove("robot") },
		"unknown": func(w *world) {
			w.Put(&ferrule.Device{ID: "robot", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, nil)
				away(w)
				time.Sleep(10 * time.Second)
				if n := len(w.times("robot look")); n != 0 {
					t.Errorf("asked %d times before it came", n)
				}
				for range 3 {
					w.Put(online("robot"), laid)
					w.Put(online("robot"), laid) // which changes nothing
					time.Sleep(10 * time.Second)
					if n := len(w.times("robot look")); n < 9 || n > 11 {
						t.Errorf("asked %d times", n)
					}
					away(w)
					w.forget()
					time.Sleep(10 * time.Second)
					if n := len(w.times("robot look")); n != 0 || w.Stats().Probes != 0 {
						t.Errorf("asked %d times while it was away", n)
					}
				}
			})
		})
	}
}

// TestAwayMeanwhile: a device may go, come back, and become another, while it is asked.
func TestAwayMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.took = func(*ferrule.Call) time.Duration { return time.Second }
		laid, other := polled(time.Second), polled(time.Second)
		other.Tools[0].Name = "peek"
		for range 200 {
			w.Put(online("robot"), laid)
			time.Sleep(1300 * time.Millisecond)
			w.Put(in(ferrule.StateOffline, "robot"), laid)
			w.Put(online("robot"), laid)
			dev := online("robot")
			dev.Kind = "k2"
			w.Put(dev, other)
			time.Sleep(1700 * time.Millisecond)
		}
		if len(w.times("robot look")) < 100 || len(w.times("robot peek")) < 100 {
			t.Errorf("asked %d and %d times", len(w.times("robot look")), len(w.times("robot peek")))
		}
		w.Remove("robot")
		time.Sleep(2 * time.Second)
		w.forget()
		time.Sleep(10 * time.Second)
		if asked, _, _ := w.seen(); asked != 0 {
			t.Errorf("asked for %d things when it was gone", asked)
		}
	})
}

// TestForgottenMeanwhile: a device that is forgotten and comes anew while it is asked is still
// asked for one thing at a time, whatever it was asked for before.
func TestForgottenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, withMCPU)
		w.took = func(*ferrule.Call) time.Duration { return 4 * time.Second }
		laid := &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}, {Name: "get_pin_summary", Effect: ferrule.Reads}},
			Pins: []ferrule.Pin{{
				Number: 34, Name: "light", Abilities: []string{"buffer", "summary"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(time.Second), Size: 4},
			}},
		}
		w.answer = func(*ferrule.Call) (string, error) { return `{"buffer_available":false}`, nil }
		for range 20 {
			w.Put(online("robot"), laid)
			for n := len(w.times("robot get_pin_buffer")); len(w.times("robot get_pin_buffer")) < n+2; {
				time.Sleep(100 * time.Millisecond)
			}
			w.Remove("robot") // and now it says that it has no buffer, for the second time
			w.Put(in(ferrule.StateOffline, "robot"), nil)
			w.Put(online("robot"), laid)
			time.Sleep(20 * time.Second)
			w.Remove("robot")
			time.Sleep(10 * time.Second)
			if s := w.Stats(); s.Devices != 0 || s.Waiting != 0 {
				t.Fatalf("when it is gone: %+v", s)
			}
		}
	})
}

// TestCrashes: something whose asking ends the connection does not become quicker by the
// device's coming back.
func TestCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := polled(time.Second)
		w.answer = func(*ferrule.Call) (string, error) {
			go func() {
				w.Put(in(ferrule.StateOffline, "robot"), laid)
				time.Sleep(time.Second)
				w.Put(online("robot"), laid)
			}()
			time.Sleep(time.Millisecond)
			return "", ferrule.Errorf(ferrule.Unanswered, "the link broke")
		}
		w.Put(online("robot"), laid)
		time.Sleep(time.Hour)
		if n := len(w.times("robot look")); n < 30 || n > 40 {
			t.Errorf("it was made to crash %d times in an hour", n)
		}
		w.Remove("robot")
		time.Sleep(time.Second)
	})
}

// TestKindChanges: another firmware is asked for what it has, and what went before is
// forgotten.
func TestKindChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.answer = func(*ferrule.Call) (string, error) { return "", ferrule.Errorf(ferrule.Unanswered, "silence") }
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.answer = nil })
		other := polled(time.Second)
		other.Tools[0].Name = "peek"
		dev := online("robot")
		dev.Kind = "k2"
		w.Put(dev, other)
		w.forget()
		time.Sleep(10 * time.Second)
		if n := len(w.times("robot peek")); n < 9 || n > 11 || len(w.times("robot look")) != 0 {
			t.Errorf("asked %d and %d times", n, len(w.times("robot look")))
		}
	})
}

// TestElsewhere: what another node has asked a device for, because it has it by now, is not
// recorded here.
func TestElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(p *poller.Parts) {
			p.Handle = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				return &ferrule.Result{Value: json.RawMessage("1")}, nil // times do not come from there
			}
		})
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Second)
		if s := w.Stats(); s.Reads < 2 || s.Failures != s.Reads || s.Samples != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

// TestFastest: nothing is asked more often than the config says.
func TestFastest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(p *poller.Parts) { p.Config.Fastest = 5 * time.Second })
		w.Put(online("robot"), polled(time.Millisecond))
		time.Sleep(100 * time.Second)
		for _, gap := range gaps(w.times("robot look")) {
			if !near(gap, 5*time.Second) {
				t.Errorf("asked again after %v", gap)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	if err := poller.DefaultConfig().Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*poller.Config){
		"fastest: want from 10ms to 1h0m0s, got 0s":     func(c *poller.Config) { c.Fastest = 0 },
		"fastest: want from 10ms to 1h0m0s, got 2h0m0s": func(c *poller.Config) { c.Fastest = 2 * time.Hour },
		"in_flight: want from 1 to 4096, got 0":         func(c *poller.Config) { c.InFlight = 0 },
		"in_flight: want from 1 to 4096, got 5000":      func(c *poller.Config) { c.InFlight = 5000 },
	} {
		c := poller.DefaultConfig()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
