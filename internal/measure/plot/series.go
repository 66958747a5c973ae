package plot

import (
	"image"
	"image/color"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// lineWidth is in pixels.
const lineWidth = 1.8

// drawSeries draws the series of a panel. The bands come first, behind all lines.
func (p *panel) drawSeries(c *canvas) {
	for _, s := range p.series {
		for _, piece := range p.pieces(s) {
			p.drawBand(c, s, piece)
		}
	}
	for _, s := range p.series {
		isStep := s.State || isState(s.Points)
		for _, piece := range p.pieces(s) {
			line := p.reduce(s, piece)
			if isStep {
				line = steps(line)
			}
			c.stroke(p.area, line, lineWidth, s.color)
		}
	}
}

// pieces returns the visible points of a series, split at its gaps.
func (p *panel) pieces(s coloredSeries) (pieces [][]ferrule.Point) {
	breaks := make([]time.Time, len(s.Gaps))
	for i, gap := range s.Gaps {
		breaks[i] = gap.From.Add(gap.To.Sub(gap.From) / 2)
	}
	slices.SortFunc(breaks, time.Time.Compare)
	begin := 0
	cut := func(end int) {
		if begin < end {
			pieces = append(pieces, s.Points[begin:end])
		}
	}
	for i, point := range s.Points {
		at := s.middle(point)
		passed := 0
		for passed < len(breaks) && breaks[passed].Before(at) {
			passed++
		}
		breaks = breaks[passed:]
		switch {
		case !p.shows(at) || !finite(point):
			cut(i)
			begin = i + 1
		case passed > 0:
			cut(i)
			begin = i
		}
	}
	cut(len(s.Points))
	return pieces
}

// reduce returns the dots of a piece: of each column of pixels the first, lowest, highest and
// last, which look the same as all of them.
func (p *panel) reduce(s coloredSeries, points []ferrule.Point) (line []dot) {
	var of column
	for i, point := range points {
		d := dot{p.x(s.middle(point)), p.y(point.Mean)}
		if i > 0 && int(d.x) != int(of.first.x) {
			line = of.add(line)
			of = column{}
		}
		of.take(d)
	}
	return of.add(line)
}

// column collects the dots of one column of pixels.
type column struct {
	first, low, high, last dot
	n, lowAt, highAt       int
}

func (c *column) take(d dot) {
	if c.n == 0 {
		c.first, c.low, c.high = d, d, d
	}
	if d.y > c.low.y {
		c.low, c.lowAt = d, c.n
	}
	if d.y < c.high.y {
		c.high, c.highAt = d, c.n
	}
	c.last = d
	c.n++
}

// add appends the dots in their original order.
func (c *column) add(line []dot) []dot {
	if c.n == 0 {
		return line
	}
	line = append(line, c.first)
	early, late := c.low, c.high
	if c.highAt < c.lowAt {
		early, late = late, early
	}
	for _, d := range []dot{early, late, c.last} {
		if d != line[len(line)-1] {
			line = append(line, d)
		}
	}
	return line
}

// isState reports whether the values of a signal look like states. A device that answers
// true and false does not declare them.
func isState(points []ferrule.Point) bool {
	for _, p := range points {
		if p.Count != 1 || p.Mean != 0 && p.Mean != 1 && p.Mean != -1 {
			return false
		}
	}
	return true
}

// steps connects dots without slopes.
func steps(line []dot) (steps []dot) {
	for i, d := range line {
		if i > 0 {
			steps = append(steps, dot{d.x, line[i-1].y})
		}
		steps = append(steps, d)
	}
	return steps
}

// drawBand draws the band between minimum and maximum, if the points are minutes or hours.
func (p *panel) drawBand(c *canvas, s coloredSeries, points []ferrule.Point) {
	if s.Resolution == ferrule.Raw || s.Resolution == "" {
		return
	}
	var upper, lower []dot
	for _, point := range points {
		x, high, low := p.x(s.middle(point)), p.y(point.Max), p.y(point.Min)
		if n := len(upper) - 1; n >= 0 && int(upper[n].x) == int(x) {
			upper[n].y, lower[n].y = min(upper[n].y, high), max(lower[n].y, low)
			continue
		}
		upper, lower = append(upper, dot{x, high}), append(lower, dot{x, low})
	}
	if len(upper) == 1 { // give it a width
		upper = []dot{{upper[0].x - 1, upper[0].y}, {upper[0].x + 1, upper[0].y}}
		lower = []dot{{lower[0].x - 1, lower[0].y}, {lower[0].x + 1, lower[0].y}}
	}
	slices.Reverse(lower)
	c.polygon(p.area, append(upper, lower...), translucent(s.color, 0x40))
}

// translucent returns a color with the given opacity.
func translucent(col color.RGBA, alpha uint8) color.NRGBA {
	return color.NRGBA{col.R, col.G, col.B, alpha}
}

// drawGaps shades the gaps of a series.
func (p *panel) drawGaps(c *canvas, s coloredSeries) {
	shaded := make([]bool, p.area.Dx())
	for _, gap := range s.Gaps {
		if gap.To.Before(p.from) || gap.From.After(p.to) {
			continue
		}
		left := max(0, int(p.x(gap.From))-p.area.Min.X)
		right := min(len(shaded)-1, int(p.x(gap.To))-p.area.Min.X)
		for x := left; x <= right; x++ {
			shaded[x] = true
		}
	}
	for x, is := range shaded {
		if is {
			c.fill(image.Rect(p.area.Min.X+x, p.area.Min.Y, p.area.Min.X+x+1, p.area.Max.Y), translucent(s.color, 0x28))
		}
	}
}
