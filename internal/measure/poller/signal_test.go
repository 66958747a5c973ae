package poller_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcpu"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/poller"
)

// says sets the answers of the devices, in order; the last one repeats. "silent" is an
// error.
func (w *fixture) says(all ...string) {
	n := 0
	w.set(func() {
		w.answer = func(*ferrule.Call) (string, error) {
			text := all[min(n, len(all)-1)]
			n++
			if text == "silent" {
				return "", ferrule.Errorf(ferrule.Failed, "no")
			}
			return text, nil
		}
	})
}

// show formats samples and the gaps between them.
func show(samples []ferrule.Sample, gaps []ferrule.Gap) string {
	var all []string
	for i, s := range samples {
		for _, h := range gaps {
			if i > 0 && h.To.Equal(s.Time) && (h.From.Equal(samples[i-1].Time) || h.From.After(samples[i-1].Time)) {
				all = append(all, fmt.Sprintf("(%s)", h.Reason))
			}
		}
		all = append(all, fmt.Sprint(s.Value))
	}
	return strings.Join(all, " ")
}

// TestGaps checks that a gap is recorded if a poll failed or brought no number.
func TestGaps(t *testing.T) {
	for name, test := range map[string]struct {
		says []string
		want string
	}{
		"no failure":              {[]string{"1", "2", "3"}, "1 2 3"},
		"failure at first":        {[]string{"silent", "silent", "1", "2"}, "1 2"},
		"one failure":             {[]string{"1", "silent", "2", "3"}, "1 (silent) 2 3"},
		"several failures":        {[]string{"1", "silent", "silent", "silent", "2", "3"}, "1 (silent) 2 3"},
		"no number":               {[]string{"1", "null", "2", "3"}, "1 (silent) 2 3"},
		"no number at first":      {[]string{"null", "1", "2"}, "1 2"},
		"number out of range":     {[]string{"1", "1e999", "2"}, "1 (silent) 2"},
		"no number, then failure": {[]string{"1", "null", "silent", "2"}, "1 (silent) 2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, nil)
				w.says(test.says...)
				w.Put(online("robot"), polled(time.Second))
				for w.Stats().Reads < uint64(len(test.says)) {
					time.Sleep(time.Second / 2)
				}
				synctest.Wait()
				w.Remove("robot")
				if got := show(w.recorded("robot", "look")); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestGapsOfMembers checks that a missing member leaves a gap in its signal only.
func TestGapsOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.says(`{"a":1,"b":1}`, `{"a":2}`, `{"a":3,"b":3}`, `{"a":4,"b":4}`)
		w.Put(online("robot"), polled(time.Second))
		for w.Stats().Reads < 4 {
			time.Sleep(time.Second / 2)
		}
		synctest.Wait()
		w.Remove("robot")
		for signal, want := range map[string]string{"look_a": "1 2 3 4", "look_b": "1 (silent) 3 4"} {
			if got := show(w.recorded("robot", signal)); got != want {
				t.Errorf("%s: got %s, want %s", signal, got, want)
			}
		}
	})
}

// TestGapWhileOffline checks the gap of a device that was offline.
func TestGapWhileOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		manifest := polled(10 * time.Second)
		w.Put(online("robot"), manifest)
		time.Sleep(15 * time.Second)
		w.Put(in(ferrule.StateOffline, "robot"), manifest)
		time.Sleep(10 * time.Minute)
		w.Put(online("robot"), manifest)
		time.Sleep(15 * time.Second)
		samples, gaps := w.recorded("robot", "look")
		if len(samples) < 3 || len(gaps) != 1 || gaps[0].Reason != ferrule.Silent || gaps[0].To.Sub(gaps[0].From) < 10*time.Minute || gaps[0].MaxMissing < 58 || gaps[0].MaxMissing > 62 {
			t.Errorf("%d samples, gaps %+v", len(samples), gaps)
		}
	})
}

