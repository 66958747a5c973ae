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

// says has the devices say these, one after the other, and the last again and again.
// "silent" is none.
func (w *world) says(all ...string) {
	n := 0
	w.set(func() {
		w.answer = func(*ferrule.Call) (string, error) {
			said := all[min(n, len(all)-1)]
			n++
			if said == "silent" {
				return "", ferrule.Errorf(ferrule.Failed, "no")
			}
			return said, nil
		}
	})
}

// show is samples and holes as a text that can be compared: values, and between which of
// them something may be missing.
func show(samples []ferrule.Sample, holes []ferrule.Gap) string {
	var all []string
	for i, s := range samples {
		for _, h := range holes {
			if i > 0 && h.To.Equal(s.Time) && (h.From.Equal(samples[i-1].Time) || h.From.After(samples[i-1].Time)) {
				all = append(all, fmt.Sprintf("(%s)", h.Reason))
			}
		}
		all = append(all, fmt.Sprint(s.Value))
	}
	return strings.Join(all, " ")
}

// TestHoles: between two values, others may be missing if the device was not asked,
// did not answer, or gave no number.
func TestHoles(t *testing.T) {
	for name, test := range map[string]struct {
		says []string
		want string
	}{
		"all":                     {[]string{"1", "2", "3"}, "1 2 3"},
		"silence at first":        {[]string{"silent", "silent", "1", "2"}, "1 2"},
		"silence once":            {[]string{"1", "silent", "2", "3"}, "1 (silent) 2 3"},
		"silence for long":        {[]string{"1", "silent", "silent", "silent", "2", "3"}, "1 (silent) 2 3"},
		"no number":               {[]string{"1", "null", "2", "3"}, "1 (silent) 2 3"},
		"no number at first":      {[]string{"null", "1", "2"}, "1 2"},
		"a number that is none":   {[]string{"1", "1e999", "2"}, "1 (silent) 2"},
		"no number, then silence": {[]string{"1", "null", "silent", "2"}, "1 (silent) 2"},
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
				if got := show(w.told("robot", "look")); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestHolesOfMembers: a member that is missing for a while leaves a hole in its signal,
// and in no other.
func TestHolesOfMembers(t *testing.T) {
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
			if got := show(w.told("robot", signal)); got != want {
				t.Errorf("%s: got %s, want %s", signal, got, want)
			}
		}
	})
}

// TestHoleWhileAway: so does a device that was gone.
func TestHoleWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		laid := polled(10 * time.Second)
		w.Put(online("robot"), laid)
		time.Sleep(15 * time.Second)
		w.Put(in(ferrule.StateOffline, "robot"), laid)
		time.Sleep(10 * time.Minute)
		w.Put(online("robot"), laid)
		time.Sleep(15 * time.Second)
		samples, holes := w.told("robot", "look")
		if len(samples) < 3 || len(holes) != 1 || holes[0].Reason != ferrule.Silent || holes[0].To.Sub(holes[0].From) < 10*time.Minute || holes[0].MaxMissing < 58 || holes[0].MaxMissing > 62 {
			t.Errorf("%d samples, holes %+v", len(samples), holes)
		}
	})
}

// TestNotTaken: a reading for which there is no room has not happened. The device is asked
// again at its pace.
func TestNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Second)
		w.set(func() { w.refuse = true })
		time.Sleep(10 * time.Second)
		w.set(func() { w.refuse = false })
		time.Sleep(10 * time.Second)
		for _, gap := range gaps(w.times("robot look")) {
			if !near(gap, time.Second) {
				t.Errorf("asked again after %v", gap)
			}
		}
		samples, holes := w.told("robot", "look")
		if len(samples) < 17 || len(samples) > 23 || len(holes) != 1 || holes[0].Reason != ferrule.Dropped || holes[0].MaxMissing < 8 || holes[0].MaxMissing > 11 {
			t.Errorf("%d samples, holes %+v", len(samples), holes)
		}
		if s := w.Stats(); s.Dropped < 9 || s.Dropped > 11 || int(s.Samples) != len(samples) || s.Failures != 0 || s.BackingOff != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

