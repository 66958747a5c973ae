package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// device samples into a ring, on its own clock. Unlike the ring, it knows the number and
// time of each sample.
type device struct {
	interval time.Duration
	size     int
	rate     func(now time.Duration) float64 // its seconds per second
	late     func() time.Duration            // the delay of one sample
	value    func(at time.Duration) float64

	due   time.Duration // of the next sample
	next  time.Duration // due plus delay
	taken []time.Duration
	all   []float64
	since int // the first sample since the restart
}

// run samples until a time.
func (d *device) run(until time.Duration) {
	for d.next <= until {
		d.taken = append(d.taken, d.next)
		d.all = append(d.all, d.value(d.next))
		d.due += time.Duration(float64(d.interval) / d.rate(d.due))
		d.next = max(d.due+d.late(), d.next+time.Microsecond)
	}
}

// restart empties the ring; the next sample is taken after busy.
func (d *device) restart(at, busy time.Duration) {
	d.run(at)
	d.since = len(d.all)
	d.due = at + busy
	d.next = d.due
}

// ring returns the content, the oldest first.
func (d *device) ring() []float64 {
	return slices.Clone(d.all[max(d.since, len(d.all)-d.size):])
}

// checker compares what is recorded with what was measured.
type checker struct {
	t    *testing.T
	d    *device
	base time.Time

	lenient  bool // the device breaks the assumptions
	next     int  // the first sample that is not recorded yet
	recorded int
	gaps     map[ferrule.GapReason]int
	missing  map[ferrule.GapReason]int
	within   []time.Duration
	err      []time.Duration
}

func newChecker(t *testing.T, d *device) *checker {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &checker{t: t, d: d, base: base, gaps: make(map[ferrule.GapReason]int), missing: make(map[ferrule.GapReason]int)}
}

// read reads the ring at a time; trip is the round trip.
func (k *checker) read(at, trip time.Duration) Read {
	k.d.run(at + trip/2)
	return Read{k.base.Add(at), k.base.Add(at + trip), k.d.ring(), k.d.interval, k.d.size}
}

// take checks the batch of a read.
func (k *checker) take(s ferrule.SampleBatch) {
	k.t.Helper()
	first := len(k.d.all) - len(s.Samples) // the newest samples are recorded without exception
	if len(s.Samples) == 0 {
		if len(s.Gaps) > 0 {
			k.t.Fatalf("gap without a sample after it: %+v", s.Gaps)
		}
		return
	}
	switch lost := first - k.next; {
	case lost < 0:
		k.t.Fatalf("at %v, %d samples recorded twice", k.d.taken[first], -lost)
	case len(s.Gaps) == 0 && lost > 0 && !k.flat(first):
		k.t.Fatalf("at %v, %d samples missing without a gap", k.d.taken[first], lost)
	case len(s.Gaps) > 1:
		k.t.Fatalf("%d gaps in one read", len(s.Gaps))
	case len(s.Gaps) == 1:
		h := s.Gaps[0]
		if h.MaxMissing < lost && !k.lenient {
			k.t.Fatalf("gap of at most %d samples, but %d are missing", h.MaxMissing, lost)
		}
		if !h.To.Equal(s.Samples[0].Time) || h.From.After(h.To) {
			k.t.Fatalf("gap from %v to %v, before a sample at %v", h.From, h.To, s.Samples[0].Time)
		}
		k.gaps[h.Reason]++
		k.missing[h.Reason] += lost
	}
	for i, sample := range s.Samples {
		if sample.Value != k.d.all[first+i] {
			k.t.Fatalf("sample %d recorded as %v, want %v", first+i, sample.Value, k.d.all[first+i])
		}
		off := sample.Time.Sub(k.base.Add(k.d.taken[first+i])).Abs()
		if off > time.Duration(sample.Within)+time.Microsecond && !k.lenient {
			k.t.Fatalf("sample %d, taken at %v, is off by %v, limit is %v", first+i, k.d.taken[first+i], off, time.Duration(sample.Within))
		}
		k.err = append(k.err, off)
		k.within = append(k.within, time.Duration(sample.Within))
	}
	k.recorded += len(s.Samples)
	k.next = len(k.d.all)
}

// flat reports whether the samples that were left out before one only repeat the last
// recorded one. They are not missed.
func (k *checker) flat(first int) bool {
	return k.next > 0 && !slices.ContainsFunc(k.d.all[k.next:first], func(v float64) bool { return v != k.d.all[k.next-1] })
}