// TestDropped checks that a reading that Publish refused leaves a gap, and that polling
// keeps its interval.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Second)
		w.set(func() { w.refuse = true })
		time.Sleep(10 * time.Second)
		w.set(func() { w.refuse = false })
		time.Sleep(10 * time.Second)
		for _, gap := range intervals(w.times("robot look")) {
			if !near(gap, time.Second) {
				t.Errorf("interval is %v, want 1s", gap)
			}
		}
		samples, gaps := w.recorded("robot", "look")
		if len(samples) < 17 || len(samples) > 23 || len(gaps) != 1 || gaps[0].Reason != ferrule.Dropped || gaps[0].MaxMissing < 8 || gaps[0].MaxMissing > 11 {
			t.Errorf("%d samples, gaps %+v", len(samples), gaps)
		}
		if s := w.Stats(); s.Dropped < 9 || s.Dropped > 11 || int(s.Samples) != len(samples) || s.Failures != 0 || s.BackingOff != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestRingDropped checks that samples of a ring that were lost while Publish refused
// readings have the reason dropped, not lost.
func TestRingDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{interval: 500 * time.Millisecond, size: 20, start: time.Now()}
		w := open(t, nil)
		w.answer = func(*ferrule.Call) (string, error) { return r.answer(), nil }
		w.Put(online("robot"), &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Polls: []ferrule.Poll{{Name: "light", Tool: "get_pin_buffer", Ring: &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size}}},
		})
		time.Sleep(time.Minute)
		w.set(func() { w.refuse = true })
		time.Sleep(time.Minute)
		w.set(func() { w.refuse = false })
		time.Sleep(time.Minute)
		if _, gaps := w.recorded("robot", "light"); len(gaps) != 1 || gaps[0].Reason != ferrule.Dropped || gaps[0].To.Sub(gaps[0].From) < 45*time.Second {
			t.Errorf("%+v", gaps)
		}
	})
}

// TestDroppedAtFirst checks that readings dropped before the first sample leave no gap.
func TestDroppedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.refuse = true
		w.says(`{"a":1,"b":2}`)
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.refuse = false })
		time.Sleep(10 * time.Second)
		for _, signal := range []string{"look_a", "look_b"} {
			if samples, gaps := w.recorded("robot", signal); len(samples) < 9 || len(gaps) != 0 {
				t.Errorf("%d samples of %s, gaps %+v", len(samples), signal, gaps)
			}
		}
	})
}

// thresholdPin returns a manifest with a pin that has thresholds.
func thresholdPin() *ferrule.Manifest {
	return &ferrule.Manifest{
		Tools: []ferrule.Tool{{Name: "get_pin_events", Effect: ferrule.Reads}},
		Pins: []ferrule.Pin{{
			Number: 34, Name: "light", Abilities: []string{"events"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(500 * time.Millisecond)},
		}},
	}
}

func withMCPU(p *poller.Parts) {
	p.Polls = map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": mcpu.Polls}
}

// TestStateChanges checks that a change of state is recorded with the time range in which
// it happened, and that the last value seen is recorded before a gap and at the end.
func TestStateChanges(t *testing.T) {
	const high, low, none = `{"events":[{"type":"threshold_high"}]}`, `{"events":[{"type":"threshold_low"}]}`, `{"events":[]}`
	for name, test := range map[string]struct {
		says []string
		want string // values with the polls that each lies between, and gaps
	}{
		"first":                    {[]string{none, none, none}, "0@0 0@2"},
		"up and down":              {[]string{none, none, high, high, none, low}, "0@0 1@1-2 0@3-4 -1@4-5 -1@5"},
		"failure before a change":  {[]string{none, none, "silent", "silent", high}, "0@0 0@1 (silent 1-4) 1@4"},
		"failure without a change": {[]string{none, high, "silent", high, high}, "0@0 1@0-1 1@1 (silent 1-3) 1@3 1@4"},
		"failure at first":         {[]string{"silent", high, high}, "1@1 1@2"},
		"answer without a state":   {[]string{high, `{}`, high, none}, "1@0 (silent 0-2) 1@2 0@2-3 0@3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, withMCPU)
				w.took = func(*ferrule.Call) time.Duration { return 20 * time.Millisecond }
				w.says(test.says...)
				w.Put(online("robot"), thresholdPin())
				for w.Stats().Reads < uint64(len(test.says)) {
					time.Sleep(time.Second / 2)
				}
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				w.Remove("robot")
				samples, gaps := w.recorded("robot", "light_threshold")
				times := w.times("robot get_pin_events")
				var got []string
				for _, s := range samples {
					for _, h := range gaps {
						if h.To.Equal(s.Time) {
							got = append(got, fmt.Sprintf("(%s %s)", h.Reason, spanned(w, times, h.From, h.To)))
						}
					}
					got = append(got, fmt.Sprintf("%v@%s", s.Value, spanned(w, times, s.Time.Add(-time.Duration(s.Within)), s.Time.Add(time.Duration(s.Within)))))
				}
				if all := strings.Join(got, " "); all != test.want {
					t.Errorf("got %s, want %s", all, test.want)
				}
			})
		})
	}
}

