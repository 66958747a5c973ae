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

// fixture is a poller with fake devices behind its pipeline, and a record of its readings.
type fixture struct {
	*poller.Poller
	t     *testing.T
	start time.Time

	mu       sync.Mutex
	answer   func(call *ferrule.Call) (string, error) // "1" if nil
	took     func(call *ferrule.Call) time.Duration   // 0 if nil
	refuse   bool                                     // Publish has no room
	calls    map[string][]time.Duration               // times of calls, by device and tool
	timeouts map[string]time.Duration
	readings []ferrule.Reading
	last     map[string]string          // the last tool called, by device
	results  map[string]ferrule.Reading // the last reading, by device and tool
	running  map[string]bool            // devices with a call
	most     int                        // the largest number of them
}

// open starts a poller. It ends with the test, which must run in a synctest bubble.
func open(t *testing.T, change func(*poller.Parts)) *fixture {
	t.Helper()
	w := &fixture{
		t: t, start: time.Now(), calls: make(map[string][]time.Duration), timeouts: make(map[string]time.Duration),
		last: make(map[string]string), results: make(map[string]ferrule.Reading), running: make(map[string]bool),
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

func (w *fixture) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	w.mu.Lock()
	if w.running[call.Device] {
		w.t.Errorf("two calls of %s at once", call.Device)
	}
	if call.Principal != (ferrule.Principal{Role: ferrule.Gateway, Name: "poller"}) || call.Operation != ferrule.CallTool {
		w.t.Errorf("call of %s by %v", call.Operation, call.Principal)
	}
	w.running[call.Device] = true
	w.last[call.Device] = call.Tool
	w.most = max(w.most, len(w.running))
	sent := time.Now()
	key := call.Device + " " + call.Tool
	w.calls[key] = append(w.calls[key], sent.Sub(w.start))
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
	delete(w.running, call.Device)
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &ferrule.Result{Value: json.RawMessage(text), Sent: sent, Answered: time.Now()}, nil
}

func (w *fixture) publish(r ferrule.Reading) bool {
	if err := r.Check(); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse {
		return false
	}
	w.readings = append(w.readings, r)
	w.results[r.Device+" "+w.last[r.Device]] = r
	return true
}

// set runs change with the lock held.
func (w *fixture) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// seen returns the number of tools called, the largest number of calls at once, and the
// readings.
func (w *fixture) seen() (calls, most int, readings []ferrule.Reading) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls), w.most, w.readings
}

// reset forgets the calls and readings so far.
func (w *fixture) reset() { w.set(func() { clear(w.calls); w.readings = nil }) }

// times returns when a tool was called, by "device tool".
func (w *fixture) times(key string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[key]
}

// intervals returns the intervals between times.
func intervals(times []time.Duration) (all []time.Duration) {
	for i := 1; i < len(times); i++ {
		all = append(all, times[i]-times[i-1])
	}
	return all
}

// recorded returns the samples and gaps of a signal.
func (w *fixture) recorded(device, signal string) (samples []ferrule.Sample, gaps []ferrule.Gap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.readings {
		for _, s := range r.Batches {
			if r.Device == device && s.Signal == signal {
				samples, gaps = append(samples, s.Samples...), append(gaps, s.Gaps...)
			}
		}
	}
	return samples, gaps
}

func online(id string) *ferrule.Device {
	return &ferrule.Device{ID: id, Kind: "k", Protocol: "d", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}
}

// in returns a device in a given state.
func in(state ferrule.State, id string) *ferrule.Device {
	dev := online(id)
	dev.State = state
	return dev
}

// polled returns a manifest with one polled tool, look.
func polled(every time.Duration) *ferrule.Manifest {
	return &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "look", Effect: ferrule.Reads, Poll: ferrule.Duration(every)}}}
}

// slack is the resolution of the wheel.
const slack = 10 * time.Millisecond

// near reports whether d is within the jitter of want.
func near(d, want time.Duration) bool {
	return d >= want-want/20 && d <= want+want/20+slack
}

