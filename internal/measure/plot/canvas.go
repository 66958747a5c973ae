package plot

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"slices"
	"sort"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// canvas draws lines, areas and text on an image.
type canvas struct {
	image  *image.RGBA
	face   font.Face
	raster *vector.Rasterizer
	texts  []image.Rectangle // where texts are
}

const fontSize = 12

// parsed returns the font. It is parsed on first use.
var parsed = sync.OnceValues(func() (*opentype.Font, error) { return opentype.Parse(goregular.TTF) })

func newCanvas(width, height int) (*canvas, error) {
	text, err := parsed()
	if err != nil {
		return nil, err
	}
	face, err := opentype.NewFace(text, &opentype.FaceOptions{Size: fontSize, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil, err
	}
	c := &canvas{image: image.NewRGBA(image.Rect(0, 0, width, height)), face: face, raster: &vector.Rasterizer{}}
	c.fill(c.image.Bounds(), white)
	return c, nil
}

func (c *canvas) close() { c.face.Close() }

// width returns the width of a text in pixels.
func (c *canvas) width(text string) int { return font.MeasureString(c.face, text).Ceil() }

// fit returns the text, shortened to a width in pixels.
func (c *canvas) fit(text string, limit int) string {
	if c.width(text) <= limit {
		return text
	}
	runes := []rune(text)
	cut := func(n int) string { return string(runes[:n]) + "…" }
	n := sort.Search(len(runes), func(n int) bool { return c.width(cut(n)) > limit })
	if n == 0 {
		return ""
	}
	return cut(n - 1)
}

// textHeight is the height of a text above its baseline, and textDepth below it.
const textHeight, textDepth = 9, 3

// textBox returns the space of a text with its baseline at y.
func textBox(x, y, width int) image.Rectangle {
	return image.Rect(x, y-textHeight, x+width, y+textDepth)
}

// free reports whether a space has no text.
func (c *canvas) free(box image.Rectangle) bool {
	return !slices.ContainsFunc(c.texts, box.Overlaps)
}

// text writes a text with its baseline at y.
func (c *canvas) text(text string, x, y int, col color.Color) {
	if text == "" {
		return
	}
	c.texts = append(c.texts, textBox(x, y, c.width(text)))
	d := font.Drawer{Dst: c.image, Src: image.NewUniform(col), Face: c.face, Dot: fixed.P(x, y)}
	d.DrawString(text)
}

// fill fills a rectangle. A translucent color is blended with what is there.
func (c *canvas) fill(r image.Rectangle, col color.Color) {
	draw.Draw(c.image, r, image.NewUniform(col), image.Point{}, draw.Over)
}

// dashes draws a vertical dashed line.
func (c *canvas) dashes(x, top, bottom int, col color.Color) {
	const dash, gap = 3, 2
	for y := top; y < bottom; y += dash + gap {
		c.fill(image.Rect(x, y, x+1, min(y+dash, bottom)), col)
	}
}

// dot is a point in pixels.
type dot struct{ x, y float64 }

// stroke draws a line through dots. A single dot becomes a disc.
func (c *canvas) stroke(area image.Rectangle, line []dot, width float64, col color.Color) {
	c.begin(area)
	if len(line) == 1 {
		c.spot(area, line[0], width*1.5)
	}
	for i := 1; i < len(line); i++ {
		c.segment(area, line[i-1], line[i], width/2)
	}
	c.end(area, col)
}

// polygon fills the area between dots.
func (c *canvas) polygon(area image.Rectangle, dots []dot, col color.Color) {
	c.begin(area)
	c.outline(area, dots)
	c.end(area, col)
}

func (c *canvas) begin(area image.Rectangle) { c.raster.Reset(area.Dx(), area.Dy()) }

func (c *canvas) end(area image.Rectangle, col color.Color) {
	c.raster.Draw(c.image, area, image.NewUniform(col), image.Point{})
}

// segment adds a segment of a line, a little longer at both ends so that segments meet. All
// have the same orientation, so that overlapping segments do not cancel each other out.
func (c *canvas) segment(area image.Rectangle, a, b dot, half float64) {
	dx, dy := b.x-a.x, b.y-a.y
	length := math.Hypot(dx, dy)
	if length == 0 {
		dx, length = 1, 1
	}
	dx, dy = dx/length*half, dy/length*half
	a, b = dot{a.x - dx/2, a.y - dy/2}, dot{b.x + dx/2, b.y + dy/2}
	c.outline(area, []dot{{a.x - dy, a.y + dx}, {b.x - dy, b.y + dx}, {b.x + dy, b.y - dx}, {a.x + dy, a.y - dx}})
}

func (c *canvas) spot(area image.Rectangle, at dot, radius float64) {
	const corners = 16
	var round [corners]dot
	for i := range round {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		round[i] = dot{at.x + radius*cos, at.y + radius*sin}
	}
	c.outline(area, round[:])
}

func (c *canvas) outline(area image.Rectangle, dots []dot) {
	for i, d := range dots {
		x, y := float32(d.x-float64(area.Min.X)), float32(d.y-float64(area.Min.Y))
		if i == 0 {
			c.raster.MoveTo(x, y)
		} else {
			c.raster.LineTo(x, y)
		}
	}
	c.raster.ClosePath()
}