// TestRingNotTaken: what a ring held while there was no room is told as such, and is not the
// device's fault.
func TestRingNotTaken(t *testing.T) {
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
		if _, holes := w.told("robot", "light"); len(holes) != 1 || holes[0].Reason != ferrule.Dropped || holes[0].To.Sub(holes[0].From) < 45*time.Second {
			t.Errorf("%+v", holes)
		}
	})
}

// TestNotTakenAtFirst: how long there is no room plays no part.
func TestNotTakenAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.refuse = true
		w.says(`{"a":1,"b":2}`)
		w.Put(online("robot"), polled(time.Second))
		time.Sleep(10 * time.Minute)
		w.set(func() { w.refuse = false })
		time.Sleep(10 * time.Second)
		for _, signal := range []string{"look_a", "look_b"} {
			if samples, holes := w.told("robot", signal); len(samples) < 9 || len(holes) != 0 {
				t.Errorf("%d samples of %s, holes %+v", len(samples), signal, holes)
			}
		}
	})
}

// stated is a manifest with a pin that has thresholds.
func stated() *ferrule.Manifest {
	return &ferrule.Manifest{
		Tools: []ferrule.Tool{{Name: "get_pin_events", Effect: ferrule.Reads}},
		Pins: []ferrule.Pin{{
			Number: 34, Name: "light", Abilities: []string{"events"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(500 * time.Millisecond)},
		}},
	}
}

func withMCPU(p *poller.Parts) {
	p.Grammars = map[string]func(*ferrule.Manifest) []ferrule.Poll{"d": mcpu.Polls}
}

