// Package draw turns measured values into what a page shows without a script: numbers with
// units, sparklines and charts as SVG.
//
//	ferrule.Series ─▶ Spark, Chart.SVG ─▶ elements with classes of the style sheet
//
// A value that is not a finite number is left out. The texts of devices are escaped. No
// element has a style attribute, because the pages forbid them.
package draw

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// digits is the number of significant digits of a value.
const digits = 4

// Number returns a value with at most four significant digits. Whole numbers below a
// billion keep all of theirs.
func Number(v float64) string {
	size := math.Abs(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case size != 0 && (size >= 1e9 || size < 1e-3):
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', digits-1, 64), "e")
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		n, _ := strconv.Atoi(exponent)
		return minus(fmt.Sprintf("%se%d", mantissa, n))
	}
	decimals := 0
	if size > 0 {
		decimals = min(digits, max(0, digits-1-int(math.Floor(math.Log10(size)))))
	}
	return fixed(v, decimals)
}

// fixed returns a number with at most so many decimals.
func fixed(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if decimals > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		text = "0"
	}
	return minus(text)
}

// minus replaces hyphens by minus signs, which are as wide as digits.
func minus(text string) string { return strings.ReplaceAll(text, "-", "−") }

// Value returns a number with its unit, such as "23.4 °C".
func Value(v float64, unit string) string {
	unit = Unit(unit)
	switch unit {
	case "":
		return Number(v)
	case "°", "′", "″":
		return Number(v) + unit
	}
	return Number(v) + " " + unit
}

// Unit returns a unit as it is shown: what a device says, bounded.
func Unit(unit string) string { return strings.TrimSpace(ferrule.Clean(unit, ferrule.MaxUnit)) }

