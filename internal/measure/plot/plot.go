// Package plot draws charts of measurements as PNG: one or several signals over time.
//
//	Chart ─▶ panels, one per unit ─▶ axes ─▶ reduce ─▶ stroke ─▶ PNG
//	                                 ticks   a few     pixels
//	                                         points
//	                                         per column
//
// At a gap, the line breaks and the gap is shaded in the color of the series. Minutes and
// hours are drawn as their mean, in a band from minimum to maximum. Calls are vertical lines
// across all panels. Labels with the minimum, maximum and last value never overlap.
//
// The cost depends on the size of the chart, and hardly on the number of points.
package plot

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Chart describes what to draw.
type Chart struct {
	Title    string
	From, To time.Time
	Series   []ferrule.Series
	// Calls are marked with a line. If there is not enough space for all names, those of
	// calls with an intent come first.
	Calls         []ferrule.Entry
	Width, Height int
	// Zone is the time zone of the labels; the local one if nil.
	Zone *time.Location
}

// The limits of a chart.
const (
	MinWidth, MinHeight = 240, 160
	MaxWidth, MaxHeight = 2000, 1200
	MaxSeries           = 8
	MaxCalls            = 200 // further calls are not marked
	panelHeight         = 90  // minimum
)

// Sizes in pixels.
const (
	titleHeight  = 26
	callsHeight  = 15
	headerHeight = 20 // above each panel
	timeHeight   = 36 // below the last
	rightMargin  = 18
	labelMargin  = 12 // on both sides of value labels together
	minLabel     = 36
	maxLabel     = 110
)

// Colors. The palette is safe for color blindness.
var (
	white    = color.RGBA{255, 255, 255, 255}
	ink      = color.RGBA{40, 40, 40, 255}
	gray     = color.RGBA{110, 110, 110, 255}
	gridGray = color.RGBA{228, 228, 228, 255}
	callGray = color.RGBA{120, 120, 120, 255}
	callRed  = color.RGBA{190, 30, 45, 255}
	palette  = [MaxSeries]color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
		{230, 159, 0, 255}, {86, 180, 233, 255}, {140, 86, 75, 255}, {70, 70, 70, 255},
	}
)

// ErrSize is returned for a chart that is too small or too large.
var ErrSize = errors.New("unsupported image size")

// Check returns an error if the chart cannot be drawn.
func (p *Chart) Check() error {
	switch n := len(p.Series); {
	case n == 0 || n > MaxSeries:
		return fmt.Errorf("number of signals must be between 1 and %d, got %d", MaxSeries, n)
	case !p.From.Before(p.To):
		return errors.New("the time range is empty")
	case p.Width < MinWidth || p.Width > MaxWidth || p.Height < MinHeight || p.Height > MaxHeight:
		return fmt.Errorf("%w %dx%d: must be between %dx%d and %dx%d", ErrSize, p.Width, p.Height, MinWidth, MinHeight, MaxWidth, MaxHeight)
	}
	if n := len(p.panels()); p.Height < HeightFor(n) {
		return fmt.Errorf("%w %dx%d: %d panels need a height of %d pixels", ErrSize, p.Width, p.Height, n, HeightFor(n))
	}
	return nil
}

// HeightFor returns the minimum height of a chart with so many panels. Each unit has a
// panel, and so has each series without a unit.
func HeightFor(panels int) int {
	return max(MinHeight, titleHeight+callsHeight+timeHeight+panels*(headerHeight+panelHeight))
}

// Draw draws a chart as PNG.
func Draw(p Chart) ([]byte, error) {
	c, err := p.draw()
	if err != nil {
		return nil, err
	}
	defer c.close()
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(&out, c.image); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// draw draws a chart on a canvas, which must be closed.
func (p Chart) draw() (*canvas, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Zone == nil {
		p.Zone = time.Local
	}
	c, err := newCanvas(p.Width, p.Height)
	if err != nil {
		return nil, err
	}
	panels := p.layout(c)
	p.drawTitle(c)
	ticks := timeTicks(p.From, p.To, p.Zone, panels[0].area.Dx()/c.width("00:00:00 "))
	for i := range panels {
		panels[i].drawBack(c, ticks)
	}
	p.drawCalls(c, panels)
	for i := range panels {
		panels[i].drawSeries(c)
		panels[i].drawFrame(c)
		panels[i].drawLabels(c)
	}
	drawTimes(c, panels[len(panels)-1], ticks)
	return c, nil
}

// panel is one diagram, with the series of one unit.
type panel struct {
	unit   string
	series []coloredSeries
	area   image.Rectangle
	axes
}

type coloredSeries struct {
	*ferrule.Series
	color color.RGBA
}

// panels groups the series by unit, in order. Each series without a unit has its own panel.
func (p *Chart) panels() (panels []panel) {
next:
	for i := range p.Series {
		s := coloredSeries{&p.Series[i], palette[i]}
		for k := range panels {
			if panels[k].unit == s.Unit && s.Unit != "" {
				panels[k].series = append(panels[k].series, s)
				continue next
			}
		}
		panels = append(panels, panel{unit: s.Unit, series: []coloredSeries{s}})
	}
	return panels
}

// layout sets the area and the axes of each panel.
func (p *Chart) layout(c *canvas) []panel {
	panels := p.panels()
	top := titleHeight
	if len(p.Calls) > 0 {
		top += callsHeight
	}
	each := (p.Height - top - timeHeight) / len(panels)
	left := minLabel
	for i := range panels {
		pan := &panels[i]
		pan.axes = newAxes(p.From, p.To, pan.series, each-headerHeight)
		for _, tick := range pan.values {
			left = max(left, min(c.width(tick.label)+labelMargin, maxLabel))
		}
	}
	for i := range panels {
		y := top + i*each
		panels[i].area = image.Rect(left, y+headerHeight, p.Width-rightMargin, y+each)
	}
	return panels
}

// finite reports whether a point can be drawn.
func finite(p ferrule.Point) bool {
	return !math.IsNaN(p.Min+p.Max+p.Mean) && !math.IsInf(p.Min, 0) && !math.IsInf(p.Max, 0) && !math.IsInf(p.Mean, 0)
}

// middle returns the time at which a point is drawn: the middle of its minute or hour.
func (c coloredSeries) middle(p ferrule.Point) time.Time {
	switch c.Resolution {
	case ferrule.Minutes:
		return p.Time.Add(time.Minute / 2)
	case ferrule.Hours:
		return p.Time.Add(time.Hour / 2)
	}
	return p.Time
}
