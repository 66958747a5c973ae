// Package sparkline draws values in one line of text, and remembers the last values of a
// signal to draw.
package sparkline

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// bars are the characters for values, the lowest first.
var bars = []rune("▁▂▃▄▅▆▇█")

// Draw draws the last values in a line of the given width, the newest at the right. The
// lowest and the highest value become the lowest and the highest bar; NaN is a gap.
func Draw(values []float64, width int) string {
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
		switch span := high/2 - low/2; { // halved, because the difference may overflow
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

// Length is the number of values that a Trend remembers.
const Length = 40

// Trend is the last values of a signal; NaN where some are missing.
type Trend struct {
	Values []float64
	Last   ferrule.Sample
}

// Add adds the samples that are newer than the last one.
func (t *Trend) Add(s *ferrule.SampleBatch) {
	gaps := s.Gaps
	for _, sample := range s.Samples {
		if !sample.Time.After(t.Last.Time) {
			continue
		}
		for len(gaps) > 0 && sample.Time.After(gaps[0].From) {
			t.Gap()
			gaps = gaps[1:]
		}
		t.push(sample.Value)
		t.Last = sample
	}
	if len(gaps) > 0 {
		t.Gap()
	}
}

// Gap notes that samples may be missing.
func (t *Trend) Gap() {
	if n := len(t.Values); n > 0 && !math.IsNaN(t.Values[n-1]) {
		t.push(math.NaN())
	}
}

func (t *Trend) push(v float64) {
	if t.Values = append(t.Values, v); len(t.Values) > Length {
		t.Values = append(t.Values[:0], t.Values[1:]...)
	}
}

// Age returns the age of the last value in at most three characters, or "" if there is none.
func (t *Trend) Age(now time.Time) string {
	switch d := now.Sub(t.Last.Time); {
	case t.Last.Time.IsZero():
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