func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.took = func(*ferrule.Call) time.Duration { return 20 * time.Millisecond }
		w.Put(online("robot"), polled(2*time.Second))
		time.Sleep(1000 * time.Second)
		times := w.times("robot look")
		if n := len(times); n < 480 || n > 520 {
			t.Errorf("%d polls, want about 500", n)
		}
		if first := times[0]; first > 2*time.Second+slack {
			t.Errorf("first poll after %v", first)
		}
		shortest, longest := time.Hour, time.Duration(0)
		for _, gap := range intervals(times) {
			shortest, longest = min(shortest, gap), max(longest, gap)
		}
		if !near(shortest, 2*time.Second) || !near(longest, 2*time.Second) || longest-shortest < 100*time.Millisecond {
			t.Errorf("intervals from %v to %v, want about 2 s with jitter", shortest, longest)
		}
		_, _, readings := w.seen()
		if len(readings) != len(times) {
			t.Errorf("%d readings, want %d", len(readings), len(times))
		}
		r := readings[0]
		want := ferrule.Sample{Time: w.start.Add(times[0] + 10*time.Millisecond), Value: 1, Within: ferrule.Duration(10 * time.Millisecond)}
		if r.Device != "robot" || r.Node != "here" || r.Poll != "look" || !r.Time.Equal(w.start.Add(times[0]+20*time.Millisecond)) ||
			len(r.Batches) != 1 || r.Batches[0].Signal != "look" || len(r.Batches[0].Samples) != 1 || r.Batches[0].Samples[0] != want || len(r.Batches[0].Gaps) != 0 {
			t.Errorf("got %+v", r)
		}
		if s := w.Stats(); s.Devices != 1 || s.Polls != 1 || s.BackingOff != 0 || int(s.Reads) != len(times) || s.Failures != 0 || int(s.Samples) != len(times) || s.Late.Quantile(1) > 10*time.Millisecond {
			t.Errorf("stats %+v", s)
		}
	})
}

// goroutines counts the poller's goroutines.
func goroutines() (n int) {
	buf := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(one, "poller.(*Poller)") {
			n++
		}
	}
	return n
}

// TestManySignals checks that ten thousand signals need one goroutine at rest, and no more
// workers than InFlight.
func TestManySignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices, each, every = 625, 16, 5 * time.Second
		w := open(t, func(p *poller.Parts) { p.Config.InFlight = 32 })
		w.took = func(*ferrule.Call) time.Duration { return 5 * time.Millisecond }
		manifest := &ferrule.Manifest{}
		for i := range each {
			manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(every)})
		}
		for i := range devices {
			w.Put(online(fmt.Sprint("d", i)), manifest)
		}
		synctest.Wait()
		if n := goroutines(); n != 1 {
			t.Errorf("%d goroutines at rest, want 1", n)
		}
		most := 0
		for range 97 {
			time.Sleep(105 * time.Millisecond)
			most = max(most, goroutines())
		}
		_, atOnce, _ := w.seen()
		if most > 1+32 || most < 8 || atOnce > 32 || atOnce < 8 {
			t.Errorf("%d goroutines, %d calls at once, limit is 32", most, atOnce)
		}
		for i := range devices {
			for j := range each {
				key := fmt.Sprintf("d%d look%d", i, j)
				if n := len(w.times(key)); n < 1 || n > 3 {
					t.Errorf("%s was polled %d times, want about 2", key, n)
				}
			}
		}
		s := w.Stats()
		if s.Polls != devices*each || s.Samples+32 < s.Reads || s.Late.Quantile(0.99) > 50*time.Millisecond {
			t.Errorf("stats %+v", s)
		}
		t.Logf("%d signals of %d devices, %d reads per second: up to %d devices at once, 99 %% of reads late by at most %v",
			devices*each, devices, s.Reads/10, atOnce, s.Late.Quantile(0.99))
		for i := range devices {
			w.Remove(fmt.Sprint("d", i))
		}
		time.Sleep(time.Minute)
		w.reset()
		time.Sleep(time.Minute)
		calls, _, _ := w.seen()
		if n := goroutines(); n != 1 || calls != 0 || w.Stats().Polls != 0 {
			t.Errorf("%d goroutines and %d polls after all devices were removed", n, calls)
		}
	})
}

