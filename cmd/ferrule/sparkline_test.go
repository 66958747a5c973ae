package main

import (
	"math"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestSparkline: the lowest value is the lowest bar and the highest the highest, whatever
// they are; what is missing is a gap.
func TestSparkline(t *testing.T) {
	gap := math.NaN()
	for _, test := range []struct {
		values []float64
		width  int
		want   string
	}{
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 8, "▁▂▃▄▅▆▇█"},
		{[]float64{-700, 0, 700}, 3, "▁▅█"},
		{[]float64{1, 2}, 5, "   ▁█"},
		{[]float64{100, 1, 2, 3}, 3, "▁▅█"}, // what is not shown does not count
		{[]float64{5, 5, 5}, 3, "▄▄▄"},
		{[]float64{1, gap, 2, gap}, 4, "▁ █ "},
		{[]float64{gap}, 2, "  "},
		{nil, 3, "   "},
		{[]float64{1}, 0, ""},
		{[]float64{-math.MaxFloat64, math.MaxFloat64, 0}, 3, "▁█▅"},
		{[]float64{0, math.SmallestNonzeroFloat64}, 2, "▄▄"}, // no difference that can be halved
	} {
		if got := sparkline(test.values, test.width); got != test.want {
			t.Errorf("%v is %q, want %q", test.values, got, test.want)
		}
	}
}

// TestTrend: each sample counts once, however many come together, and a hole is one gap,
// in its place.
func TestTrend(t *testing.T) {
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	samples := func(from, to int) (all []ferrule.Sample) {
		for n := from; n < to; n++ {
			all = append(all, ferrule.Sample{Time: at(n), Value: float64(n)})
		}
		return all
	}
	var tr trend
	expect := func(want string) {
		t.Helper()
		got := ""
		for _, v := range tr.values {
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
	tr.add(&ferrule.SampleBatch{Samples: samples(0, 1)})
	tr.add(&ferrule.SampleBatch{Samples: samples(0, 3)}) // the first is known
	expect("abc")
	tr.add(&ferrule.SampleBatch{Samples: samples(5, 7), Gaps: []ferrule.Gap{{From: at(2), To: at(5)}}})
	expect("abc.fg")
	series := &ferrule.SampleBatch{Samples: append(samples(7, 9), samples(11, 12)...), Gaps: []ferrule.Gap{{From: at(8), To: at(11)}, {From: at(11), To: at(14)}}}
	tr.add(series)
	expect("abc.fghi.l.")
	tr.gap()
	tr.add(&ferrule.SampleBatch{Gaps: []ferrule.Gap{{From: at(14), To: at(15)}}})
	expect("abc.fghi.l.")
	tr.add(&ferrule.SampleBatch{Samples: samples(15, 16), Gaps: []ferrule.Gap{{From: at(11), To: at(15)}}})
	expect("abc.fghi.l.p")
	tr.add(&ferrule.SampleBatch{Samples: samples(16, 64)})
	if len(tr.values) != trendLength || tr.values[0] != 24 || tr.last.Value != 63 {
		t.Errorf("after 48 more, %d are remembered, from %v to %v", len(tr.values), tr.values[0], tr.last.Value)
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "now", 999 * time.Millisecond: "now", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s", 10*time.Minute + 3*time.Second: "10m",
		time.Hour: "1h", 47*time.Hour + time.Minute: "47h", 73 * time.Hour: "3d",
	} {
		if got := tr.age(at(63).Add(d)); got != want {
			t.Errorf("after %v it is %s old, want %s", d, got, want)
		}
	}
	if got := (&trend{}).age(start); got != "" {
		t.Errorf("nothing is %s old", got)
	}
}

// TestInUnit: a number is as short as it can be without being another, and a unit is one
// word on the line, whatever a device calls it.
func TestInUnit(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{21.5, "°C", "21.5 °C"}, {0.1 + 0.2, "", "0.3"}, {1013.25, "hPa", "1013.25 hPa"}, {1234567, "", "1234567"}, {-1e300, "", "-1e+300"},
		{1, "a\nb\tc", "1 a b c"}, {1, "\x1b[2J", "1 [2J"},
	} {
		if got := inUnit(test.value, test.unit); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
