package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// tracePoint is a sample of a trace. If lost is set, the device was lost from then until the
// sample.
type tracePoint struct {
	at    time.Time
	value float64
	lost  time.Time
}

// traceHit is a hit of the reference. If the device was lost soon after it, known is when the
// device was back.
type traceHit struct {
	at    time.Time
	value float64
	known time.Time
}

// slack is how long before a gap a state that held may be reported after the gap only: a
// change may be on the way, and time is looked at from tick to tick.
const slack = traceLag + tickEvery

// traceLag is Parts.Silence, as the gateway has it.
const traceLag = 250 * time.Millisecond

// holdsOf returns whether a value meets a condition, and whether it is so far from it that the
// next one is an edge.
func holdsOf(c *condition.Condition) (met, back func(v float64) bool) {
	h := c.Hysteresis
	switch {
	case c.Above != nil:
		return func(v float64) bool { return v > *c.Above }, func(v float64) bool { return v <= *c.Above-h }
	case c.Below != nil:
		return func(v float64) bool { return v < *c.Below }, func(v float64) bool { return v >= *c.Below+h }
	case c.Equals != nil:
		return func(v float64) bool { return v == *c.Equals }, func(v float64) bool { return v != *c.Equals && math.Abs(v-*c.Equals) > h }
	case c.Inside != nil:
		in := func(v float64) bool { return c.Inside.From <= v && v <= c.Inside.To }
		return in, func(v float64) bool { return !in(v) && (v < c.Inside.From-h || v > c.Inside.To+h) }
	}
	return func(v float64) bool { return v < c.Outside.From || v > c.Outside.To }, func(v float64) bool { return c.Outside.From+h <= v && v <= c.Outside.To-h }
}

// offline returns the edges of a whole trace, in which a state lasts until end. It shares no
// code with the evaluator: it cuts the trace into runs in which the condition holds unbroken,
// and looks at each.
func offline(c *condition.Condition, state bool, trace []tracePoint, end time.Time) (hits []traceHit) {
	if c.Changes {
		against := trace[0].value
		for _, p := range trace[1:] {
			if p.value != against && math.Abs(p.value-against) > c.Hysteresis {
				hits = append(hits, traceHit{at: p.at, value: p.value})
				against = p.value
			}
		}
		return hits
	}
	met, back := holdsOf(c)
	armed := true
	for i := 0; i < len(trace); {
		if !met(trace[i].value) {
			armed = armed || back(trace[i].value)
			i++
			continue
		}
		last := i // of the run
		for last+1 < len(trace) && met(trace[last+1].value) && trace[last+1].lost.IsZero() {
			last++
		}
		if armed {
			if hit, ok := hitOf(c, state, trace, i, last, end); ok {
				hits = append(hits, hit)
				armed = false
			}
		}
		i = last + 1
	}
	return hits
}

// hitOf returns the hit of a run from first to last.
func hitOf(c *condition.Condition, state bool, trace []tracePoint, first, last int, end time.Time) (hit traceHit, ok bool) {
	due := trace[first].at.Add(time.Duration(c.For))
	switch {
	case c.For == 0:
		return traceHit{at: trace[first].at, value: trace[first].value}, true
	case !state: // samples prove it
		for _, p := range trace[first : last+1] {
			if !p.at.Before(due) {
				return traceHit{at: p.at, value: p.value}, true
			}
		}
		return hit, false
	}
	var known time.Time
	if last+1 < len(trace) {
		next := trace[last+1]
		until := next.at
		if !next.lost.IsZero() {
			until = next.lost
			if until.Sub(due) <= slack {
				known = next.at
			}
		}
		if due.After(until) {
			return hit, false
		}
	}
	hit = traceHit{at: due, known: known}
	for _, p := range trace[first : last+1] {
		if p.at.Before(due) {
			hit.value = p.value
		}
	}
	return hit, true
}

func randomTrace(r *rand.Rand, begin time.Time) (trace []tracePoint) {
	at, v := begin, float64(r.IntN(11))
	for i := range 5 + r.IntN(25) {
		last := at
		at = at.Add(time.Duration(1+r.IntN(4000)) * time.Millisecond)
		if v = max(0, min(10, v+float64(r.IntN(5)-2)/2)); r.IntN(8) == 0 {
			v = float64(r.IntN(11))
		}
		p := tracePoint{at: at, value: v}
		if i > 0 && r.IntN(8) == 0 {
			p.lost = last.Add(time.Duration(r.Int64N(int64(at.Sub(last)))))
		}
		trace = append(trace, p)
	}
	return trace
}

