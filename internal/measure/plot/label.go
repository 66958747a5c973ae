package plot

import (
	"image"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// extremes are the points of a series that get a label.
type extremes struct {
	min, max, last mark
	any            bool
}

// mark is a value and when it was measured.
type mark struct {
	at    time.Time
	value float64
}

// extremes returns the minimum, maximum and last value of a series in the time range.
func (p *panel) extremes(s coloredSeries) (e extremes) {
	for _, point := range s.Points {
		at := s.middle(point)
		if !p.shows(at) || !finite(point) {
			continue
		}
		if !e.any || point.Min < e.min.value {
			e.min = mark{at, point.Min}
		}
		if !e.any || point.Max > e.max.value {
			e.max = mark{at, point.Max}
		}
		e.last, e.any = mark{at, point.Mean}, true
	}
	if l := s.Last; l != nil && e.any && p.shows(l.Time) {
		e.last = mark{l.Time, l.Value}
	}
	return e
}

// text describes the extremes in the legend.
func (e extremes) text() string {
	if !e.any {
		return ""
	}
	return "  min " + number(e.min.value) + ", max " + number(e.max.value) + ", last " + number(e.last.value)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// drawLabels writes the minimum, maximum and last value of each series next to its line. A
// label that has no space is left out; the legend has the values too.
func (p *panel) drawLabels(c *canvas) {
	const away = 5
	for _, s := range p.series {
		e := p.extremes(s)
		if !e.any {
			continue
		}
		marks := []mark{e.max, e.min, e.last}
		if e.min.value == e.max.value { // a flat line
			marks = marks[2:]
		}
		for i, m := range marks {
			x, y := int(p.x(m.at)), int(p.y(m.value))
			text := number(m.value)
			w := c.width(text)
			above, below := y-away, y+away+textHeight
			places := []image.Point{{x - w/2, above}, {x - w - away, above}, {x + away, above}, {x - w/2, below}, {x - w - away, below}, {x + away, below}}
			if i == 1 && len(marks) > 1 { // the minimum is best below
				slices.Reverse(places)
			}
			for _, at := range places {
				if box := textBox(at.X, at.Y, w); box.In(p.area) && c.free(box) && !p.covers(c, box) {
					c.text(text, at.X, at.Y, ink)
					break
				}
			}
		}
	}
}

// covers reports whether a space contains a part of a line.
func (p *panel) covers(c *canvas, box image.Rectangle) bool {
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			if at := c.image.RGBAAt(x, y); slices.ContainsFunc(p.series, func(s coloredSeries) bool { return s.color == at }) {
				return true
			}
		}
	}
	return false
}

// drawLegend writes the unit and the names of the series above a panel, with their extremes
// if there is space for all.
func (p *panel) drawLegend(c *canvas) {
	const dash, gap = 18, 14
	x, y := p.area.Min.X, p.area.Min.Y-6
	if unit := ferrule.Clean(p.unit, ferrule.MaxUnit); unit != "" {
		c.text(unit, x, y, ink)
		x += c.width(unit) + gap
	}
	names, width := make([]string, len(p.series)), 0
	for i, s := range p.series {
		names[i] = s.Signal + p.extremes(s).text()
		width += dash + 4 + c.width(names[i]) + gap
	}
	for i, s := range p.series {
		if x+width-gap > p.area.Max.X {
			names[i] = s.Signal
		}
	}
	for i, s := range p.series {
		name := c.fit(names[i], p.area.Max.X-x-dash-4)
		if name == "" {
			return
		}
		c.fill(image.Rect(x, y-5, x+dash, y-3), s.color)
		c.text(name, x+dash+4, y, ink)
		x += dash + 4 + c.width(name) + gap
	}
}