func (k *checker) String() string {
	slices.Sort(k.err)
	slices.Sort(k.within)
	at := func(all []time.Duration, q float64) time.Duration {
		return all[int(q*float64(len(all)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d samples, %d recorded (%.2f %%), gaps %v, missing in them %v; off by %v (median), %v (99 %%), uncertainty %v (median), %v (99 %%)",
		len(k.d.all), k.recorded, 100*float64(k.recorded)/float64(len(k.d.all)), k.gaps, k.missing,
		at(k.err, 0.5), at(k.err, 0.99), at(k.within, 0.5), at(k.within, 0.99))
}

// landscape returns a signal that is hard to follow: noise, flat stretches of up to half an
// hour, a slow wave in steps, and a repeating pattern.
func landscape(r *rand.Rand) func(at time.Duration) float64 {
	var until time.Duration
	var sort, level int
	return func(at time.Duration) float64 {
		if at >= until {
			sort, level = r.IntN(5), r.IntN(4096)
			until = at + time.Minute + time.Duration(r.Int64N(int64(29*time.Minute)))
		}
		s := at.Seconds()
		switch sort {
		case 0: // noise
			return float64(r.IntN(4096))
		case 1: // flat
			return float64(level)
		case 2: // a slow wave, in steps
			return math.Round(20 * math.Sin(s/60))
		case 3: // repeats every two seconds
			return math.Round(100 * math.Sin(2*math.Pi*s/2))
		}
		return math.Round(2048 + 1000*math.Sin(s/30) + 4*r.NormFloat64()) // a noisy wave
	}
}

// TestSixHours reads a ring of 120 samples at 500 ms for six hours: each sample is recorded
// once or lies in a gap, and its time is within the stated uncertainty.
func TestSixHours(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		ppm := 200 * math.Pow(-1, float64(seed))
		d := &device{
			interval: 500 * time.Millisecond, size: 120,
			rate:  func(now time.Duration) float64 { return 1 + (ppm+20*math.Sin(now.Hours()))*1e-6 },
			late:  func() time.Duration { return time.Duration(r.Int64N(int64(4 * time.Millisecond))) },
			value: landscape(r),
		}
		k := newChecker(t, d)
		var ring *Ring
		reads, lost, restarts := 0, 0, 0
		for now := time.Duration(0); now < 6*time.Hour; {
			if now > 0 && r.IntN(150) == 0 {
				d.restart(now, time.Duration(r.Int64N(int64(20*time.Second))))
				restarts++
			}
			sent := now + time.Duration(r.Int64N(int64(5*time.Millisecond)))
			trip := 3*time.Millisecond + time.Duration(r.Int64N(int64(40*time.Millisecond)))
			if r.IntN(50) == 0 {
				trip = time.Duration(r.Int64N(int64(1500 * time.Millisecond)))
			}
			d.run(sent + time.Duration(r.Int64N(int64(trip))))
			switch {
			case r.IntN(30) == 0: // a lost read
				lost++
			case r.IntN(200) == 0: // several lost reads
				now += time.Duration(r.Int64N(int64(5 * time.Minute)))
				lost++
			default:
				reads++
				var batch ferrule.SampleBatch
				ring, batch = ring.Next(Read{k.base.Add(sent), k.base.Add(sent + trip), d.ring(), d.interval, d.size})
				k.take(batch)
			}
			pause := 24*time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
			now = max(ring.Due(k.base.Add(sent+pause)).Sub(k.base), sent+trip)
		}
		if seed < 4 {
			t.Logf("seed %d: %d reads, %d lost, %d restarts: %v", seed, reads, lost, restarts, k)
		}
		if minimum := 0.9 * float64(len(d.all)); float64(k.recorded) < minimum {
			t.Errorf("seed %d: %v", seed, k)
		}
	}
}

// TestAnyRing checks rings of various sizes and intervals, with devices as slow and late as
// the assumptions allow, restarts, rare reads and resumes.
func TestAnyRing(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 77))
		upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
		interval := []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second, time.Minute}[r.IntN(5)]
		slow := 1 - 0.98*faster + r.Float64()*0.98*(faster+slower)
		d := &device{
			interval: interval, size: []int{2, 3, 5, 20, 120, 300}[r.IntN(6)],
			rate:  func(time.Duration) float64 { return 1 / slow },
			late:  func() time.Duration { return upTo(maxDelay(interval)) },
			value: landscape(r),
		}
		k := newChecker(t, d)
		every := min(max(time.Duration(d.size)*interval*2/5, time.Second), time.Minute)
		var ring *Ring
		var tail []ferrule.Sample
		killed := false
		for now := upTo(interval); now < 300*every; {
			if r.IntN(60) == 0 {
				d.restart(now, upTo(20*time.Second))
			}
			trip := time.Millisecond + upTo(40*time.Millisecond)
			d.run(now + upTo(trip))
			if r.IntN(100) == 0 {
				now += upTo(5 * time.Minute)
				continue
			}
			read := Read{k.base.Add(now), k.base.Add(now + trip), d.ring(), interval, d.size}
			killed = killed || r.IntN(20) == 0
			if killed && len(read.Values) > 0 {
				ring, killed = Resume(tail[max(0, len(tail)-len(read.Values)):], read.Received, interval, d.size), false
			}
			if k.recorded == 0 {
				k.next = len(d.all) - len(read.Values)
			}
			if !killed && r.IntN(30) > 0 {
				var s ferrule.SampleBatch
				ring, s = ring.Next(read)
				k.take(s)
				if len(s.Gaps) > 0 {
					tail = nil
				}
				tail = append(tail, s.Samples...)
			}
			now = max(ring.Due(read.Sent.Add(every-every/20+upTo(every/10))).Sub(k.base), now+trip)
		}
	}
}