// Length returns a duration in its two largest units, such as "8 min" or "1 h 5 min".
func Length(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return join(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return join(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func join(n int, unit string, m int, part string) string {
	if m == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, m, part)
}

// finite returns the points whose numbers are finite and whose time is in a range.
func finite(points []ferrule.Point, from, to time.Time) []ferrule.Point {
	ok := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	kept := make([]ferrule.Point, 0, len(points))
	for _, p := range points {
		if ok(p.Mean) && ok(p.Min) && ok(p.Max) && !p.Time.Before(from) && !p.Time.After(to) {
			kept = append(kept, p)
		}
	}
	return kept
}

// split cuts points where samples may be missing between two of them.
func split(points []ferrule.Point, gaps []ferrule.Gap) (parts [][]ferrule.Point) {
	start := 0
	for i := 1; i < len(points); i++ {
		before, after := points[i-1].Time, points[i].Time
		if slices.ContainsFunc(gaps, func(g ferrule.Gap) bool { return g.From.Before(after) && g.To.After(before) }) {
			parts = append(parts, points[start:i])
			start = i
		}
	}
	if start < len(points) {
		parts = append(parts, points[start:])
	}
	return parts
}

// reduce returns at most one point for each of the columns of a time range.
func reduce(points []ferrule.Point, from, to time.Time, columns int) []ferrule.Point {
	if len(points) <= columns {
		return points
	}
	return reduceTo(points, from, to, columns)
}

func reduceTo(points []ferrule.Point, from, to time.Time, columns int) []ferrule.Point {
	width := max(1, to.Sub(from)/time.Duration(columns))
	return summarize(points, func(t time.Time) time.Time { return from.Add(t.Sub(from).Truncate(width)) })
}

// summarize returns one point for each column that has points. It is at the time of the
// first of them.
func summarize(points []ferrule.Point, columnOf func(time.Time) time.Time) (out []ferrule.Point) {
	for i := 0; i < len(points); {
		column, p, mean := columnOf(points[i].Time), points[i], ferrule.Mean{}
		for ; i < len(points) && columnOf(points[i].Time).Equal(column); i++ {
			p.Min, p.Max = min(p.Min, points[i].Min), max(p.Max, points[i].Max)
			mean.Add(points[i].Mean, 1)
		}
		p.Mean = mean.Value()
		out = append(out, p)
	}
	return out
}

// Columns returns the points of a series in a time range, one for each multiple of a step
// since the zero time, as [time.Time.Truncate] counts.
func Columns(s ferrule.Series, from, to time.Time, step time.Duration) []ferrule.Point {
	return summarize(finite(s.Points, from, to), func(t time.Time) time.Time { return t.Truncate(step) })
}

// scale maps numbers to pixels.
type scale struct {
	low, high   float64
	first, last float64 // pixels of low and high
}

func (s scale) at(v float64) float64 {
	part := (v/2 - s.low/2) / (s.high/2 - s.low/2) // halves, because the span may exceed a float64
	return s.first + max(0, min(1, part))*(s.last-s.first)
}

// minSpan is the part of a value that fills a chart at least, so noise stays flat.
const minSpan = 0.03

// span returns the smallest range that has all points, widened to minSpan of the values.
func span(points []ferrule.Point) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range points {
		low, high = min(low, p.Min), max(high, p.Max)
	}
	return widen(low, high)
}

func widen(low, high float64) (float64, float64) {
	if low > high {
		return 0, 1
	}
	least := minSpan * max(math.Abs(low), math.Abs(high))
	if least == 0 {
		least = 1
	}
	if high/2-low/2 < least/2 {
		middle := low/2 + high/2
		low, high = max(-math.MaxFloat64, middle-least/2), min(math.MaxFloat64, middle+least/2)
	}
	return low, high
}

// clock maps times to pixels.
type clock struct {
	from        time.Time
	length      time.Duration
	first, last float64
}

func (c clock) at(t time.Time) float64 {
	if c.length <= 0 {
		return c.first
	}
	return c.first + max(0, min(1, float64(t.Sub(c.from))/float64(c.length)))*(c.last-c.first)
}

// px returns a number of pixels.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// curve returns the path of points. Steps keep each value until the next.
func curve(points []ferrule.Point, x clock, y scale, value func(ferrule.Point) float64, steps bool) string {
	var b strings.Builder
	for i, p := range points {
		switch {
		case i == 0:
			b.WriteString("M" + px(x.at(p.Time)) + " " + px(y.at(value(p))))
		case steps:
			b.WriteString("H" + px(x.at(p.Time)) + "V" + px(y.at(value(p))))
		default:
			b.WriteString("L" + px(x.at(p.Time)) + " " + px(y.at(value(p))))
		}
	}
	if len(points) == 1 { // a line without length is drawn as a dot
		b.WriteString("h0")
	}
	return b.String()
}

func mean(p ferrule.Point) float64 { return p.Mean }

// Size of a sparkline.
const (
	sparkWidth   = 120
	sparkHeight  = 28
	sparkColumns = 48
)

// Spark returns the sparkline of a series. It has no text; the number beside it says what it
// shows. States are drawn as steps, and the last one is valid until the end.
func Spark(s ferrule.Series, from, to time.Time) template.HTML {
	points := extend(finite(s.Points, from, to), s, to)
	low, high := span(points)
	x := clock{from, to.Sub(from), 0, sparkWidth}
	y := scale{low, high, sparkHeight - 3, 3}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`, sparkWidth, sparkHeight)
	for _, g := range s.Gaps {
		if left, right := x.at(g.From), x.at(g.To); right-left >= 0.5 {
			fmt.Fprintf(&b, `<rect class="gp" x="%s" y="0" width="%s" height="%d"/>`, px(left), px(right-left), sparkHeight)
		}
	}
	for i, part := range split(points, s.Gaps) {
		if i == sparkColumns {
			break // too many gaps to be seen
		}
		part = reduce(part, from, to, sparkColumns)
		line := curve(part, x, y, mean, s.State)
		fmt.Fprintf(&b, `<path class="ar" d="%sV%dH%sZ"/><path class="ln" d="%s"/>`, line, sparkHeight, px(x.at(part[0].Time)), line)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// extend adds the last state at the end of the range, where it is still valid.
func extend(points []ferrule.Point, s ferrule.Series, to time.Time) []ferrule.Point {
	if n := len(points); s.State && n > 0 && points[n-1].Time.Before(to) {
		end := points[n-1]
		end.Time = to
		points = append(points, end)
	}
	return points
}

// Reduce returns the points of a series in a time range, at most one for each of the columns
// and each stretch between gaps. Numbers that are not finite are left out.
func Reduce(s ferrule.Series, from, to time.Time, columns int) (all []ferrule.Point) {
	points := finite(s.Points, from, to)
	if len(points) <= columns {
		return points
	}
	for _, part := range split(points, s.Gaps) {
		all = append(all, reduceTo(part, from, to, columns)...)
	}
	if len(all) > 2*columns { // too many gaps to keep all of them apart
		return reduceTo(points, from, to, columns)
	}
	return all
}