// spanned returns the polls in which a range begins and ends. The range of a poll is from
// the oldest possible latest sample to its answer.
func spanned(w *fixture, times []time.Duration, from, to time.Time) string {
	first, last := -1, -1
	for i, at := range times {
		begin, end := w.start.Add(at-557*time.Millisecond), w.start.Add(at+20*time.Millisecond)
		if !from.Before(begin) && !from.After(end) {
			first = i
		}
		if !to.Before(begin) && !to.After(end) {
			last = i
		}
	}
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// TestSteadyState checks that an unchanged state is recorded every minute.
func TestSteadyState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, withMCPU)
		w.says(`{"events":[]}`)
		w.Put(online("robot"), thresholdPin())
		time.Sleep(time.Hour)
		samples, gaps := w.recorded("robot", "light_threshold")
		if len(samples) < 58 || len(samples) > 60 || len(gaps) != 0 {
			t.Errorf("%d samples, gaps %+v", len(samples), gaps)
		}
		if s := w.Stats(); int(s.Samples) != len(samples) || s.Reads < 3500 {
			t.Errorf("stats %+v", s)
		}
	})
}

// history is a fake of what was recorded before.
type history struct {
	mu      sync.Mutex
	samples map[string][]ferrule.Sample
	fails   atomic.Int32 // errors to return first
	calls   atomic.Int32
	cut     atomic.Bool // a gap follows the last samples
}

func (p *history) Tail(_ context.Context, device, signal string, n int) ([]ferrule.Sample, error) {
	p.calls.Add(1)
	if p.fails.Add(-1) >= 0 {
		return nil, errors.New("not ready")
	}
	if p.cut.Load() {
		return nil, nil
	}
	all := p.all(device + " " + signal)
	return all[max(0, len(all)-n):], nil
}

func (p *history) Recorded(_ context.Context, device string) (all []ferrule.Latest, err error) {
	p.calls.Add(1)
	if p.fails.Add(-1) >= 0 {
		return nil, errors.New("not ready")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, samples := range p.samples {
		if signal, ok := strings.CutPrefix(name, device+" "); ok {
			all = append(all, ferrule.Latest{Signal: signal, Sample: samples[len(samples)-1]})
		}
	}
	return all, nil
}

func (p *history) add(signal string, samples []ferrule.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples[signal] = append(p.samples[signal], samples...)
}

func (p *history) all(signal string) []ferrule.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.samples[signal]
}

// TestResume checks that a new poller continues from the recorded samples, with a gap for
// the time between.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := time.Now().Add(-time.Hour)
		p := &history{samples: map[string][]ferrule.Sample{
			"robot look":            {{Time: old.Add(-time.Second), Value: 1}, {Time: old, Value: 2}},
			"robot light_threshold": {{Time: old, Value: 1}},
		}}
		p.fails.Store(2)
		w := open(t, func(parts *poller.Parts) { withMCPU(parts); parts.History = p })
		w.answer = func(call *ferrule.Call) (string, error) {
			if call.Tool == "look" {
				return "3", nil
			}
			return `{"events":[{"type":"threshold_high"}]}`, nil
		}
		manifest := thresholdPin()
		manifest.Tools = append(manifest.Tools, ferrule.Tool{Name: "look", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		w.Put(online("robot"), manifest)
		time.Sleep(10 * time.Second)
		for _, signal := range []string{"look", "light_threshold"} {
			samples, gaps := w.recorded("robot", signal)
			if len(samples) == 0 || len(gaps) != 1 || !gaps[0].From.Equal(old) || !gaps[0].To.Equal(samples[0].Time) || gaps[0].Reason != ferrule.Silent {
				t.Errorf("%s: %+v, %+v", signal, samples, gaps)
			}
		}
		if n := p.calls.Load(); n != 3 { // two failures, then once for both
			t.Errorf("%d reads of the history, want 3", n)
		}
		for _, gap := range intervals(w.times("robot look")) { // a failing history does not slow down polling
			if !near(gap, time.Second) {
				t.Errorf("interval is %v, want 1s", gap)
			}
		}
	})
}

