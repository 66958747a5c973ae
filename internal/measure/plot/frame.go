package plot

import (
	"image"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// drawTitle writes the title and the time range.
func (p *Chart) drawTitle(c *canvas) {
	const line, left, gap = 17, 8, 16
	shown := p.from().Format(time.DateTime) + " – " + p.until()
	x := p.Width - rightMargin - c.width(shown)
	if x < p.Width/3 {
		shown, x = "", p.Width
	}
	c.text(shown, x, line, gray)
	c.text(c.fit(ferrule.Clean(p.Title, ferrule.MaxText), x-left-gap), left, line, ink)
}

func (p *Chart) from() time.Time { return p.From.In(p.Zone) }

// until returns the end of the time range, without the day if it is that of the start.
func (p *Chart) until() string {
	to := p.To.In(p.Zone)
	if to.Format(time.DateOnly) == p.from().Format(time.DateOnly) {
		return to.Format(time.TimeOnly + " MST")
	}
	return to.Format(time.DateTime + " MST")
}

// drawBack draws what is behind the lines: the grid, the gaps and the legend.
func (p *panel) drawBack(c *canvas, ticks []timeTick) {
	for _, tick := range ticks {
		x := int(p.x(tick.at))
		c.fill(image.Rect(x, p.area.Min.Y, x+1, p.area.Max.Y), gridGray)
	}
	for _, tick := range p.values {
		y := int(p.y(tick.value) + 0.5)
		c.fill(image.Rect(p.area.Min.X, y, p.area.Max.X, y+1), gridGray)
		label := c.fit(tick.label, p.area.Min.X-8)
		c.text(label, p.area.Min.X-6-c.width(label), y+4, gray)
	}
	for _, s := range p.series {
		p.drawGaps(c, s)
	}
	p.drawLegend(c)
}

// drawFrame draws the axes of a panel.
func (p *panel) drawFrame(c *canvas) {
	r := p.area
	for _, side := range []image.Rectangle{
		image.Rect(r.Min.X-1, r.Min.Y, r.Min.X, r.Max.Y), image.Rect(r.Min.X-1, r.Max.Y, r.Max.X, r.Max.Y+1),
	} {
		c.fill(side, gray)
	}
	for _, s := range p.series {
		if slices.ContainsFunc(s.Points, finite) {
			return
		}
	}
	const nothing = "no data"
	c.text(nothing, (r.Min.X+r.Max.X-c.width(nothing))/2, (r.Min.Y+r.Max.Y)/2, gray)
}

// drawTimes writes the time labels below the last panel.
func drawTimes(c *canvas, p panel, ticks []timeTick) {
	for _, tick := range ticks {
		x, y := int(p.x(tick.at)), p.area.Max.Y
		c.fill(image.Rect(x, y, x+1, y+4), gray)
		for i, text := range []string{tick.label, tick.day} {
			w := c.width(text)
			left := min(max(x-w/2, 2), c.image.Bounds().Dx()-w-2)
			if row := y + 16 + i*14; text != "" && c.free(textBox(left, row, w)) {
				c.text(text, left, row, gray)
			}
		}
	}
}

// drawCalls draws a line for each call, and its tool name where there is space. Calls that
// may have changed something get their names first.
func (p *Chart) drawCalls(c *canvas, panels []panel) {
	const maxName = 150
	first := &panels[0]
	top := first.area.Min.Y - headerHeight
	calls := slices.Clone(p.Calls[:min(len(p.Calls), MaxCalls)])
	slices.SortStableFunc(calls, func(a, b ferrule.Entry) int {
		switch changes := a.Phase == ferrule.Intent; {
		case changes == (b.Phase == ferrule.Intent):
			return a.Time.Compare(b.Time)
		case changes:
			return -1
		}
		return 1
	})
	var taken []image.Rectangle
	for _, call := range calls {
		if !first.shows(call.Time) {
			continue
		}
		x, col := int(first.x(call.Time)), callGray
		if call.Code != "" {
			col = callRed
		}
		c.fill(image.Rect(x, top, x+1, top+4), col)
		for i := range panels {
			c.dashes(x, panels[i].area.Min.Y, panels[i].area.Max.Y, col)
		}
		name := c.fit(ferrule.Clean(call.Tool, ferrule.MaxToolName), maxName)
		w := c.width(name)
		left := min(max(x-w/2, 2), p.Width-w-2)
		place := image.Rect(left-4, top-callsHeight, left+w+4, top)
		if name == "" || slices.ContainsFunc(taken, place.Overlaps) {
			continue
		}
		taken = append(taken, place)
		c.text(name, left, top-2, col)
	}
}