// steady returns a device with an exact clock, whose values count up.
func steady(interval time.Duration, size int) *device {
	n := 0.0
	return &device{
		interval: interval, size: size,
		rate:  func(time.Duration) float64 { return 1 },
		late:  func() time.Duration { return 0 },
		value: func(time.Duration) float64 { n++; return n },
	}
}

// readEvery reads the ring several times.
func (k *checker) readEvery(ring *Ring, from, every time.Duration, times int) (*Ring, time.Duration) {
	k.t.Helper()
	for range times {
		var s ferrule.SampleBatch
		ring, s = ring.Next(k.read(from, 10*time.Millisecond))
		k.take(s)
		from += every
	}
	return ring, from
}

// TestOtherRate checks devices that do not sample at their declared interval.
func TestOtherRate(t *testing.T) {
	for _, rate := range []float64{0.3, 0.7, 1.3, 1.6} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			d := steady(500*time.Millisecond, 120)
			d.rate = func(time.Duration) float64 { return rate }
			k := newChecker(t, d)
			k.lenient = true // until the rate is learned
			ring, now := k.readEvery(nil, time.Second, 24*time.Second, 5)
			k.lenient = false
			k.readEvery(ring, now, 24*time.Second, 100)
			if k.recorded < len(d.all)-120 {
				t.Errorf("%v", k)
			}
		})
	}
}

// TestStandstill checks that a device that pauses loses nothing.
func TestStandstill(t *testing.T) {
	d := steady(500*time.Millisecond, 120)
	k := newChecker(t, d)
	ring, now := k.readEvery(nil, time.Second, 24*time.Second, 20)
	d.run(now - 12*time.Second)
	d.due += 9 * time.Second
	d.next = d.due
	k.readEvery(ring, now, 24*time.Second, 20)
	if len(k.gaps) > 0 || k.recorded != len(d.all) {
		t.Errorf("%v", k)
	}
}

// TestRepeats checks that a gap is recorded if the ring was overwritten with the same
// pattern.
func TestRepeats(t *testing.T) {
	d := steady(100*time.Millisecond, 20)
	d.value = func(at time.Duration) float64 { return math.Round(100 * math.Sin(math.Pi*at.Seconds())) }
	k := newChecker(t, d)
	ring, now := k.readEvery(nil, time.Second, time.Second, 60)
	if len(k.gaps) > 0 {
		t.Fatalf("%v", k)
	}
	k.readEvery(ring, now+2200*time.Millisecond, time.Second, 20)
	if k.gaps[ferrule.Unclear] != 1 || k.missing[ferrule.Unclear] != 20 {
		t.Errorf("%v", k)
	}
}

// TestRestart checks that a restart, which samples sooner than due, leaves a gap that is
// large enough.
func TestRestart(t *testing.T) {
	d := steady(5*time.Second, 3)
	k := newChecker(t, d)
	ring, now := k.readEvery(nil, 600*time.Millisecond, 6*time.Second, 5)
	d.restart(now+200*time.Millisecond, 10*time.Millisecond)
	k.readEvery(ring, now+6*time.Second, 6*time.Second, 1)
	if k.gaps[ferrule.Restart] != 1 || k.missing[ferrule.Restart] != 2 {
		t.Errorf("%v", k)
	}
}