func randomCondition(r *rand.Rand, device string) condition.Condition {
	c := condition.Condition{Device: device, Signal: "s"}
	number := func(n int) *float64 { v := float64(n); return &v }
	switch r.IntN(6) {
	case 0:
		c.Above = number(r.IntN(10))
	case 1:
		c.Below = number(1 + r.IntN(10))
	case 2:
		c.Equals = number(r.IntN(4))
	case 3:
		c.Inside = &condition.Band{From: float64(r.IntN(5)), To: float64(5 + r.IntN(5))}
	case 4:
		c.Outside = &condition.Band{From: float64(r.IntN(4)), To: float64(6 + r.IntN(4))}
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

// playedDevice is a device with one watch, which plays a trace.
type playedDevice struct {
	id    string
	watch Watch
	state bool
	trace []tracePoint
}

// seenNotice is a notice, and when it came.
type seenNotice struct {
	Notice
	at time.Time
}

// play plays the traces of many devices to the watches of one node, and returns the notices.
func play(t *testing.T, devices []playedDevice, end time.Time) map[string][]seenNotice {
	var mu sync.Mutex
	got := make(map[string][]seenNotice)
	k, err := Open(Parts{
		File: filepath.Join(t.TempDir(), "watches"), Node: "one", Log: slog.New(slog.DiscardHandler), Updated: func(string) {},
		Owner:   func(w *Watch) (ferrule.Principal, error) { return w.Owner, nil },
		Sees:    func(ferrule.Principal, string) bool { return true },
		Silence: func(*ferrule.Reading) (time.Duration, bool) { return traceLag, true },
		Event: func(e ferrule.Event) {
			n := seenNotice{at: time.Now()}
			if err := json.Unmarshal(e.Params, &n.Notice); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[e.Device] = append(got[e.Device], n)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	k.file.Close() // what is stored is tested elsewhere
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	put := func(id string, state ferrule.State) {
		k.Devices().Put(&ferrule.Device{ID: id, State: state, Trust: ferrule.TrustAdopted}, nil)
	}
	type step struct {
		at time.Time
		do func()
	}
	var steps []step
	for _, d := range devices {
		k.mu.Lock()
		k.set(d.watch)
		k.mu.Unlock()
		put(d.id, ferrule.StateOnline)
		for _, p := range d.trace {
			b := ferrule.SampleBatch{Signal: "s", State: d.state, Samples: []ferrule.Sample{{Time: p.at, Value: p.value}}}
			if !p.lost.IsZero() {
				b.Gaps = []ferrule.Gap{{From: p.lost, To: p.at, Reason: ferrule.Silent}}
				steps = append(steps, step{p.lost, func() { put(d.id, ferrule.StateOffline) }}, step{p.lost.Add(p.at.Sub(p.lost) / 2), func() { put(d.id, ferrule.StateOnline) }})
			}
			steps = append(steps, step{p.at, func() { k.Measured(ferrule.Reading{Device: d.id, Batches: []ferrule.SampleBatch{b}}) }})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	for _, s := range steps {
		time.Sleep(time.Until(s.at))
		s.do()
	}
	time.Sleep(time.Until(end))
	synctest.Wait()
	cancel()
	<-done
	return got
}

// TestRandomTraces plays random traces with gaps to watches, and compares the notices with
// what an evaluation of the whole trace finds: no false and no missed one, each within a
// second of its sample or of the end of its hold.
func TestRandomTraces(t *testing.T) {
	const nodes, each = 100, 100
	total, held, late := 0, 0, 0
	var slowest time.Duration
	for node := range uint64(nodes) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(node, 24))
			begin, devices := time.Now().Add(time.Second), make([]playedDevice, each)
			for i := range devices {
				id := "d-" + strconv.Itoa(i)
				devices[i] = playedDevice{id: id, state: r.IntN(2) == 0, trace: randomTrace(r, begin.Add(time.Duration(r.IntN(1000))*time.Millisecond))}
				devices[i].watch = Watch{ID: newID(), Name: id, Owner: maria, Condition: randomCondition(r, id), Created: time.Now(), Version: 1,
					Every: ferrule.Duration(-2 * time.Second), PerHour: math.MaxInt} // no limits
			}
			end := begin.Add(3 * time.Minute)
			got := play(t, devices, end)
			for i, d := range devices {
				want, have := offline(&d.watch.Condition, d.state, d.trace, end), got[d.id]
				if !slices.EqualFunc(have, want, func(a seenNotice, b traceHit) bool { return a.Hit.Time.Equal(b.at) && a.Hit.Value == b.value }) {
					t.Fatalf("trace %d of %d: %s, hysteresis %v, state %t:\n%v\ngot  %v\nwant %v", i, node, d.watch.Condition.Test(), d.watch.Condition.Hysteresis, d.state, shown(d.trace, begin), shown(have, begin), shown(want, begin))
				}
				for j, n := range have {
					from := n.Hit.Time
					if known := want[j].known; !known.IsZero() && n.at.Sub(from) > slack {
						from = known
						late++
					}
					slowest = max(slowest, n.at.Sub(from))
				}
				if total += len(have); d.watch.Condition.For > 0 {
					held += len(have)
				}
			}
		})
	}
	t.Logf("%d hits in %d traces, %d of them after a hold; the slowest notice came after %v; %d holds ended less than %v before a gap and were reported after it", total, nodes*each, held, slowest, late, slack)
	if slowest > time.Second {
		t.Errorf("a notice came %v after the sample", slowest)
	}
	if total < nodes*each || held < nodes*each/20 {
		t.Errorf("%d hits, %d after a hold: the traces test too little", total, held)
	}
}

// shown returns times as seconds since begin.
func shown[T any](all []T, begin time.Time) (text []string) {
	for _, v := range all {
		switch v := any(v).(type) {
		case tracePoint:
			s := fmt.Sprintf("%v=%v", v.at.Sub(begin).Seconds(), v.value)
			if !v.lost.IsZero() {
				s = fmt.Sprintf("lost %v, ", v.lost.Sub(begin).Seconds()) + s
			}
			text = append(text, s)
		case seenNotice:
			text = append(text, fmt.Sprintf("%v=%v", v.Hit.Time.Sub(begin).Seconds(), v.Hit.Value))
		case traceHit:
			text = append(text, fmt.Sprintf("%v=%v", v.at.Sub(begin).Seconds(), v.value))
		}
	}
	return text
}