// TestResumeClockSetBack checks that a change of state is recorded even if the recorded
// state is in the future.
func TestResumeClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &history{samples: map[string][]ferrule.Sample{"robot light_threshold": {{Time: time.Now().Add(time.Hour), Value: 1}}}}
		w := open(t, func(parts *poller.Parts) { withMCPU(parts); parts.History = p })
		w.took = func(*ferrule.Call) time.Duration { return 20 * time.Millisecond }
		w.says(`{"events":[]}`)
		w.Put(online("robot"), thresholdPin())
		time.Sleep(15 * time.Minute)
		if samples, _ := w.recorded("robot", "light_threshold"); len(samples) < 14 || samples[0].Value != 0 || samples[0].Time.After(w.start.Add(10*time.Second)) {
			t.Errorf("%+v", samples)
		}
	})
}

// TestResumeRingAfterGap checks that samples are not recorded twice if a ring ended with a
// gap before the restart.
func TestResumeRingAfterGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{interval: 500 * time.Millisecond, size: 20, start: time.Now()}
		p := &history{samples: make(map[string][]ferrule.Sample)}
		manifest := &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Polls: []ferrule.Poll{{Name: "light", Tool: "get_pin_buffer", Ring: &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size}}},
		}
		broken := regexp.MustCompile(`\b10\d\b|\b11[0-4]\b`) // seven seconds
		for _, until := range []time.Duration{56500 * time.Millisecond, time.Minute} {
			w := open(t, func(parts *poller.Parts) { parts.History = p })
			w.answer = func(*ferrule.Call) (string, error) { return broken.ReplaceAllString(r.answer(), "null"), nil }
			w.Put(online("robot"), manifest)
			time.Sleep(until)
			w.Remove("robot")
			samples, _ := w.recorded("robot", "light")
			p.add("robot light", samples)
			p.cut.Store(true)
		}
		last := -1
		for _, s := range p.all("robot light") {
			n := int(s.Value)
			if n <= last || n > last+1 && last != 99 || s.Time.Sub(r.taken(n)).Abs() > time.Duration(s.Within) {
				t.Fatalf("%+v was recorded after %d", s, last)
			}
			last = n
		}
		if last < 200 {
			t.Errorf("the last value is %d, want at least 200", last)
		}
	})
}

// ring is a device with a ring buffer whose values count up.
type ring struct {
	interval time.Duration
	size     int
	start    time.Time
	first    atomic.Int64 // the first value since its restart
}

func (r *ring) taken(n int) time.Time { return r.start.Add(time.Duration(n) * r.interval) }

func (r *ring) held(now time.Time) (from, to int) {
	to = int(now.Sub(r.start)/r.interval) + 1
	return max(int(r.first.Load()), to-r.size), to
}

func (r *ring) answer() string {
	var values []string
	for n, to := r.held(time.Now()); n < to; n++ {
		values = append(values, fmt.Sprint(n))
	}
	return fmt.Sprintf(`{"pin":"light","count":%d,"values":[%s]}`, len(values), strings.Join(values, ","))
}