// TestRestartWhileFilling checks that a ring that is not full and has no old values counts
// as restarted.
func TestRestartWhileFilling(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ring, _ := (*Ring)(nil).Next(Read{at, at, []float64{1, 2}, time.Minute, 300})
	at = at.Add(100 * time.Second)
	_, s := ring.Next(Read{at, at, []float64{8, 9}, time.Minute, 300})
	if len(s.Samples) != 2 || len(s.Gaps) != 1 || s.Gaps[0].Reason != ferrule.Restart || s.Gaps[0].MaxMissing != 1 {
		t.Errorf("%+v", s)
	}
}

// TestSmallerThanDeclared checks a ring that holds less than the device declares.
func TestSmallerThanDeclared(t *testing.T) {
	d := steady(100*time.Millisecond, 40)
	k := newChecker(t, d)
	var ring *Ring
	for at := time.Second; at < time.Minute; at += 1500 * time.Millisecond {
		read := k.read(at, 5*time.Millisecond)
		read.Size = 100
		var s ferrule.SampleBatch
		ring, s = ring.Next(read)
		k.take(s)
	}
	if len(k.gaps) > 0 || k.recorded != len(d.all) {
		t.Errorf("%v", k)
	}
}

// TestResume checks that a restarted gateway records nothing twice, and records a gap.
func TestResume(t *testing.T) {
	for _, away := range []time.Duration{0, 10 * time.Second, 30 * time.Second, 5 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			d := steady(500*time.Millisecond, 120)
			k := newChecker(t, d)
			var tail []ferrule.Sample
			var ring *Ring
			for now := time.Second; now < 30*time.Minute; now += 24 * time.Second {
				var s ferrule.SampleBatch
				ring, s = ring.Next(k.read(now, 10*time.Millisecond))
				k.take(s)
				tail = append(tail, s.Samples...)
				if now > 2*time.Minute && (now/(24*time.Second))%7 == 0 { // the gateway restarts
					ring = Resume(tail[len(tail)-120:], k.base.Add(now+away+24*time.Second), d.interval, d.size)
					now += away
				}
			}
			if lost := k.gaps[ferrule.Lost] > 0; lost != (away > time.Minute) || k.gaps[ferrule.Unclear] > 0 || k.gaps[ferrule.Restart] > 0 {
				t.Errorf("%v", k)
			}
		})
	}
	if Resume(nil, time.Now(), time.Second, 10) != nil {
		t.Error("Resume without samples is not nil")
	}
}

// TestResumeSlow resumes with a device that samples more slowly than it declares.
func TestResumeSlow(t *testing.T) {
	for _, rate := range []float64{0.3, 0.5, 0.7} {
		d := steady(500*time.Millisecond, 120)
		d.rate = func(time.Duration) float64 { return rate }
		k := newChecker(t, d)
		k.lenient = true // until the rate is learned
		var tail []ferrule.Sample
		var ring *Ring
		for n := range 100 {
			var s ferrule.SampleBatch
			read := k.read(time.Second+time.Duration(n)*24*time.Second, 10*time.Millisecond)
			if n%17 == 16 { // the gateway restarts
				ring = Resume(tail[len(tail)-120:], read.Received, d.interval, d.size)
			}
			ring, s = ring.Next(read)
			k.take(s)
			tail = append(tail, s.Samples...)
		}
		if k.recorded != len(d.all) {
			t.Errorf("rate %v: %v", rate, k)
		}
	}
}

// TestResumeClockSetBack checks that nothing is recorded twice or held back if the clock
// was set back before the resume.
func TestResumeClockSetBack(t *testing.T) {
	d := steady(500*time.Millisecond, 120)
	k := newChecker(t, d)
	_, s := (*Ring)(nil).Next(k.read(2*time.Minute, 10*time.Millisecond))
	k.next = len(d.all) - d.size
	k.take(s)
	read := k.read(2*time.Minute+30*time.Second, 10*time.Millisecond)
	const back = 40 * time.Minute
	read.Sent, read.Received, k.base = read.Sent.Add(-back), read.Received.Add(-back), k.base.Add(-back)
	ring, s := Resume(s.Samples, read.Received, d.interval, d.size).Next(read)
	k.take(s)
	k.readEvery(ring, 3*time.Minute, 24*time.Second, 20)
	if k.gaps[ferrule.Unclear] != 1 || k.missing[ferrule.Unclear] != 0 {
		t.Errorf("%v", k)
	}
}

