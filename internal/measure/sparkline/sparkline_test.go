package sparkline

import (
	"math"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestDraw checks that values are scaled from the lowest to the highest bar, and that
// missing ones are gaps.
func TestDraw(t *testing.T) {
	gap := math.NaN()
	for _, test := range []struct {
		values []float64
		width  int
		want   string
	}{
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 8, "▁▂▃▄▅▆▇█"},
		{[]float64{-700, 0, 700}, 3, "▁▅█"},
		{[]float64{1, 2}, 5, "   ▁█"},
		{[]float64{100, 1, 2, 3}, 3, "▁▅█"}, // values that are not shown do not count
		{[]float64{5, 5, 5}, 3, "▄▄▄"},
		{[]float64{1, gap, 2, gap}, 4, "▁ █ "},
		{[]float64{gap}, 2, "  "},
		{nil, 3, "   "},
		{[]float64{1}, 0, ""},
		{[]float64{-math.MaxFloat64, math.MaxFloat64, 0}, 3, "▁█▅"},
		{[]float64{0, math.SmallestNonzeroFloat64}, 2, "▄▄"}, // a difference too small to halve
	} {
		if got := Draw(test.values, test.width); got != test.want {
			t.Errorf("%v is %q, want %q", test.values, got, test.want)
		}
	}
}

// TestTrend checks that each sample counts once and that a gap is drawn once, in its place.
func TestTrend(t *testing.T) {
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	samples := func(from, to int) (all []ferrule.Sample) {
		for n := from; n < to; n++ {
			all = append(all, ferrule.Sample{Time: at(n), Value: float64(n)})
		}
		return all
	}
	var tr Trend
	expect := func(want string) {
		t.Helper()
		got := ""
		for _, v := range tr.Values {
			if math.IsNaN(v) {
				got += "."
			} else {
				got += string(rune('a' + int(v)%26))
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	tr.Add(&ferrule.SampleBatch{Samples: samples(0, 1)})
	tr.Add(&ferrule.SampleBatch{Samples: samples(0, 3)}) // the first is a repetition
	expect("abc")
	tr.Add(&ferrule.SampleBatch{Samples: samples(5, 7), Gaps: []ferrule.Gap{{From: at(2), To: at(5)}}})
	expect("abc.fg")
	series := &ferrule.SampleBatch{Samples: append(samples(7, 9), samples(11, 12)...), Gaps: []ferrule.Gap{{From: at(8), To: at(11)}, {From: at(11), To: at(14)}}}
	tr.Add(series)
	expect("abc.fghi.l.")
	tr.Gap()
	tr.Add(&ferrule.SampleBatch{Gaps: []ferrule.Gap{{From: at(14), To: at(15)}}})
	expect("abc.fghi.l.")
	tr.Add(&ferrule.SampleBatch{Samples: samples(15, 16), Gaps: []ferrule.Gap{{From: at(11), To: at(15)}}})
	expect("abc.fghi.l.p")
	tr.Add(&ferrule.SampleBatch{Samples: samples(16, 64)})
	if len(tr.Values) != Length || tr.Values[0] != 24 || tr.Last.Value != 63 {
		t.Errorf("after 48 more: %d values, from %v to %v", len(tr.Values), tr.Values[0], tr.Last.Value)
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", 999 * time.Millisecond: "now", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s", 10*time.Minute + 3*time.Second: "10m",
		time.Hour: "1h", 47*time.Hour + time.Minute: "47h", 73 * time.Hour: "3d",
	} {
		if got := tr.Age(at(63).Add(d)); got != want {
			t.Errorf("after %v: got age %s, want %s", d, got, want)
		}
	}
	if got := (&Trend{}).Age(start); got != "" {
		t.Errorf("age of nothing: %s", got)
	}
}
