package draw

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Chart is a time range of signals that have the same unit.
type Chart struct {
	// ID is unique in the page.
	ID string
	// Title is the name of what is drawn.
	Title    string
	Unit     string
	From, To time.Time
	Series   []ferrule.Series
	Calls    []Mark
	// Zone is the time zone of the axis; nil for the local one.
	Zone *time.Location
}

// Mark is a call on the time axis.
type Mark struct {
	Time time.Time
	// MayHaveRun reports whether it is unknown what the call has done.
	MayHaveRun bool
	Text       string
}

// Limits of a chart.
const (
	chartColumns = 240
	maxMarks     = 200
	maxHatches   = 100
	maxName      = 64
)

// Margins of a chart, in pixels.
const (
	marginLeft   = 38
	marginRight  = 58
	marginTop    = 18
	marginBottom = 50
)

// SVG returns the chart. Classes are added to its class.
func (c Chart) SVG(width, height int, classes string) template.HTML {
	p := &painter{Chart: c, width: width, height: height}
	p.left, p.right = marginLeft, float64(width-marginRight)
	p.top, p.bottom = marginTop, float64(height-marginBottom)
	p.x = clock{c.From, c.To.Sub(c.From), p.left, p.right}
	p.prepare()
	text := template.HTMLEscapeString(c.Summary())
	hatch := fmt.Sprintf("hatch-%s-%d", ferrule.SignalName(c.ID), width)
	p.add(`<svg class="%s" viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%s</title>`, template.HTMLEscapeString(strings.TrimSpace("chart "+classes)), width, height, text, text)
	p.add(`<defs><pattern id="%s" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0v6"/></pattern></defs>`, hatch)
	p.grid()
	labels := p.gaps(hatch)
	p.calls()
	p.add(`<path class="ax" d="M%s %sH%s"/>`, px(p.left), px(p.bottom), px(p.right))
	p.lines()
	p.extremes()
	p.now()
	p.b.WriteString(labels)
	p.add("</svg>")
	return template.HTML(p.b.String())
}

// painter draws one chart in one size.
type painter struct {
	Chart
	width, height            int
	left, right, top, bottom float64
	x                        clock
	y                        scale
	ticks                    []float64
	decimals                 int
	points                   [][]ferrule.Point // of each series
	b                        strings.Builder
}