// TestRing checks that each sample of a ring is recorded once with its time, or lies in a
// gap: with failed reads, dropped readings, and restarts of the device and the gateway.
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(9, 9))
		r := &ring{interval: 500 * time.Millisecond, size: 120, start: time.Now()}
		p := &history{samples: make(map[string][]ferrule.Sample)}
		var trouble atomic.Bool
		manifest := &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Pins: []ferrule.Pin{{
				Number: 34, Name: "light", Abilities: []string{"buffer"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size},
			}},
		}
		begin := func() (*fixture, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			w := open(t, func(parts *poller.Parts) {
				withMCPU(parts)
				parts.History = p
				take := parts.Publish
				parts.Publish = func(r ferrule.Reading) bool {
					if ctx.Err() != nil || !take(r) {
						return false
					}
					p.add("robot light", r.Batches[0].Samples)
					return true
				}
			})
			w.took = func(*ferrule.Call) time.Duration { return 7 * time.Millisecond }
			failed := false
			w.answer = func(*ferrule.Call) (string, error) {
				if failed = trouble.Load() && !failed && rnd.IntN(2) == 0; failed { // never twice in a row
					return "", ferrule.Errorf([]ferrule.Code{ferrule.Failed, ferrule.Unanswered}[rnd.IntN(2)], "noise")
				}
				return r.answer(), nil
			}
			w.Put(online("robot"), manifest)
			return w, func() { cancel(); w.Remove("robot") }
		}
		w, end := begin()
		time.Sleep(10 * time.Minute)
		if s := w.Stats(); s.Reads < 22 || s.Reads > 28 { // every 0.4 minutes
			t.Errorf("%d reads in ten minutes, want about 25", s.Reads)
		}
		w.set(func() { w.refuse = true }) // shorter than the ring
		for w.Stats().Dropped == 0 {
			time.Sleep(time.Second)
		}
		w.set(func() { w.refuse = false })
		time.Sleep(time.Minute)
		trouble.Store(true)
		time.Sleep(10 * time.Minute)
		trouble.Store(false)
		time.Sleep(time.Minute)
		if _, gaps := w.recorded("robot", "light"); len(gaps) != 0 || w.Stats().Failures < 5 || w.Stats().Dropped == 0 {
			t.Errorf("%d failed reads, %d dropped readings, want no gap: %+v", w.Stats().Failures, w.Stats().Dropped, gaps)
		}
		w.Put(in(ferrule.StateOffline, "robot"), manifest) // longer than the ring
		time.Sleep(5 * time.Minute)
		w.Put(online("robot"), manifest)
		time.Sleep(2 * time.Minute)
		_, restarted := r.held(time.Now())
		r.first.Store(int64(restarted))
		time.Sleep(3 * time.Minute)
		_, all := w.recorded("robot", "light")
		end() // restart the gateway, faster than the ring overflows
		time.Sleep(30 * time.Second)
		w, end = begin()
		time.Sleep(3 * time.Minute)
		_, more := w.recorded("robot", "light")
		all = append(all, more...)
		end()

		samples := p.all("robot light")
		next, missing := 0, 0
		var within []time.Duration
		for _, s := range samples {
			n := int(s.Value)
			if n < next {
				t.Fatalf("%d recorded after %d", n, next-1)
			}
			if n > next {
				missing += n - next
				if !inGap(all, r.taken(next), r.taken(n-1)) {
					t.Errorf("%d to %d are missing without a gap", next, n-1)
				}
			}
			next = n + 1
			within = append(within, time.Duration(s.Within))
			if off := s.Time.Sub(r.taken(n)).Abs(); off > time.Duration(s.Within) {
				t.Errorf("time of %d is off by %v, limit is %v", n, off, s.Within)
			}
		}
		_, to := r.held(time.Now())
		if to-next > r.size || len(samples) < 2500 || missing < 2*(5*60-60)-10 {
			t.Errorf("%d samples up to %d of %d, %d missing", len(samples), next, to, missing)
		}
		slices.Sort(within)
		if half := within[len(within)/2]; half > r.interval/2 {
			t.Errorf("half of the samples are uncertain by more than %v", half)
		}
		t.Logf("%d samples, half of them within %v; %d missing in %d gaps", len(samples), within[len(within)/2], missing, len(all))
	})
}

