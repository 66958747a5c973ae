package condition

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// item is one entry of a trace: a sample or a gap, in the order of arrival.
type item struct {
	sample *ferrule.Sample
	gap    *ferrule.Gap
	// at is when it arrives, in traces that are played.
	at time.Time
}

func (i item) String() string {
	if i.gap != nil {
		return fmt.Sprintf("gap %v-%v", seconds(i.gap.From), seconds(i.gap.To))
	}
	return fmt.Sprintf("%v=%v±%v", seconds(i.sample.Time), i.sample.Value, time.Duration(i.sample.Within))
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func seconds(t time.Time) float64 { return t.Sub(epoch).Seconds() }

// referenceHit is a hit with the index of the item that proves it.
type referenceHit struct {
	time  time.Time
	value float64
	by    int
}

// reference evaluates a condition over a whole trace. It is written from the definition, looks
// at all pairs of items, and keeps no state but the hits so far.
func reference(c Condition, state bool, trace []item) (hits []referenceHit) {
	met := func(v float64) bool {
		switch {
		case c.Above != nil:
			return v > *c.Above
		case c.Below != nil:
			return v < *c.Below
		case c.Equals != nil:
			return v == *c.Equals
		case c.Inside != nil:
			return c.Inside.From <= v && v <= c.Inside.To
		}
		return !(c.Outside.From <= v && v <= c.Outside.To)
	}
	// distance is how far a value is from meeting the condition.
	distance := func(v float64) float64 {
		switch {
		case c.Above != nil:
			return *c.Above - v
		case c.Below != nil:
			return v - *c.Below
		case c.Equals != nil:
			return math.Abs(v - *c.Equals)
		case c.Inside != nil:
			return max(c.Inside.From-v, v-c.Inside.To)
		}
		return min(v-c.Outside.From, c.Outside.To-v)
	}
	// A value exactly at the distance of the hysteresis is back for limits that do not belong
	// to what meets the condition, and is not for those that do.
	back := func(v float64) bool {
		if met(v) {
			return false
		}
		if c.Equals != nil || c.Inside != nil {
			return distance(v) > c.Hysteresis
		}
		return distance(v) >= c.Hysteresis
	}
	number := func(i int) bool { return trace[i].sample != nil && !math.IsNaN(trace[i].sample.Value) }
	before := func(i int) int { // the last number before an item, or -1
		for i--; i >= 0 && !number(i); i-- {
		}
		return i
	}
	older := func(i int) bool { return before(i) >= 0 && trace[i].sample.Time.Before(trace[before(i)].sample.Time) }
	armed := func(i int) bool {
		if len(hits) == 0 {
			return true
		}
		for m := hits[len(hits)-1].by; m < i; m++ {
			if number(m) && back(trace[m].sample.Value) {
				return true
			}
		}
		return false
	}
	// hidden reports whether a sample lies in a gap that was known before it.
	hidden := func(i int) bool {
		for k := range i {
			if number(k) {
				continue
			}
			var to time.Time
			if trace[k].gap != nil {
				to = trace[k].gap.To
			} else {
				to = trace[k].sample.Time // what was not a number
			}
			turned := false
			for m := k + 1; m <= i; m++ {
				turned = turned || number(m) && older(m)
			}
			if !turned && to.After(trace[i].sample.Time) {
				return true
			}
		}
		return false
	}
	// unbroken reports whether all items from j up to and without i are numbers that meet the
	// condition, in order and outside gaps.
	unbroken := func(j, i int) bool {
		for k := j; k < i; k++ {
			if !number(k) || !met(trace[k].sample.Value) || hidden(k) || k > j && older(k) {
				return false
			}
		}
		return true
	}
	for i := range trace {
		if c.Changes {
			if !number(i) || before(i) < 0 {
				continue
			}
			against := 0.0
			if len(hits) > 0 {
				against = hits[len(hits)-1].value
			} else {
				for first := range i {
					if number(first) {
						against = trace[first].sample.Value
						break
					}
				}
			}
			if v := trace[i].sample.Value; v != against && math.Abs(v-against) <= c.Hysteresis == false {
				hits = append(hits, referenceHit{trace[i].sample.Time, v, i})
			}
			continue
		}
		if c.For == 0 {
			if number(i) && met(trace[i].sample.Value) && armed(i) {
				hits = append(hits, referenceHit{trace[i].sample.Time, trace[i].sample.Value, i})
			}
			continue
		}
		if !armed(i) {
			continue
		}
		// proven is until when the past is known at this item.
		var proven time.Time
		switch s := trace[i].sample; {
		case trace[i].gap != nil:
			proven = trace[i].gap.From
		case !number(i) && before(i) >= 0:
			proven = trace[before(i)].sample.Time
		case !number(i):
			continue
		default:
			proven = s.Time.Add(-time.Duration(s.Within))
			if older(i) || !state && !met(s.Value) {
				continue
			}
		}
		if !state && !number(i) {
			continue
		}
		var earliest time.Time
		for j := range i {
			if !unbroken(j, i) {
				continue
			}
			end := trace[j].sample.Time.Add(time.Duration(trace[j].sample.Within)).Add(time.Duration(c.For))
			if !end.After(proven) && (earliest.IsZero() || end.Before(earliest)) {
				earliest = end
			}
		}
		if earliest.IsZero() {
			continue
		}
		if state {
			hits = append(hits, referenceHit{earliest, trace[i-1].sample.Value, i})
		} else {
			hits = append(hits, referenceHit{trace[i].sample.Time, trace[i].sample.Value, i})
		}
	}
	return hits
}

// randomCondition returns a condition on values from 0 to 10.
func randomCondition(r *rand.Rand) Condition {
	c := Condition{Device: "d", Signal: "s"}
	switch r.IntN(6) {
	case 0:
		c.Above = ptr(float64(r.IntN(10)))
	case 1:
		c.Below = ptr(float64(1 + r.IntN(10)))
	case 2:
		c.Equals = ptr(float64(r.IntN(4)))
	case 3:
		c.Inside = &Band{float64(r.IntN(5)), float64(5 + r.IntN(5))}
	case 4:
		c.Outside = &Band{float64(r.IntN(4)), float64(6 + r.IntN(4))}
	default:
		c.Changes = true
	}
	if r.IntN(2) == 0 {
		c.Hysteresis = float64(r.IntN(3)) / 2
	}
	if !c.Changes && r.IntN(3) > 0 {
		c.For = ferrule.Duration(1+r.IntN(12)) * ferrule.Duration(time.Second)
	}
	return c
}

// randomValue walks, so that conditions hold for a while.
func randomValue(r *rand.Rand, v float64) float64 {
	if r.IntN(8) == 0 {
		return float64(r.IntN(11))
	}
	return max(0, min(10, v+float64(r.IntN(5)-2)/2))
}

// randomTrace returns a trace with gaps, samples at the same time, late samples, and values
// that are not numbers. Much of it no poller sends.
func randomTrace(r *rand.Rand) (trace []item) {
	at, v := epoch, float64(r.IntN(11))
	for range 2 + r.IntN(40) {
		step := time.Duration(r.IntN(4000)) * time.Millisecond
		switch r.IntN(14) {
		case 0:
			from := at.Add(time.Duration(r.IntN(2000)-500) * time.Millisecond)
			at = at.Add(step)
			trace = append(trace, item{gap: &ferrule.Gap{From: from, To: from.Add(time.Duration(r.IntN(6000)) * time.Millisecond), Reason: ferrule.Lost}})
			continue
		case 1:
			step = 0
		case 2:
			step = -step
		case 3:
			trace = append(trace, item{sample: &ferrule.Sample{Time: at, Value: math.NaN()}})
			continue
		}
		at, v = at.Add(step), randomValue(r, v)
		s := &ferrule.Sample{Time: at, Value: v}
		if r.IntN(3) == 0 {
			s.Within = ferrule.Duration(r.IntN(1500)) * ferrule.Duration(time.Millisecond)
		}
		trace = append(trace, item{sample: s})
	}
	return trace
}

// TestRandomTraces compares the evaluator with the reference: no false hit, no missed hit, each
// at the exact time, and each with the gaps since the one before.
func TestRandomTraces(t *testing.T) {
	const traces = 10_000
	total, held := 0, 0
	for seed := range uint64(traces) {
		r := rand.New(rand.NewPCG(seed, 22))
		c, state, trace := randomCondition(r), r.IntN(2) == 0, randomTrace(r)
		e := newEvaluator(&c, "d", epoch.Add(-time.Hour))
		e.state = state
		var got []referenceHit
		gaps := 0
		for i, it := range trace {
			hit, met := Hit{}, false
			if it.gap != nil {
				hit, met = e.Gap(*it.gap)
			} else {
				hit, met = e.Add(*it.sample)
			}
			if !met {
				continue
			}
			got = append(got, referenceHit{hit.Time, hit.Value, i})
			for ; gaps < i; gaps++ { // the gaps since the hit before are in this one
				if g := trace[gaps].gap; g != nil && hit.MoreGaps == 0 && !slices.ContainsFunc(hit.Gaps, func(in ferrule.Gap) bool {
					return !in.From.After(g.From) && !in.To.Before(g.To)
				}) {
					t.Fatalf("trace %d: hit %d lacks %v, it has %v", seed, i, trace[gaps], hit.Gaps)
				}
			}
		}
		want := reference(c, state, trace)
		if !slices.EqualFunc(got, want, func(a, b referenceHit) bool { return a.time.Equal(b.time) && a.value == b.value && a.by == b.by }) {
			t.Fatalf("trace %d, %+v, state %v:\n%v\ngot  %v\nwant %v", seed, show(c), state, trace, got, want)
		}
		if total += len(want); c.For > 0 {
			held += len(want)
		}
	}
	t.Logf("%d hits in %d traces, %d of them after a hold", total, traces, held)
	if total < traces || held < traces/20 {
		t.Errorf("%d hits, %d after a hold: the traces test too little", total, held)
	}
}

func show(c Condition) string {
	text := fmt.Sprintf("for %v hysteresis %v", c.For, c.Hysteresis)
	for name, v := range map[string]*float64{"above": c.Above, "below": c.Below, "equals": c.Equals} {
		if v != nil {
			text += fmt.Sprint(" ", name, " ", *v)
		}
	}
	for name, b := range map[string]*Band{"inside": c.Inside, "outside": c.Outside} {
		if b != nil {
			text += fmt.Sprint(" ", name, " ", *b)
		}
	}
	if c.Changes {
		text += " changes"
	}
	return text
}

// playedTrace returns what a device sends over time: each sample arrives at once, and in a gap
// the device is offline. After a gap of a state, both ends of it are known.
func playedTrace(r *rand.Rand, begin time.Time) (trace []item) {
	at, v := begin, float64(r.IntN(11))
	for range 5 + r.IntN(25) {
		last := at
		at = at.Add(time.Duration(1+r.IntN(4000)) * time.Millisecond)
		if r.IntN(8) == 0 && len(trace) > 0 {
			lost := last.Add(time.Duration(r.Int64N(int64(at.Sub(last)))))
			trace = append(trace, item{gap: &ferrule.Gap{From: lost, To: at, Reason: ferrule.Silent}, at: at})
		}
		v = randomValue(r, v)
		trace = append(trace, item{sample: &ferrule.Sample{Time: at, Value: v}, at: at})
	}
	return trace
}

// TestDetection plays random traces to an Index, in which states hold by time alone, and
// compares it with the reference, which has seen the whole trace. Each hit is detected within
// a second of its sample, or of the end of its hold.
func TestDetection(t *testing.T) {
	const traces = 10_000
	total, byTime := 0, 0
	var slowest time.Duration
	for seed := range uint64(traces) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 23))
			c, state := randomCondition(r), r.IntN(2) == 0
			trace := playedTrace(r, time.Now().Add(time.Second))
			type detected struct {
				Hit
				at time.Time
			}
			var got []detected
			x := NewIndex(Parts{Silence: func(*ferrule.Reading) (time.Duration, bool) { return 0, true }})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go x.Run(ctx)
			x.Devices().Put(dev("d"), nil)
			if err := x.Add(Entry{ID: "a", Condition: c, Hit: func(h Hit) { got = append(got, detected{h, time.Now()}) }}); err != nil {
				t.Fatal(err)
			}
			for i, it := range trace {
				if it.gap != nil { // the device is lost, and is back before it says anything
					time.Sleep(time.Until(it.gap.From))
					synctest.Wait()
					lost := dev("d")
					lost.State = ferrule.StateOffline
					x.Devices().Put(lost, nil)
					time.Sleep(time.Until(it.gap.From) + it.gap.To.Sub(it.gap.From)/2)
					x.Devices().Put(dev("d"), nil)
					continue
				}
				time.Sleep(time.Until(it.at))
				synctest.Wait()
				b := ferrule.SampleBatch{Signal: "s", State: state, Samples: []ferrule.Sample{*it.sample}}
				if i > 0 && trace[i-1].gap != nil {
					b.Gaps = []ferrule.Gap{*trace[i-1].gap}
				}
				x.Reading(ferrule.Reading{Device: "d", Batches: []ferrule.SampleBatch{b}})
			}
			end := time.Now().Add(time.Minute)
			time.Sleep(time.Until(end))
			synctest.Wait()
			// The state of the last sample still holds: a last item proves it.
			want := reference(c, state, append(trace, item{gap: &ferrule.Gap{From: end, To: end}}))
			x.mu.Lock()
			defer x.mu.Unlock()
			if !slices.EqualFunc(got, want, func(a detected, b referenceHit) bool { return a.Time.Equal(b.time) && a.Value == b.value }) {
				t.Fatalf("trace %d, %v, state %v:\n%v\ngot  %v\nwant %v", seed, show(c), state, trace, got, want)
			}
			for _, h := range got {
				slowest = max(slowest, h.at.Sub(h.Time))
			}
			if total += len(got); state && c.For > 0 {
				byTime += len(got)
			}
		})
	}
	t.Logf("%d hits in %d traces, %d of them by time; the slowest was detected after %v", total, traces, byTime, slowest)
	if slowest > time.Second {
		t.Errorf("a hit was detected %v after its time", slowest)
	}
	if total < traces || byTime < traces/20 {
		t.Errorf("%d hits, %d by time: the traces test too little", total, byTime)
	}
}