// TestInFlight checks the limit of concurrent polls, and that each device gets its turn.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(p *poller.Parts) { p.Config.InFlight = 3 })
		w.took = func(*ferrule.Call) time.Duration { return time.Second }
		for i := range 30 {
			w.Put(online(fmt.Sprint("d", i)), polled(4*time.Second))
		}
		time.Sleep(200 * time.Second)
		if _, most, _ := w.seen(); most != 3 {
			t.Errorf("%d polls at once, want 3", most)
		}
		for i := range 30 {
			if n := len(w.times(fmt.Sprintf("d%d look", i))); n < 18 || n > 22 {
				t.Errorf("d%d was polled %d times, want about 20", i, n)
			}
		}
	})
}

// TestOneAtATime checks that the polls of one device run one at a time, and all of them run.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.took = func(*ferrule.Call) time.Duration { return 100 * time.Millisecond }
		manifest := &ferrule.Manifest{}
		for i := range 20 {
			manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		}
		w.Put(online("robot"), manifest)
		time.Sleep(100 * time.Second)
		for i := range 20 {
			if n := len(w.times(fmt.Sprint("robot look", i))); n < 45 || n > 52 {
				t.Errorf("look%d was polled %d times, want about 50", i, n)
			}
		}
		if s := w.Stats(); s.Late.Quantile(0.5) < 100*time.Millisecond {
			t.Errorf("no poll was late: %+v", s.Late)
		}
	})
}

// TestSlowDevice checks that a device with slow answers is polled less often, until its
// answers are fast again.
func TestSlowDevice(t *testing.T) {
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
			time.Sleep(20 * time.Second) // let the interval settle
			w.reset()
			time.Sleep(100 * time.Second)
			for _, gap := range intervals(w.times("robot look")) {
				if !near(gap, test.want) {
					t.Errorf("answers take %v: interval is %v, want %v", test.took, gap, test.want)
				}
			}
			if len(w.times("robot look")) < 10 {
				t.Errorf("answers take %v: %d polls", test.took, len(w.times("robot look")))
			}
		}
	})
}

// TestBackOff checks that each failure doubles the pause, and that a success resets it.
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
				all := intervals(w.times("robot look"))
				for i, gap := range all {
					if !near(gap, want) {
						t.Errorf("pause %d was %v, want %v", i, gap, want)
					}
					want = min(2*want, 2*time.Minute)
				}
				if s := w.Stats(); len(all) < 10 || s.BackingOff != 1 || s.Failures != s.Reads || s.Samples != 0 {
					t.Errorf("%d pauses, stats %+v", len(all), s)
				}
				w.set(func() { w.answer = nil })
				w.reset()
				time.Sleep(5 * time.Minute)
				for i, gap := range intervals(w.times("robot look")) {
					if !near(gap, time.Second) {
						t.Errorf("pause %d after recovery is %v, want 1s", i, gap)
					}
				}
				if s := w.Stats(); len(w.times("robot look")) < 100 || s.BackingOff != 0 {
					t.Errorf("%d polls after recovery, stats %+v", len(w.times("robot look")), s)
				}
			})
		})
	}
}

// TestDevicePause checks that a device that does not answer pauses all its polls, and that
// a failing tool pauses only its own.
func TestDevicePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := &ferrule.Manifest{}
		for i := range 10 {
			manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: fmt.Sprint("look", i), Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		}
		w.took = func(call *ferrule.Call) time.Duration { return time.Duration(call.Timeout) }
		w.answer = func(*ferrule.Call) (string, error) { return "", ferrule.Errorf(ferrule.Unanswered, "silence") }
		w.Put(online("robot"), manifest)
		time.Sleep(10 * time.Minute)
		w.reset()
		time.Sleep(20 * time.Minute)
		n := 0
		for i := range 10 {
			n += len(w.times(fmt.Sprint("robot look", i)))
		}
		if n < 8 || n > 12 {
			t.Errorf("%d polls of a silent device in 20 minutes, want about 10", n)
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
		w.reset()
		time.Sleep(4 * time.Minute)
		for i := range 10 {
			want := 240
			if i == 3 {
				want = 2
			}
			if n := len(w.times(fmt.Sprint("robot look", i))); n < want*9/10 || n > want*11/10+1 {
				t.Errorf("look%d was polled %d times, want %d", i, n, want)
			}
		}
	})
}