// TestEdges: a state is recorded when it changes, with when that may have been.
func TestEdges(t *testing.T) {
	const high, low, none = `{"events":[{"type":"threshold_high"}]}`, `{"events":[{"type":"threshold_low"}]}`, `{"events":[]}`
	for name, test := range map[string]struct {
		says []string
		want string // of the samples, with which question each lies between, and holes
	}{
		"first":                      {[]string{none, none, none}, "0@0"},
		"up and down":                {[]string{none, none, high, high, none, low}, "0@0 1@1-2 0@3-4 -1@4-5"},
		"silence before an edge":     {[]string{none, none, "silent", "silent", high}, "0@0 1@1-4"},
		"silence, and the same":      {[]string{none, high, "silent", high, high}, "0@0 1@0-1 (silent 1-3) 1@3"},
		"silence at first":           {[]string{"silent", high, high}, "1@1"},
		"an answer that says naught": {[]string{high, `{}`, high, none}, "1@0 (silent 0-2) 1@2 0@2-3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, withMCPU)
				w.took = func(*ferrule.Call) time.Duration { return 20 * time.Millisecond }
				w.says(test.says...)
				w.Put(online("robot"), stated())
				for w.Stats().Reads < uint64(len(test.says)) {
					time.Sleep(time.Second / 2)
				}
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				w.Remove("robot")
				samples, holes := w.told("robot", "light_threshold")
				times := w.times("robot get_pin_events")
				var got []string
				for _, s := range samples {
					for _, h := range holes {
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

// spanned is which questions a span reaches from and to, or the one that it is all of: from
// the sample that was the latest when the device was asked, at the slowest, to its answer.
func spanned(w *world, times []time.Duration, from, to time.Time) string {
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

// TestSteadyState: that a state is still seen is recorded now and then.
func TestSteadyState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, withMCPU)
		w.says(`{"events":[]}`)
		w.Put(online("robot"), stated())
		time.Sleep(time.Hour)
		samples, holes := w.told("robot", "light_threshold")
		if len(samples) != 6 || len(holes) != 0 {
			t.Errorf("%d samples, holes %+v", len(samples), holes)
		}
		if s := w.Stats(); s.Samples != 6 || s.Reads < 3500 {
			t.Errorf("counted %+v", s)
		}
	})
}

// past is what was recorded before.
type past struct {
	mu      sync.Mutex
	samples map[string][]ferrule.Sample
	fails   atomic.Int32 // how often it cannot be read
	asked   atomic.Int32
	cut     atomic.Bool // something is missing after the last samples
}

func (p *past) Tail(_ context.Context, device, signal string, n int) ([]ferrule.Sample, error) {
	p.asked.Add(1)
	if p.fails.Add(-1) >= 0 {
		return nil, errors.New("it is not there yet")
	}
	if p.cut.Load() {
		return nil, nil
	}
	all := p.all(device + " " + signal)
	return all[max(0, len(all)-n):], nil
}

func (p *past) Latest(_ context.Context, device string) (all []ferrule.Latest, err error) {
	p.asked.Add(1)
	if p.fails.Add(-1) >= 0 {
		return nil, errors.New("it is not there yet")
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

func (p *past) add(signal string, samples []ferrule.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples[signal] = append(p.samples[signal], samples...)
}

func (p *past) all(signal string) []ferrule.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.samples[signal]
}

// TestResume: what was recorded before is not recorded again, and how long nobody has
// measured since is.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := time.Now().Add(-time.Hour)
		p := &past{samples: map[string][]ferrule.Sample{
			"robot look":            {{Time: old.Add(-time.Second), Value: 1}, {Time: old, Value: 2}},
			"robot light_threshold": {{Time: old, Value: 1}},
		}}
		p.fails.Store(2)
		w := open(t, func(parts *poller.Parts) { withMCPU(parts); parts.Past = p })
		w.answer = func(call *ferrule.Call) (string, error) {
			if call.Tool == "look" {
				return "3", nil
			}
			return `{"events":[{"type":"threshold_high"}]}`, nil
		}
		laid := stated()
		laid.Tools = append(laid.Tools, ferrule.Tool{Name: "look", Effect: ferrule.Reads, Poll: ferrule.Duration(time.Second)})
		w.Put(online("robot"), laid)
		time.Sleep(10 * time.Second)
		for _, signal := range []string{"look", "light_threshold"} {
			samples, holes := w.told("robot", signal)
			if len(samples) == 0 || len(holes) != 1 || !holes[0].From.Equal(old) || !holes[0].To.Equal(samples[0].Time) || holes[0].Reason != ferrule.Silent {
				t.Errorf("%s: %+v, %+v", signal, samples, holes)
			}
		}
		if n := p.asked.Load(); n != 3 { // and once for both
			t.Errorf("the past was asked %d times", n)
		}
		for _, gap := range gaps(w.times("robot look")) { // the device cannot help it
			if !near(gap, time.Second) {
				t.Errorf("asked again after %v", gap)
			}
		}
	})
}

// TestResumeEarlier: the clock was set back since a state was recorded. That it has changed is
// recorded all the same, and not when it is as late again.
func TestResumeEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &past{samples: map[string][]ferrule.Sample{"robot light_threshold": {{Time: time.Now().Add(time.Hour), Value: 1}}}}
		w := open(t, func(parts *poller.Parts) { withMCPU(parts); parts.Past = p })
		w.took = func(*ferrule.Call) time.Duration { return 20 * time.Millisecond }
		w.says(`{"events":[]}`)
		w.Put(online("robot"), stated())
		time.Sleep(15 * time.Minute)
		if samples, _ := w.told("robot", "light_threshold"); len(samples) != 2 || samples[0].Value != 0 || samples[0].Time.After(w.start.Add(10*time.Second)) {
			t.Errorf("%+v", samples)
		}
	})
}

// TestResumeRingAfterHole: the last that a ring held was no number, so a hole is the last that
// is known of it; what was recorded before is not recorded again for that.
func TestResumeRingAfterHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{interval: 500 * time.Millisecond, size: 20, start: time.Now()}
		p := &past{samples: make(map[string][]ferrule.Sample)}
		laid := &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Polls: []ferrule.Poll{{Name: "light", Tool: "get_pin_buffer", Ring: &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size}}},
		}
		broken := regexp.MustCompile(`\b10\d\b|\b11[0-4]\b`) // for seven seconds
		for _, until := range []time.Duration{56500 * time.Millisecond, time.Minute} {
			w := open(t, func(parts *poller.Parts) { parts.Past = p })
			w.answer = func(*ferrule.Call) (string, error) { return broken.ReplaceAllString(r.answer(), "null"), nil }
			w.Put(online("robot"), laid)
			time.Sleep(until)
			w.Remove("robot")
			samples, _ := w.told("robot", "light")
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
			t.Errorf("the last is %d", last)
		}
	})
}

