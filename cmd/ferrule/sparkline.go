package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// bars are what values are drawn with, the lowest first.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values in one line of that width, the newest at the right. The
// lowest and the highest of them are the lowest and the highest bar; NaN is a gap.
func sparkline(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	var line strings.Builder
	line.WriteString(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		switch span := high/2 - low/2; { // the whole may be more than a number can be
		case math.IsNaN(v):
			line.WriteByte(' ')
		case span == 0:
			line.WriteRune(bars[len(bars)/2-1])
		default:
			line.WriteRune(bars[int(math.Round((v/2-low/2)/span*float64(len(bars)-1)))])
		}
	}
	return line.String()
}

// trendLength is how many values are remembered of a signal that is watched.
const trendLength = 40

// trend is the last values of a signal; NaN where some are missing.
type trend struct {
	values []float64
	last   ferrule.Sample
}

// add takes in what is new: as many values as there are samples.
func (t *trend) add(s *ferrule.SampleBatch) {
	holes := s.Gaps
	for _, sample := range s.Samples {
		if !sample.Time.After(t.last.Time) {
			continue // it is known
		}
		for len(holes) > 0 && sample.Time.After(holes[0].From) {
			t.gap()
			holes = holes[1:]
		}
		t.push(sample.Value)
		t.last = sample
	}
	if len(holes) > 0 {
		t.gap()
	}
}

// gap tells that some may be missing.
func (t *trend) gap() {
	if n := len(t.values); n > 0 && !math.IsNaN(t.values[n-1]) {
		t.push(math.NaN())
	}
}

func (t *trend) push(v float64) {
	if t.values = append(t.values, v); len(t.values) > trendLength {
		t.values = append(t.values[:0], t.values[1:]...)
	}
}

// age is how old the last value is, as short as it can be said; empty if there is none.
func (t *trend) age(now time.Time) string {
	switch d := now.Sub(t.last.Time); {
	case t.last.Time.IsZero():
		return ""
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Hour).String(), "0m0s")
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