// TestPauseLimit checks that a rare poll without an answer does not pause the others for
// longer than the limit.
func TestPauseLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := polled(time.Second)
		manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: "seldom", Effect: ferrule.Reads, Poll: ferrule.Duration(6 * time.Hour)})
		w.answer = func(call *ferrule.Call) (string, error) {
			if call.Tool == "seldom" {
				return "", ferrule.Errorf(ferrule.Unanswered, "silence")
			}
			return "1", nil
		}
		w.Put(online("robot"), manifest)
		time.Sleep(time.Hour)
		if n := len(w.times("robot seldom")); n != 1 {
			t.Fatalf("%d rare polls, want 1", n)
		}
		for _, gap := range intervals(w.times("robot look")) {
			if gap > 2*time.Minute+8*time.Second { // the limit, jitter and one interval
				t.Errorf("pause of %v", gap)
			}
		}
		if n := len(w.times("robot look")); n < 3300 {
			t.Errorf("%d polls, want about 3600", n)
		}
	})
}

// TestTimeout checks that the timeout of a call depends on the interval, unless the tool
// has a deadline.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for name, test := range map[string]struct{ every, deadline, want time.Duration }{
			"often":    {time.Second, 0, 5 * time.Second},
			"seldom":   {40 * time.Second, 0, 10 * time.Second},
			"never":    {10 * time.Minute, 0, 30 * time.Second},
			"deadline": {time.Second, time.Minute, 0},
		} {
			manifest := polled(test.every)
			manifest.Tools[0].Deadline = ferrule.Duration(test.deadline)
			w.Put(online(name), manifest)
			time.Sleep(5*time.Second + slack)
			var got time.Duration
			w.set(func() { got = w.timeouts[name+" look"] })
			if got != test.want || len(w.times(name+" look")) == 0 {
				t.Errorf("%s: timeout is %v, want %v", name, got, test.want)
			}
		}
	})
}

// TestInactive checks that a device that is not online and trusted is not polled.
func TestInactive(t *testing.T) {
	manifest := polled(time.Second)
	pending := online("robot")
	pending.Trust = ferrule.TrustPending
	for name, away := range map[string]func(*fixture){
		"offline":  func(w *fixture) { w.Put(in(ferrule.StateOffline, "robot"), manifest) },
		"released": func(w *fixture) { w.Put(in(ferrule.StateReleased, "robot"), manifest) },
		"pending":  func(w *fixture) { w.Put(pending, manifest) },
		"removed":  func(w *fixture) { w.Remove("robot") },
		"unknown": func(w *fixture) {
			w.Put(&ferrule.Device{ID: "robot", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, nil)
				away(w)
				time.Sleep(10 * time.Second)
				if n := len(w.times("robot look")); n != 0 {
					t.Errorf("%d polls before it was online", n)
				}
				for range 3 {
					w.Put(online("robot"), manifest)
					w.Put(online("robot"), manifest) // no change
					time.Sleep(10 * time.Second)
					if n := len(w.times("robot look")); n < 9 || n > 11 {
						t.Errorf("%d polls, want about 10", n)
					}
					away(w)
					w.reset()
					time.Sleep(10 * time.Second)
					if n := len(w.times("robot look")); n != 0 || w.Stats().Polls != 0 {
						t.Errorf("%d polls while inactive", n)
					}
				}
			})
		})
	}
}

// TestInactiveDuringPoll changes the state and the Kind of a device while a poll runs.
func TestInactiveDuringPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.took = func(*ferrule.Call) time.Duration { return time.Second }
		manifest, other := polled(time.Second), polled(time.Second)
		other.Tools[0].Name = "peek"
		for range 200 {
			w.Put(online("robot"), manifest)
			time.Sleep(1300 * time.Millisecond)
			w.Put(in(ferrule.StateOffline, "robot"), manifest)
			w.Put(online("robot"), manifest)
			dev := online("robot")
			dev.Kind = "k2"
			w.Put(dev, other)
			time.Sleep(1700 * time.Millisecond)
		}
		if len(w.times("robot look")) < 100 || len(w.times("robot peek")) < 100 {
			t.Errorf("%d and %d polls, want at least 100 of each", len(w.times("robot look")), len(w.times("robot peek")))
		}
		w.Remove("robot")
		time.Sleep(2 * time.Second)
		w.reset()
		time.Sleep(10 * time.Second)
		if calls, _, _ := w.seen(); calls != 0 {
			t.Errorf("%d tools polled after the device was removed", calls)
		}
	})
}