// ring is a device that samples by itself, and knows when it took each: its values count.
type ring struct {
	interval time.Duration
	size     int
	start    time.Time
	first    atomic.Int64 // that it has since it was restarted
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

// TestRing: of a ring that is read again and again, each sample is recorded once, at its
// time, or lies in a hole: with reads that fail, readings that are not taken, a device that
// goes away and one that is restarted, and a gateway that is.
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(9, 9))
		r := &ring{interval: 500 * time.Millisecond, size: 120, start: time.Now()}
		p := &past{samples: make(map[string][]ferrule.Sample)}
		var trouble atomic.Bool
		laid := &ferrule.Manifest{
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Pins: []ferrule.Pin{{
				Number: 34, Name: "light", Abilities: []string{"buffer"}, Sampling: &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size},
			}},
		}
		begin := func() (*world, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			w := open(t, func(parts *poller.Parts) {
				withMCPU(parts)
				parts.Past = p
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
				if failed = trouble.Load() && !failed && rnd.IntN(2) == 0; failed { // one alone costs nothing
					return "", ferrule.Errorf([]ferrule.Code{ferrule.Failed, ferrule.Unanswered}[rnd.IntN(2)], "noise")
				}
				return r.answer(), nil
			}
			w.Put(online("robot"), laid)
			return w, func() { cancel(); w.Remove("robot") }
		}
		w, end := begin()
		time.Sleep(10 * time.Minute)
		if s := w.Stats(); s.Reads < 22 || s.Reads > 28 { // 0.4 of a minute
			t.Errorf("read %d times in ten minutes", s.Reads)
		}
		w.set(func() { w.refuse = true }) // for less than a ring
		for w.Stats().Dropped == 0 {
			time.Sleep(time.Second)
		}
		w.set(func() { w.refuse = false })
		time.Sleep(time.Minute)
		trouble.Store(true)
		time.Sleep(10 * time.Minute)
		trouble.Store(false)
		time.Sleep(time.Minute)
		if _, holes := w.told("robot", "light"); len(holes) != 0 || w.Stats().Failures < 5 || w.Stats().Dropped == 0 {
			t.Errorf("%d reads failed, %d readings were dropped, and there are holes: %+v", w.Stats().Failures, w.Stats().Dropped, holes)
		}
		w.Put(in(ferrule.StateOffline, "robot"), laid) // for longer
		time.Sleep(5 * time.Minute)
		w.Put(online("robot"), laid)
		time.Sleep(2 * time.Minute)
		_, restarted := r.held(time.Now())
		r.first.Store(int64(restarted))
		time.Sleep(3 * time.Minute)
		_, all := w.told("robot", "light")
		end() // and a gateway that is started again, in time
		time.Sleep(30 * time.Second)
		w, end = begin()
		time.Sleep(3 * time.Minute)
		_, more := w.told("robot", "light")
		all = append(all, more...)
		end()

		samples := p.all("robot light")
		next, missing := 0, 0
		var within []time.Duration
		for _, s := range samples {
			n := int(s.Value)
			if n < next {
				t.Fatalf("%d was recorded after %d", n, next-1)
			}
			if n > next {
				missing += n - next
				if !inHole(all, r.taken(next), r.taken(n-1)) {
					t.Errorf("%d to %d are missing, and in no hole", next, n-1)
				}
			}
			next = n + 1
			within = append(within, time.Duration(s.Within))
			if off := s.Time.Sub(r.taken(n)).Abs(); off > time.Duration(s.Within) {
				t.Errorf("%d was taken %v off, within %v", n, off, s.Within)
			}
		}
		_, to := r.held(time.Now())
		if to-next > r.size || len(samples) < 2500 || missing < 2*(5*60-60)-10 {
			t.Errorf("%d samples up to %d of %d, %d missing", len(samples), next, to, missing)
		}
		slices.Sort(within)
		if half := within[len(within)/2]; half > r.interval/2 {
			t.Errorf("half of the samples are within more than %v", half)
		}
		t.Logf("%d samples recorded, half of them within %v; %d missing in %d holes", len(samples), within[len(within)/2], missing, len(all))
	})
}

