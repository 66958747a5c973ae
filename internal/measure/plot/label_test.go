package plot

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var charts = flag.Uint64("charts", 12, "how many charts TestLabels draws")

// TestLabels checks on random charts that no two texts overlap, that none leaves the image,
// and that the minimum, maximum and last value are written.
func TestLabels(t *testing.T) {
	t.Parallel()
	for seed := range *charts {
		r := rand.New(rand.NewPCG(seed, 15))
		length := time.Duration(math.Pow(10, 6+r.Float64()*11)) // a millisecond to three years
		p := Chart{Title: "robot", From: began, To: began.Add(length), Width: MinWidth + r.IntN(1200), Height: 700 + r.IntN(500), Zone: time.UTC}
		for i := range 1 + r.IntN(5) {
			s := ferrule.Series{Signal: fmt.Sprintf("signal_%d", i), Unit: []string{"", "°C", "lx"}[r.IntN(3)], Resolution: ferrule.Raw}
			n, scale := r.IntN(60), math.Pow(10, float64(r.IntN(12)-4))
			for k := range n {
				s.Points = append(s.Points, ferrule.Sample{Time: began.Add(length / time.Duration(n+1) * time.Duration(k)), Value: r.NormFloat64() * scale}.Point())
			}
			p.Series = append(p.Series, s)
		}
		for i := range r.IntN(30) {
			p.Calls = append(p.Calls, ferrule.Entry{Tool: fmt.Sprintf("tool_%d", i), Time: began.Add(time.Duration(r.Int64N(int64(length))))})
		}
		c, err := p.draw()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, a := range c.texts {
			if !a.In(c.image.Bounds()) {
				t.Errorf("seed %d: text at %v of %v", seed, a, c.image.Bounds())
			}
			for _, b := range c.texts[:i] {
				if a.Overlaps(b) {
					t.Fatalf("seed %d, %dx%d, %v: texts at %v and %v", seed, p.Width, p.Height, length, a, b)
				}
			}
		}
		c.close()
	}
}

// TestExtremes checks which values are labeled, and that there is a label for each.
func TestExtremes(t *testing.T) {
	t.Parallel()
	s := ferrule.Series{Signal: "light", Resolution: ferrule.Raw}
	for i := range 60 {
		s.Points = append(s.Points, ferrule.Sample{Time: began.Add(time.Duration(i) * time.Minute), Value: math.Round(50 + 40*math.Sin(float64(i)/8))}.Point())
	}
	s.Last = &ferrule.Sample{Time: began.Add(59*time.Minute + time.Second), Value: 77}
	p := hour(s)
	panel := &panel{series: []coloredSeries{{&s, palette[0]}}, axes: newAxes(p.From, p.To, []coloredSeries{{&s, palette[0]}}, 300)}
	if got := panel.extremes(panel.series[0]).text(); got != "  min 10, max 90, last 77" {
		t.Errorf("got %q", got)
	}
	with, err := p.draw()
	if err != nil {
		t.Fatal(err)
	}
	p.Series[0].Points, p.Series[0].Last = nil, nil
	without, err := p.draw()
	if err != nil {
		t.Fatal(err)
	}
	inside := func(c *canvas) (n int) {
		for _, box := range c.texts {
			if box.Min.X > 120 && box.Min.Y > 45 && box.Max.Y < 366 {
				n++
			}
		}
		return n
	}
	if n := inside(with); n != 3 || inside(without) > 1 {
		t.Errorf("%d labels, %d without values", n, inside(without))
	}
}