func (p *painter) add(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// prepare selects the points, and a range of values that ends at round numbers.
func (p *painter) prepare() {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range p.Series {
		points := extend(finite(s.Points, p.From, p.To), s, p.To)
		p.points = append(p.points, points)
		for _, point := range points {
			low, high = min(low, point.Min), max(high, point.Max)
		}
	}
	low, high = widen(low, high)
	if low > 0 && low < 0.35*high {
		low = 0
	}
	lines := max(2, int((p.bottom-p.top)/48))
	p.ticks, p.decimals = Ticks(low, high, lines)
	if n := len(p.ticks); n > 1 {
		low, high = min(low, p.ticks[0]), max(high, p.ticks[n-1])
	}
	p.y = scale{low, high, p.bottom, p.top + 12}
}

// Ticks returns round numbers between two values, about as many as wanted, and how many
// decimals they need.
func Ticks(low, high float64, wanted int) (ticks []float64, decimals int) {
	step := (high/2 - low/2) / float64(wanted) * 2
	if math.IsInf(step, 0) || math.IsNaN(step) || step <= 0 {
		return nil, 0
	}
	power := math.Pow(10, math.Floor(math.Log10(step)))
	if power == 0 || math.IsInf(power, 0) {
		return nil, 0
	}
	for _, factor := range []float64{1, 2, 5, 10} {
		if factor*power >= step {
			step = factor * power
			break
		}
	}
	if math.IsInf(step, 0) {
		return nil, 0
	}
	decimals = min(9, max(0, -int(math.Floor(math.Log10(step)+1e-9))))
	first := math.Ceil(low/step - 1e-9)
	for i := 0.0; i < float64(wanted)+2; i++ {
		v := (first + i) * step
		if v > high+step*1e-9 || math.IsInf(v, 0) {
			break
		}
		ticks = append(ticks, v)
	}
	return ticks, decimals
}

// grid draws the lines of the values and the times below.
func (p *painter) grid() {
	for _, v := range p.ticks {
		text := fixed(v, p.decimals)
		if math.Abs(v) >= 1e5 || p.decimals > 4 {
			text = Number(v)
		}
		p.add(`<path class="gl" d="M%s %sH%s"/><text x="%s" y="%s" text-anchor="end">%s</text>`,
			px(p.left), px(p.y.at(v)), px(p.right), px(p.left-8), px(p.y.at(v)+4), text)
	}
	n := 5
	if p.width < 480 {
		n = 3
	}
	for i := range n {
		t := p.From.Add(p.To.Sub(p.From) / time.Duration(n-1) * time.Duration(i))
		anchor := "middle"
		if i == 0 {
			anchor = "start"
		} else if i == n-1 {
			anchor = "end"
		}
		p.add(`<text x="%s" y="%d" text-anchor="%s">%s</text>`, px(p.x.at(t)), p.height-8, anchor, p.clockText(t))
	}
}

// clockText returns a time as the axis shows it.
func (p *painter) clockText(t time.Time) string {
	if p.Zone != nil {
		t = t.In(p.Zone)
	} else {
		t = t.Local()
	}
	switch length := p.To.Sub(p.From); {
	case length <= 5*time.Minute:
		return t.Format("15:04:05")
	case length <= 36*time.Hour:
		return t.Format("15:04")
	case length <= 15*24*time.Hour:
		return t.Format("Mon 15:04")
	}
	return t.Format("2 Jan")
}

// allGaps returns the stretches that are visible in the range, without overlaps.
func (c Chart) allGaps() (gaps []ferrule.Gap) {
	for _, s := range c.Series {
		for _, g := range s.Gaps {
			g.From, g.To = later(g.From, c.From), earlier(g.To, c.To)
			if g.From.Before(g.To) {
				gaps = append(gaps, g)
			}
		}
	}
	slices.SortFunc(gaps, func(a, b ferrule.Gap) int { return a.From.Compare(b.From) })
	merged := gaps[:0]
	for _, g := range gaps {
		if n := len(merged); n > 0 && !g.From.After(merged[n-1].To) {
			merged[n-1].To = later(merged[n-1].To, g.To)
			continue
		}
		merged = append(merged, g)
	}
	return merged
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// gaps hatches where samples may be missing. It returns the labels, which lie above the
// lines.
func (p *painter) gaps(hatch string) string {
	var labels strings.Builder
	for i, g := range p.allGaps() {
		left, right := p.x.at(g.From), p.x.at(g.To)
		if i == maxHatches {
			break
		}
		if right-left < 0.5 {
			continue
		}
		for _, fill := range []string{`class="gp"`, `fill="url(#` + hatch + `)"`} {
			p.add(`<rect %s x="%s" y="%s" width="%s" height="%s"/>`, fill, px(left), px(p.top), px(right-left), px(p.bottom-p.top))
		}
		middle, y, length := (left+right)/2, (p.top+p.bottom)/2, Length(g.To.Sub(g.From))
		words := 6.2*float64(len(length)) + 8
		switch {
		case right-left >= max(58, words):
			box := max(50, words)
			fmt.Fprintf(&labels, `<rect class="gpl" x="%s" y="%s" width="%s" height="36" rx="4"/><text class="gt" x="%s" y="%s" text-anchor="middle">No data</text><text class="gt" x="%s" y="%s" text-anchor="middle">%s</text>`,
				px(middle-box/2), px(y-18), px(box), px(middle), px(y-4), px(middle), px(y+10), length)
		case right-left >= words-8:
			fmt.Fprintf(&labels, `<rect class="gpl" x="%s" y="%s" width="%s" height="18" rx="4"/><text class="gt" x="%s" y="%s" text-anchor="middle">%s</text>`,
				px(middle-words/2), px(y-9), px(words), px(middle), px(y+4), length)
		}
	}
	return labels.String()
}

// calls draws a diamond below the axis for each call.
func (p *painter) calls() {
	marks := p.Calls[max(0, len(p.Calls)-maxMarks):]
	for _, m := range marks {
		if m.Time.Before(p.From) || m.Time.After(p.To) {
			continue
		}
		class := "mk"
		if m.MayHaveRun {
			class = "mk q"
		}
		x := px(p.x.at(m.Time))
		p.add(`<g><title>%s</title><path class="call" d="M%s %sV%s"/><path class="%s" d="M%s %sl4 4-4 4-4-4Z"/></g>`,
			template.HTMLEscapeString(ferrule.Clean(m.Text, ferrule.MaxWord)), x, px(p.top), px(p.bottom+12), class, x, px(p.bottom+5))
	}
}

// seriesClass returns the class of the nth line.
func seriesClass(i int) string { return [...]string{"", " b", " c"}[i%3] }

// lines draws each series: the band of lowest to highest, and the average.
func (p *painter) lines() {
	lowest := func(p ferrule.Point) float64 { return p.Min }
	highest := func(p ferrule.Point) float64 { return p.Max }
	for i, s := range p.Series {
		for n, part := range split(p.points[i], s.Gaps) {
			if n == chartColumns {
				break // too many gaps to be seen
			}
			part = reduce(part, p.From, p.To, chartColumns)
			if !s.State && slices.ContainsFunc(part, func(p ferrule.Point) bool { return p.Min != p.Max }) {
				back := slices.Clone(part)
				slices.Reverse(back)
				p.add(`<path class="ar%s" d="%sL%sZ"/>`, seriesClass(i), curve(part, p.x, p.y, highest, false), curve(back, p.x, p.y, lowest, false)[1:])
			}
			p.add(`<path class="ln%s" d="%s"/>`, seriesClass(i), curve(part, p.x, p.y, mean, s.State))
		}
	}
}

// extremes labels the lowest and the highest value, if there is one series.
func (p *painter) extremes() {
	if len(p.Series) != 1 || len(p.points[0]) < 2 {
		return
	}
	points := p.points[0]
	low := slices.MinFunc(points, func(a, b ferrule.Point) int { return compare(a.Min, b.Min) })
	high := slices.MaxFunc(points, func(a, b ferrule.Point) int { return compare(a.Max, b.Max) })
	if low.Min == high.Max {
		return
	}
	label := func(t time.Time, v, offset float64, word string) {
		x, anchor := p.x.at(t), "middle"
		if x < p.left+30 {
			anchor = "start"
		} else if x > p.right-30 {
			anchor = "end"
		}
		p.add(`<circle class="pt" cx="%s" cy="%s" r="3"/><text class="lb halo" x="%s" y="%s" text-anchor="%s">%s %s</text>`,
			px(x), px(p.y.at(v)), px(x), px(p.y.at(v)+offset), anchor, word, Number(v))
	}
	label(high.Time, high.Max, -8, "max")
	label(low.Time, low.Min, 16, "min")
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// now labels the last value of each series on the right.
func (p *painter) now() {
	var used []float64
	for i, s := range p.Series {
		n := len(p.points[i])
		if n == 0 {
			continue
		}
		last := p.points[i][n-1]
		v := last.Mean
		if s.Last != nil && !math.IsNaN(s.Last.Value) && !math.IsInf(s.Last.Value, 0) {
			v = s.Last.Value
		}
		x, y := p.x.at(last.Time), p.y.at(v)
		p.add(`<circle class="last%s" cx="%s" cy="%s" r="4.5"/>`, seriesClass(i), px(x), px(y))
		if slices.ContainsFunc(used, func(u float64) bool { return math.Abs(u-y) < 26 }) {
			continue
		}
		used = append(used, y)
		p.add(`<text class="lb" x="%s" y="%s" font-size="13">%s</text><text x="%s" y="%s">%s</text>`,
			px(p.right+10), px(y+1), Number(v), px(p.right+10), px(y+15), template.HTMLEscapeString(Unit(p.Unit)))
	}
}

// Summary says in words what the chart shows.
func (c Chart) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s over %s", ferrule.Clean(c.Title, maxName), Length(c.To.Sub(c.From)))
	for i, s := range c.Series {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep)
		if len(c.Series) > 1 {
			b.WriteString(ferrule.Clean(s.Signal, maxName) + " ")
		}
		points := finite(s.Points, c.From, c.To)
		if len(points) == 0 {
			b.WriteString("no values")
			continue
		}
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range points {
			low, high = min(low, p.Min), max(high, p.Max)
		}
		fmt.Fprintf(&b, "minimum %s, maximum %s, last %s", Value(low, c.Unit), Value(high, c.Unit), Value(points[len(points)-1].Mean, c.Unit))
	}
	b.WriteString(".")
	gaps := c.allGaps()
	for _, g := range gaps[:min(3, len(gaps))] {
		p := painter{Chart: c}
		fmt.Fprintf(&b, " No data from %s to %s.", p.clockText(g.From), p.clockText(g.To))
	}
	if n := len(gaps) - 3; n > 0 {
		fmt.Fprintf(&b, " %d more gaps.", n)
	}
	return b.String()
}
