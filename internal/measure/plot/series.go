package plot

import (
	"image"
	"image/color"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// lineWidth is how thick a curve is, in pixels.
const lineWidth = 1.8

// drawCurves draws the curves of a panel: first the bands behind all of them.
func (p *panel) drawSeries(c *canvas) {
	for _, curve := range p.series {
		for _, piece := range p.pieces(curve) {
			p.drawBand(c, curve, piece)
		}
	}
	for _, curve := range p.series {
		isStep := isState(curve.Points)
		for _, piece := range p.pieces(curve) {
			line := p.reduce(curve, piece)
			if isStep {
				line = steps(line)
			}
			c.stroke(p.area, line, lineWidth, curve.color)
		}
	}
}

// pieces are the points of a curve between its holes, as far as they are shown.
func (p *panel) pieces(curve coloredSeries) (pieces [][]ferrule.Point) {
	breaks := make([]time.Time, len(curve.Gaps))
	for i, hole := range curve.Gaps {
		breaks[i] = hole.From.Add(hole.To.Sub(hole.From) / 2)
	}
	slices.SortFunc(breaks, time.Time.Compare)
	begin := 0
	cut := func(end int) {
		if begin < end {
			pieces = append(pieces, curve.Points[begin:end])
		}
	}
	for i, point := range curve.Points {
		at := curve.middle(point)
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
	cut(len(curve.Points))
	return pieces
}

// reduce is the dots of a piece: of each column of pixels the first, the lowest, the
// highest and the last, which look like all of them.
func (p *panel) reduce(curve coloredSeries, points []ferrule.Point) (line []dot) {
	var of column
	for i, point := range points {
		d := dot{p.x(curve.middle(point)), p.y(point.Mean)}
		if i > 0 && int(d.x) != int(of.first.x) {
			line = of.add(line)
			of = column{}
		}
		of.take(d)
	}
	return of.add(line)
}

// column is the dots of one column of pixels that matter.
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

// add adds the dots in the order in which they came.
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

// isState tells whether a signal is a state: it stays as it is until it is another, and
// does not go there slowly.
func isState(points []ferrule.Point) bool {
	for _, p := range points {
		if p.Count != 1 || p.Mean != 0 && p.Mean != 1 && p.Mean != -1 {
			return false
		}
	}
	return true
}

// stairs goes from dot to dot without slopes.
func steps(line []dot) (steps []dot) {
	for i, d := range line {
		if i > 0 {
			steps = append(steps, dot{d.x, line[i-1].y})
		}
		steps = append(steps, d)
	}
	return steps
}

// drawBand draws from where to where the samples behind points went, if points are
// more than one sample.
func (p *panel) drawBand(c *canvas, curve coloredSeries, points []ferrule.Point) {
	if curve.Resolution == ferrule.Raw || curve.Resolution == "" {
		return
	}
	var upper, lower []dot
	for _, point := range points {
		x, high, low := p.x(curve.middle(point)), p.y(point.Max), p.y(point.Min)
		if n := len(upper) - 1; n >= 0 && int(upper[n].x) == int(x) {
			upper[n].y, lower[n].y = min(upper[n].y, high), max(lower[n].y, low)
			continue
		}
		upper, lower = append(upper, dot{x, high}), append(lower, dot{x, low})
	}
	if len(upper) == 1 { // it has no width of its own
		upper = []dot{{upper[0].x - 1, upper[0].y}, {upper[0].x + 1, upper[0].y}}
		lower = []dot{{lower[0].x - 1, lower[0].y}, {lower[0].x + 1, lower[0].y}}
	}
	slices.Reverse(lower)
	c.polygon(p.area, append(upper, lower...), translucent(curve.color, 0x40))
}

// through is a colour that lets through what is behind it.
func translucent(colour color.RGBA, alpha uint8) color.NRGBA {
	return color.NRGBA{colour.R, colour.G, colour.B, alpha}
}

// drawHoles shades where samples of a curve may be missing, however many there are.
func (p *panel) drawGaps(c *canvas, curve coloredSeries) {
	shaded := make([]bool, p.area.Dx())
	for _, hole := range curve.Gaps {
		if hole.To.Before(p.from) || hole.From.After(p.to) {
			continue
		}
		left := max(0, int(p.x(hole.From))-p.area.Min.X)
		right := min(len(shaded)-1, int(p.x(hole.To))-p.area.Min.X)
		for x := left; x <= right; x++ {
			shaded[x] = true
		}
	}
	for x, is := range shaded {
		if is {
			c.fill(image.Rect(p.area.Min.X+x, p.area.Min.Y, p.area.Min.X+x+1, p.area.Max.Y), translucent(curve.color, 0x28))
		}
	}
}