// TestFlat checks that a flat line has no gaps. While the ring fills, its length tells the
// shift; later it does not matter how many of the equal samples are new.
func TestFlat(t *testing.T) {
	d := steady(500*time.Millisecond, 120)
	d.value = func(time.Duration) float64 { return 7 }
	k := newChecker(t, d)
	ring, now := k.readEvery(nil, time.Second, 10*time.Second, 5)
	if len(k.gaps) > 0 || k.recorded != len(d.all) {
		t.Errorf("while filling: %v", k)
	}
	for range 50 {
		var s ferrule.SampleBatch
		ring, s = ring.Next(k.read(now, 10*time.Millisecond))
		k.take(s)
		now = ring.Due(k.base.Add(now + 24*time.Second)).Sub(k.base)
	}
	if len(k.gaps) > 0 || k.recorded < len(d.all)*9/10 {
		t.Errorf("when full: %v", k)
	}
	d.value = func(time.Duration) float64 { return 8 }
	for range 5 { // the step itself is not missed
		var s ferrule.SampleBatch
		ring, s = ring.Next(k.read(now, 10*time.Millisecond))
		k.take(s)
		now = ring.Due(k.base.Add(now + 24*time.Second)).Sub(k.base)
	}
	d.run(now + 5*time.Minute) // longer than the ring
	_, s := ring.Next(k.read(now+5*time.Minute, 10*time.Millisecond))
	k.take(s)
	if k.gaps[ferrule.Lost] != 1 || len(k.gaps) != 1 {
		t.Errorf("after a long pause: %v", k)
	}
}

// TestNoNumber checks that a value that is not a number becomes a gap.
func TestNoNumber(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	nan := math.NaN()
	ring, s := (*Ring)(nil).Next(Read{at, at, []float64{nan, 1, nan, nan, 2, nan}, time.Second, 8})
	if len(s.Samples) != 2 || len(s.Gaps) != 3 || s.Gaps[1].Reason != ferrule.Silent || s.Gaps[1].MaxMissing != 2 {
		t.Fatalf("%+v", s)
	}
	if h := s.Gaps[1]; !h.From.Equal(s.Samples[0].Time) || !h.To.Equal(s.Samples[1].Time) {
		t.Errorf("gap from %v to %v, want %v to %v", h.From, h.To, s.Samples[0].Time, s.Samples[1].Time)
	}
	at = at.Add(2 * time.Second)
	if _, s = ring.Next(Read{at, at, []float64{nan, 1, nan, nan, 2, nan, 3, 4}, time.Second, 8}); len(s.Samples) != 2 || len(s.Gaps) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNaNOverlap checks that an overlap of only NaN is not evidence of a shift.
func TestNaNOverlap(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before, after := make([]float64, 20), make([]float64, 20)
	for i := range before {
		before[i], after[i] = float64(i), float64(100+i)
		if i >= 12 {
			before[i] = math.NaN()
		}
		if i < 8 {
			after[i] = math.NaN()
		}
	}
	ring, _ := (*Ring)(nil).Next(Read{at, at, before, time.Second, 20})
	at = at.Add(8 * time.Second)
	if _, s := ring.Next(Read{at, at, after, time.Second, 20}); len(s.Gaps) == 0 || s.Gaps[0].Reason != ferrule.Restart {
		t.Errorf("%+v", s)
	}
}

// FuzzNext checks that any answers give a valid batch, and that the state stays bounded.
func FuzzNext(f *testing.F) {
	f.Add([]byte{1, 2, 3, 250, 1, 2, 3, 4, 250, 3, 4, 5, 6}, uint16(500), uint8(8))
	f.Add([]byte{0, 0, 0, 0, 251, 0, 0, 0, 0, 255, 252}, uint16(1), uint8(4))
	f.Fuzz(func(t *testing.T, data []byte, ms uint16, size uint8) {
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var ring *Ring
		var values []float64
		var last time.Time
		for _, b := range data {
			switch {
			case b == 255:
				values = append(values, math.NaN())
				continue
			case b < 250:
				values = append(values, float64(b))
				continue
			}
			sent := at
			at = at.Add(time.Duration(b-249) * time.Duration(ms) * time.Millisecond)
			var s ferrule.SampleBatch
			ring, s = ring.Next(Read{sent, at, values, time.Duration(ms) * time.Millisecond, int(size)})
			s.Signal = "fuzz"
			r := ferrule.Reading{Device: "d", Node: "n", Poll: "p", Batches: []ferrule.SampleBatch{s}}
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			if len(s.Samples) > len(values) || ring != nil && len(ring.anchors) > maxAnchors {
				t.Fatal("more than was read")
			}
			for _, sample := range s.Samples {
				if !sample.Time.After(last) {
					t.Fatalf("sample at %v after one at %v", sample.Time, last)
				}
				last = sample.Time
			}
			ring.Due(at)
			values = nil
		}
	})
}