// inHole tells whether what was taken from one time to another may be missing.
func inHole(holes []ferrule.Gap, from, to time.Time) bool {
	const slack = 500 * time.Millisecond // its ends are times that were told
	for _, h := range holes {
		if !from.Before(h.From.Add(-slack)) && !to.After(h.To.Add(slack)) {
			return true
		}
	}
	return false
}

// TestRingOfTheOwner: a board does not say that it keeps samples, or says it wrongly, and
// its owner does.
func TestRingOfTheOwner(t *testing.T) {
	for name, laid := range map[string]*ferrule.Manifest{
		"it says nothing": {
			Tools: []ferrule.Tool{{Name: "get_pin_buffer", Effect: ferrule.Reads}},
			Polls: []ferrule.Poll{{Name: "light", Tool: "get_pin_buffer", Args: []byte(`{"pin":0,"limit":20}`)}},
		},
		"it says otherwise": {
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
				laid.Polls[0].Ring = &ferrule.Sampling{Interval: ferrule.Duration(r.interval), Size: r.size}
				w := open(t, withMCPU)
				w.answer = func(*ferrule.Call) (string, error) { return r.answer(), nil }
				w.Put(online("robot"), laid)
				time.Sleep(5 * time.Minute)
				for _, gap := range gaps(w.times("robot get_pin_buffer")) {
					if gap < 3700*time.Millisecond || gap > 4700*time.Millisecond { // it may wait for the middle of an interval
						t.Errorf("asked again after %v", gap)
					}
				}
				samples, holes := w.told("robot", "light")
				for i, s := range samples {
					if int(s.Value) != i || s.Time.Sub(r.taken(i)).Abs() > time.Duration(s.Within) {
						t.Fatalf("sample %d is %+v", i, s)
					}
				}
				if len(samples) < 580 || len(holes) != 0 {
					t.Errorf("%d samples, holes %+v", len(samples), holes)
				}
			})
		})
	}
}

// TestLatestOfASlowDevice: the latest sample is as old as the device's own interval, which may
// be a little longer than it says. Its time is as sure as is told.
func TestLatestOfASlowDevice(t *testing.T) {
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
		samples, _ := w.told("robot", "light")
		for _, s := range samples {
			if off := s.Time.Sub(r.taken(int(s.Value))).Abs(); off > time.Duration(s.Within) {
				t.Errorf("%v was taken %v off, within %v", s.Value, off, s.Within)
			}
		}
		if len(samples) < 500 {
			t.Errorf("%d samples", len(samples))
		}
	})
}

// TestBufferOfUnknownSize: a polled tool gives what it has sampled, and does not say how
// much it keeps.
func TestBufferOfUnknownSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{interval: 500 * time.Millisecond, size: 50, start: time.Now()}
		w := open(t, nil)
		w.answer = func(*ferrule.Call) (string, error) {
			return strings.Replace(r.answer(), "{", `{"type":"buffer","sample_interval_ms":500,`, 1), nil
		}
		w.Put(online("robot"), polled(10*time.Second))
		time.Sleep(5 * time.Minute)
		samples, holes := w.told("robot", "look")
		for i, s := range samples {
			if int(s.Value) != i || s.Time.Sub(r.taken(i)).Abs() > time.Duration(s.Within) {
				t.Fatalf("sample %d is %+v", i, s)
			}
		}
		if len(samples) < 570 || len(holes) != 0 {
			t.Errorf("%d samples, holes %+v", len(samples), holes)
		}
	})
}
