// Package plot draws what was measured: a PNG of one or several signals over time.
//
//	Picture ─▶ panels, one for each unit ─▶ scale ─▶ reduce ─▶ stroke ─▶ PNG
//	           room for texts               ticks    a few     pixels
//	                                                 points a
//	                                                 column
//
// Where samples may be missing, the line breaks and the stretch is shaded in its colour.
// What minutes or hours hold together is drawn as their mean, in a band from their least
// to their largest. Calls stand as lines across all panels.
//
// What a picture costs grows with its size, and hardly with how many points there are.
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

// Picture is what is to be drawn.
type Chart struct {
	Title    string
	From, To time.Time
	Series   []ferrule.Series
	// Calls are marked where they were made. Those with an intent come before others
	// where there is not room for all names.
	Calls         []ferrule.Entry
	Width, Height int
	// Zone is where the times on the axis are told.
	Zone *time.Location
}

// The bounds of a picture.
const (
	MinWidth, MinHeight = 240, 160
	MaxWidth, MaxHeight = 2000, 1200
	MaxSeries           = 8
	MaxCalls            = 200 // more are not marked
	panelHeight         = 90  // what one needs at least
)

// Room in pixels.
const (
	titleRoom = 26
	callsRoom = 15
	headRoom  = 20 // above each panel
	timeRoom  = 36 // below the last
	rightRoom = 18
	leftGap   = 12 // between labels and what is around them
	minLabel  = 36
	maxLabel  = 110
)

// The colours. Those of curves can be told apart by everybody.
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

// ErrSize is returned where a picture would be too small or too large.
var ErrSize = errors.New("the picture has no such size")

// Check tells why a picture cannot be drawn.
func (p *Chart) Check() error {
	switch n := len(p.Series); {
	case n == 0 || n > MaxSeries:
		return fmt.Errorf("want from 1 to %d signals, got %d", MaxSeries, n)
	case !p.From.Before(p.To):
		return errors.New("the time that it is to show has no length")
	case p.Width < MinWidth || p.Width > MaxWidth || p.Height < MinHeight || p.Height > MaxHeight:
		return fmt.Errorf("%w: want from %dx%d to %dx%d, got %dx%d", ErrSize, MinWidth, MinHeight, MaxWidth, MaxHeight, p.Width, p.Height)
	}
	if n := len(p.panels()); p.Height < HeightFor(n) {
		return fmt.Errorf("%w: %d panels need %d pixels of height, got %d", ErrSize, n, HeightFor(n), p.Height)
	}
	return nil
}

// HeightFor is the least height of a picture with so many panels: one for each unit, and
// one for each curve without a unit.
func HeightFor(panels int) int {
	return max(MinHeight, titleRoom+callsRoom+timeRoom+panels*(headRoom+panelHeight))
}

// Draw draws a picture as PNG.
func Draw(p Chart) ([]byte, error) {
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
	defer c.close()
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
	}
	drawTimes(c, panels[len(panels)-1], ticks)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(&out, c.image); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// panel is one diagram: the curves of one unit.
type panel struct {
	unit   string
	series []coloredSeries
	area   image.Rectangle
	axes
}

// coloured is a curve in its colour.
type coloredSeries struct {
	*ferrule.Series
	color color.RGBA
}

// panels are the curves by unit, in the order in which they come. Those whose unit is not
// known have nothing in common.
func (p *Chart) panels() (panels []panel) {
next:
	for i := range p.Series {
		curve := coloredSeries{&p.Series[i], palette[i]}
		for k := range panels {
			if panels[k].unit == curve.Unit && curve.Unit != "" {
				panels[k].series = append(panels[k].series, curve)
				continue next
			}
		}
		panels = append(panels, panel{unit: curve.Unit, series: []coloredSeries{curve}})
	}
	return panels
}

// layout gives each panel its place and its scale.
func (p *Chart) layout(c *canvas) []panel {
	panels := p.panels()
	top := titleRoom
	if len(p.Calls) > 0 {
		top += callsRoom
	}
	each := (p.Height - top - timeRoom) / len(panels)
	left := minLabel
	for i := range panels {
		pan := &panels[i]
		pan.axes = newAxes(p.From, p.To, pan.series, each-headRoom)
		for _, tick := range pan.values {
			left = max(left, min(c.width(tick.label)+leftGap, maxLabel))
		}
	}
	for i := range panels {
		y := top + i*each
		panels[i].area = image.Rect(left, y+headRoom, p.Width-rightRoom, y+each)
	}
	return panels
}

// finite tells whether a point can be drawn.
func finite(p ferrule.Point) bool {
	return !math.IsNaN(p.Min+p.Max+p.Mean) && !math.IsInf(p.Min, 0) && !math.IsInf(p.Max, 0) && !math.IsInf(p.Mean, 0)
}

// middle is where a point stands: what holds for a minute stands in the middle of it.
func (c coloredSeries) middle(p ferrule.Point) time.Time {
	switch c.Resolution {
	case ferrule.Minutes:
		return p.Time.Add(time.Minute / 2)
	case ferrule.Hours:
		return p.Time.Add(time.Hour / 2)
	}
	return p.Time
}