// inGap reports whether a time range lies in a gap.
func inGap(gaps []ferrule.Gap, from, to time.Time) bool {
	const slack = 500 * time.Millisecond // the ends of gaps are estimates
	for _, h := range gaps {
		if !from.Before(h.From.Add(-slack)) && !to.After(h.To.Add(slack)) {
			return true
		}
	}
	return false
}

// TestRingOfOverlay checks a ring that only the overlay declares, or declares differently.
func TestRingOfOverlay(t *testing.T) {
	for name, manifest := range map[string]*ferrule.Manifest{
		"device declares nothing": {
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Polls: []ferrule.Poll{{Name: "light", Tool: "get_pin_buffer", Args: []byte(`{"pin":0,"limit":20}`)}},
		},
		"device declares another ring": {
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Pins: []ferrule.Pin{{
				Number: 0, Name: "light", Abilities: []string{"buffer"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(time.Minute), Size: 7},
			}},
			Polls: []ferrule.Poll{{Name: "light"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &ring{interval: 500 * time.Millisecond, size: 20, start: time.Now()}
				manifest.Polls[0].Ring = &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size}
				w := open(t, withMCPU)
				w.answer = func(*ferrule.Call) (string, error) { return r.answer(), nil }
				w.Put(online("robot"), manifest)
				time.Sleep(5 * time.Minute)
				for _, gap := range intervals(w.times("robot get_pin_buffer")) {
					if gap < 3700*time.Millisecond || gap > 4700*time.Millisecond { // it may wait for the middle of a sample interval
						t.Errorf("interval is %v, want about 4s", gap)
					}
				}
				samples, gaps := w.recorded("robot", "light")
				for i, s := range samples {
					if int(s.Value) != i || s.Time.Sub(r.taken(i)).Abs() > time.Duration(s.Within) {
						t.Fatalf("sample %d is %+v", i, s)
					}
				}
				if len(samples) < 580 || len(gaps) != 0 {
					t.Errorf("%d samples, gaps %+v", len(samples), gaps)
				}
			})
		})
	}
}

// TestLatestOfSlowDevice checks the time of samples of a device that samples more slowly
// than it declares.
func TestLatestOfSlowDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{interval: 540 * time.Millisecond, size: 1, start: time.Now()}
		w := open(t, withMCPU)
		w.took = func(*ferrule.Call) time.Duration { return 7 * time.Millisecond }
		w.answer = func(*ferrule.Call) (string, error) {
			n, _ := r.held(time.Now())
			return fmt.Sprintf(`{"latest":%d,"samples":%d}`, n, n+1), nil
		}
		w.Put(online("robot"), &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_summary", Effect: ferrule.Reads}},
			Pins: []ferrule.Pin{{
				Number: 34, Name: "light", Abilities: []string{"summary"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(500 * time.Millisecond)},
			}},
		})
		time.Sleep(10 * time.Minute)
		samples, _ := w.recorded("robot", "light")
		for _, s := range samples {
			if off := s.Time.Sub(r.taken(int(s.Value))).Abs(); off > time.Duration(s.Within) {
				t.Errorf("time of %v is off by %v, limit is %v", s.Value, off, s.Within)
			}
		}
		if len(samples) < 500 {
			t.Errorf("%d samples", len(samples))
		}
	})
}

// TestBufferOfUnknownSize checks the buffer of a polled tool, which does not declare how
// many samples it keeps.
func TestBufferOfUnknownSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{interval: 500 * time.Millisecond, size: 50, start: time.Now()}
		w := open(t, nil)
		w.answer = func(*ferrule.Call) (string, error) {
			return strings.Replace(r.answer(), "{", `{"type":"buffer","sample_interval_ms":500,`, 1), nil
		}
		w.Put(online("robot"), polled(10*time.Second))
		time.Sleep(5 * time.Minute)
		samples, gaps := w.recorded("robot", "look")
		for i, s := range samples {
			if int(s.Value) != i || s.Time.Sub(r.taken(i)).Abs() > time.Duration(s.Within) {
				t.Fatalf("sample %d is %+v", i, s)
			}
		}
		if len(samples) < 570 || len(gaps) != 0 {
			t.Errorf("%d samples, gaps %+v", len(samples), gaps)
		}
	})
}