// TestRemovedDuringPoll checks that a device that is removed and added while a poll runs
// still has one call at a time.
func TestRemovedDuringPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, withMCPU)
		w.took = func(*ferrule.Call) time.Duration { return 4 * time.Second }
		manifest := &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}, {Name: "get_pin_summary", Effect: ferrule.Reads}},
			Pins: []ferrule.Pin{{
				Number: 34, Name: "light", Abilities: []string{"buffer", "summary"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(time.Second), Size: 4},
			}},
		}
		w.answer = func(*ferrule.Call) (string, error) { return `{"buffer_available":false}`, nil }
		for range 20 {
			w.Put(online("robot"), manifest)
			for n := len(w.times("robot get_pin_buffer")); len(w.times("robot get_pin_buffer")) < n+2; {
				time.Sleep(100 * time.Millisecond)
			}
			w.Remove("robot") // while the second refusal is on its way
			w.Put(in(ferrule.StateOffline, "robot"), nil)
			w.Put(online("robot"), manifest)
			time.Sleep(20 * time.Second)
			w.Remove("robot")
			time.Sleep(10 * time.Second)
			if s := w.Stats(); s.Devices != 0 || s.Waiting != 0 {
				t.Fatalf("after removal: %+v", s)
			}
		}
	})
}

// TestBackOffAcrossReconnects checks that a poll that breaks the connection keeps backing
// off when the device reconnects.
func TestBackOffAcrossReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := polled(time.Second)
		w.answer = func(*ferrule.Call) (string, error) {
			go func() {
				w.Put(in(ferrule.StateOffline, "robot"), manifest)
				time.Sleep(time.Second)
				w.Put(online("robot"), manifest)
			}()
			time.Sleep(time.Millisecond)
			return "", ferrule.Errorf(ferrule.Unanswered, "the link broke")
		}
		w.Put(online("robot"), manifest)
		time.Sleep(time.Hour)
		if n := len(w.times("robot look")); n < 30 || n > 40 {
			t.Errorf("the device crashed %d times in an hour, want about 35", n)
		}
		w.Remove("robot")
		time.Sleep(time.Second)
	})
}

// TestKindChange checks that other firmware gets new polls without the old pauses.
func TestKindChange(t *testing.T) {
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
		w.reset()
		time.Sleep(10 * time.Second)
		if n := len(w.times("robot peek")); n < 9 || n > 11 || len(w.times("robot look")) != 0 {
			t.Errorf("%d and %d polls, want 10 and 0", n, len(w.times("robot look")))
		}
	})
}

// TestOtherNode checks that answers of a device on another node are not recorded here.
func TestOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(p *poller.Parts) {
			p.Handle = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				return &ferrule.Result{Value: json.RawMessage("1")}, nil // without times
			}
		})
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Second)
		if s := w.Stats(); s.Reads < 2 || s.Failures != s.Reads || s.Samples != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestFastest checks the shortest interval of the config.
func TestFastest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(p *poller.Parts) { p.Config.Fastest = 5 * time.Second })
		w.Put(online("robot"), polled(time.Millisecond))
		time.Sleep(100 * time.Second)
		for _, gap := range intervals(w.times("robot look")) {
			if !near(gap, 5*time.Second) {
				t.Errorf("interval is %v, want 5s", gap)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	if err := poller.DefaultConfig().Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*poller.Config){
		"fastest: must be between 10ms and 1h0m0s, got 0s":     func(c *poller.Config) { c.Fastest = 0 },
		"fastest: must be between 10ms and 1h0m0s, got 2h0m0s": func(c *poller.Config) { c.Fastest = 2 * time.Hour },
		"in_flight: must be between 1 and 4096, got 0":         func(c *poller.Config) { c.InFlight = 0 },
		"in_flight: must be between 1 and 4096, got 5000":      func(c *poller.Config) { c.InFlight = 5000 },
	} {
		c := poller.DefaultConfig()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
