package plot

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var began = time.Date(2026, 1, 31, 13, 59, 30, 0, time.UTC)

// hour returns a chart of an hour.
func hour(series ...ferrule.Series) Chart {
	return Chart{Title: "robot", From: began, To: began.Add(time.Hour), Series: series, Width: 1000, Height: 400, Zone: time.UTC}
}

// sampled returns a series of n samples in an hour.
func sampled(n int, value func(part float64) float64) ferrule.Series {
	series := ferrule.Series{Signal: "light", Unit: "lx", Resolution: ferrule.Raw}
	for i := range n {
		part := float64(i) / float64(n-1)
		series.Points = append(series.Points, ferrule.Sample{Time: began.Add(time.Duration(part * float64(time.Hour))), Value: value(part)}.Point())
	}
	return series
}

// pixels is a drawn chart.
type pixels struct {
	t *testing.T
	image.Image
	left, right, bottom int // of the axis of the last panel
}

func drawn(t *testing.T, p Chart) pixels {
	t.Helper()
	data, err := Draw(p)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Bounds().Size(); size != image.Pt(p.Width, p.Height) {
		t.Fatalf("the size is %v", size)
	}
	px := pixels{t: t, Image: img}
	for y := p.Height - 1; px.bottom == 0 && y > 0; y-- { // the axis is the first long line from below
		for x := p.Width - 1; x >= 0 && px.is(x, y, gray); x-- {
			t.Fatal("the axis extends to the edge")
		}
		run := 0
		for x := range p.Width {
			if px.is(x, y, gray) {
				if run == 0 {
					px.left = x + 1
				}
				run++
				px.right = x
			} else if run < p.Width/2 {
				run = 0
			}
		}
		if run > p.Width/2 {
			px.bottom = y
		}
	}
	if px.bottom == 0 {
		t.Fatal("no axis")
	}
	return px
}

func (px pixels) is(x, y int, c color.RGBA) bool {
	r, g, b, _ := px.At(x, y).RGBA()
	return uint8(r>>8) == c.R && uint8(g>>8) == c.G && uint8(b>>8) == c.B
}

// has reports whether a pixel is mostly of a color. Lines have soft edges.
func (px pixels) has(x, y int, c color.RGBA) bool {
	r, g, b, _ := px.At(x, y).RGBA()
	from := [3]float64{255 - float64(r>>8), 255 - float64(g>>8), 255 - float64(b>>8)}
	to := [3]float64{255 - float64(c.R), 255 - float64(c.G), 255 - float64(c.B)}
	var dot, square, off float64
	for i := range to {
		dot, square = dot+from[i]*to[i], square+to[i]*to[i]
	}
	for i := range to {
		d := from[i] - to[i]*dot/square
		off += d * d
	}
	return dot/square > 0.5 && off < 30*30
}

// rows returns the first and the last row of a color in a column, between legend and axis.
func (px pixels) rows(x int, c color.RGBA) (top, bottom int, ok bool) {
	for y := titleHeight + headerHeight; y < px.bottom; y++ {
		if px.has(x, y, c) {
			if !ok {
				top = y
			}
			bottom, ok = y, true
		}
	}
	return top, bottom, ok
}

// column returns the column of a fraction of the time range.
func (px pixels) column(part float64) int {
	return px.left + int(math.Round(part*float64(px.right-px.left)))
}

// TestSine checks the position of a sine in every column.
func TestSine(t *testing.T) {
	t.Parallel()
	sine := func(part float64) float64 { return 500 + 100*math.Sin(4*math.Pi*part) }
	for _, n := range []int{200, 7200, 30_000} {
		px := drawn(t, hour(sampled(n, sine)))
		top, bottom := px.bottom, 0
		for x := px.left; x < px.right; x++ {
			if a, b, ok := px.rows(x, palette[0]); ok {
				top, bottom = min(top, a), max(bottom, b)
			}
		}
		if bottom-top < 200 {
			t.Fatalf("%d points: rows from %d to %d", n, top, bottom)
		}
		for x := px.left + 2; x < px.right-2; x++ {
			part := float64(x-px.left) / float64(px.right-px.left)
			want := float64(bottom) - (sine(part)-400)/200*float64(bottom-top)
			a, b, ok := px.rows(x, palette[0])
			if !ok || want < float64(a)-2.5 || want > float64(b)+2.5 || b-a > 8 {
				t.Fatalf("%d points: column %d has rows from %d to %d, want %.1f", n, x, a, b, want)
			}
		}
	}
}

// TestSpike checks that one outlier among many samples is visible.
func TestSpike(t *testing.T) {
	t.Parallel()
	series := sampled(300_000, func(float64) float64 { return 1 })
	p := &panel{area: image.Rect(0, 0, 1000, 400)}
	p.axes = newAxes(began, began.Add(time.Hour), []coloredSeries{{&series, palette[0]}}, 400)
	if n := len(p.reduce(coloredSeries{&series, palette[0]}, series.Points)); n > 4*1000 {
		t.Errorf("%d dots, limit is 4000", n)
	}
	series.Points[129_630].Min, series.Points[129_630].Max, series.Points[129_630].Mean = 9, 9, 9
	px := drawn(t, hour(series))
	spike := px.column(0.4321)
	tall := 0
	for x := px.left; x < px.right; x++ {
		if a, b, ok := px.rows(x, palette[0]); ok && b-a > 100 {
			tall++
			if x < spike-2 || x > spike+2 {
				t.Errorf("spike in column %d, want %d", x, spike)
			}
		}
	}
	if tall == 0 {
		t.Error("the spike is not visible")
	}
}

// TestGap checks that a gap is shaded and has no line, and that a gap shorter than a pixel
// is visible.
func TestGap(t *testing.T) {
	t.Parallel()
	series := sampled(7201, func(part float64) float64 { return part })
	var kept []ferrule.Point
	for i, p := range series.Points {
		if i <= 2880 || i >= 4320 { // from 0.4 to 0.6
			kept = append(kept, p)
		}
	}
	short := ferrule.Gap{From: series.Points[1440].Time, To: series.Points[1441].Time, Reason: ferrule.Unclear}
	series.Points = kept
	series.Gaps = []ferrule.Gap{{From: began.Add(24 * time.Minute), To: began.Add(36 * time.Minute), Reason: ferrule.Lost}, short}
	px := drawn(t, hour(series))
	shade := func(x int) bool { return !px.is(x, px.bottom-3, white) && !px.is(x, px.bottom-3, gridGray) }
	for x := px.left + 20; x < px.right-20; x++ {
		_, _, line := px.rows(x, palette[0])
		switch {
		case x > px.column(0.4)+2 && x < px.column(0.6)-2:
			if line || !shade(x) {
				t.Fatalf("column %d in the gap: line %t, shaded %t", x, line, shade(x))
			}
		case x < px.column(0.4)-2 && (x < px.column(0.2)-2 || x > px.column(0.2)+2) || x > px.column(0.6)+2:
			if !line || shade(x) {
				t.Fatalf("column %d outside the gap: line %t, shaded %t", x, line, shade(x))
			}
		}
	}
	if x := px.column(0.2); !shade(x) && !shade(x-1) && !shade(x+1) {
		t.Error("a short gap is not visible")
	}
}

// TestCalls checks the marks of calls and their names: failed calls are red, calls outside
// the time range are left out, and calls that may have changed something get names first.
func TestCalls(t *testing.T) {
	t.Parallel()
	p := hour(sampled(100, func(part float64) float64 { return part }))
	p.Calls = []ferrule.Entry{
		{Time: began.Add(15 * time.Minute), Tool: "gpio_write", Phase: ferrule.Intent},
		{Time: began.Add(45 * time.Minute), Tool: "restart", Phase: ferrule.Intent, Code: ferrule.Unanswered},
		{Time: began.Add(2 * time.Hour), Tool: "later"},
	}
	px := drawn(t, p)
	marked := func(x int, c color.RGBA) bool {
		n := 0
		for y := titleHeight + headerHeight; y < px.bottom; y++ {
			if px.is(x, y, c) {
				n++
			}
		}
		return n > (px.bottom-titleHeight-headerHeight)/2
	}
	for x := px.left; x < px.right; x++ {
		for part, c := range map[float64]color.RGBA{0.25: callGray, 0.75: callRed} {
			if at := px.column(part); marked(x, c) && (x < at-1 || x > at+1) || x == at && !marked(x-1, c) && !marked(x, c) && !marked(x+1, c) {
				t.Errorf("column %d: marked %t", x, marked(x, c))
			}
		}
	}
	named := func(px pixels, c color.RGBA) (n int) {
		for y := titleHeight; y < titleHeight+callsHeight-2; y++ {
			for x := range px.Bounds().Dx() {
				if px.is(x, y, c) {
					n++
				}
			}
		}
		return n
	}
	if named(px, callGray) == 0 || named(px, callRed) == 0 {
		t.Error("the calls have no names")
	}
	looks := make([]ferrule.Entry, 0, 10_000)
	for i := range cap(looks) {
		looks = append(looks, ferrule.Entry{Time: began.Add(time.Duration(i) * time.Second / 4), Tool: "adc_read", Phase: ferrule.Outcome})
	}
	looks[100] = ferrule.Entry{Time: began.Add(25 * time.Second), Tool: "restart", Phase: ferrule.Intent, Code: ferrule.Failed}
	p.Calls = looks
	if named(drawn(t, p), callRed) == 0 {
		t.Error("among many reads, the call with an intent has no name")
	}
}

// TestBand checks that minutes have a band from minimum to maximum around the mean.
func TestBand(t *testing.T) {
	t.Parallel()
	series := ferrule.Series{Signal: "light", Resolution: ferrule.Minutes}
	for i := range 60 {
		series.Points = append(series.Points, ferrule.Point{Time: began.Add(time.Duration(i) * time.Minute), Min: 0, Mean: 50, Max: 100, Count: 120})
	}
	px := drawn(t, hour(series))
	height := 0
	for x := px.column(0.1); x < px.column(0.9); x++ {
		a, b, ok := px.rows(x, palette[0])
		if !ok || b-a > 3 {
			t.Fatalf("column %d: the mean has rows from %d to %d", x, a, b)
		}
		first, last := px.bottom, 0
		for y := titleHeight + headerHeight; y < px.bottom; y++ {
			if r, g, b, _ := px.At(x, y).RGBA(); r < g && g < b { // some blue
				first, last = min(first, y), max(last, y)
			}
		}
		if mean := (a + b) / 2; first+last < 2*mean-3 || first+last > 2*mean+3 {
			t.Fatalf("column %d: band from %d to %d, mean at %d", x, first, last, mean)
		}
		height = last - first
	}
	if height < 200 {
		t.Errorf("the band is %d pixels high", height)
	}
}

// TestSteps checks that a state is drawn in steps, whatever its values.
func TestSteps(t *testing.T) {
	t.Parallel()
	for name, low := range map[string]float64{"door": 0, "volume": 20} {
		t.Run(name, func(t *testing.T) {
			testSteps(t, ferrule.Series{Signal: name, Resolution: ferrule.Raw, State: low > 0}, low)
		})
	}
}

func testSteps(t *testing.T, series ferrule.Series, low float64) {
	for i := range 7 {
		series.Points = append(series.Points, ferrule.Sample{Time: began.Add(time.Duration(i) * 10 * time.Minute), Value: low + float64(i%2)}.Point())
	}
	px := drawn(t, hour(series))
	top, bottom := px.bottom, 0
	for x := px.left + 1; x < px.right; x++ {
		if a, b, ok := px.rows(x, palette[0]); ok {
			top, bottom = min(top, a), max(bottom, b)
		}
	}
	flat := 0
	for x := px.left + 1; x < px.right; x++ {
		switch a, b, ok := px.rows(x, palette[0]); {
		case !ok:
			t.Fatalf("column %d: no line", x)
		case b-a < 4:
			flat++
			if a > top+2 && b < bottom-2 {
				t.Fatalf("column %d: the line is half way, at %d", x, a)
			}
		}
	}
	if bottom-top < 200 || flat < (px.right-px.left)*9/10 {
		t.Errorf("rows from %d to %d, flat in %d columns", top, bottom, flat)
	}
}

// TestSingleSample checks that a single sample is visible.
func TestSingleSample(t *testing.T) {
	t.Parallel()
	series := ferrule.Series{Signal: "door", Resolution: ferrule.Raw, Points: []ferrule.Point{ferrule.Sample{Time: began.Add(30 * time.Minute), Value: 7}.Point()}}
	px := drawn(t, hour(series))
	if _, _, ok := px.rows(px.column(0.5), palette[0]); !ok {
		t.Error("the sample is not visible")
	}
}

// TestUnits checks that each unit has its own panel.
func TestUnits(t *testing.T) {
	t.Parallel()
	warm := sampled(100, func(part float64) float64 { return 20 + part })
	bright := sampled(100, func(part float64) float64 { return 9000 - 1000*part })
	cold := sampled(100, func(part float64) float64 { return 15 - part })
	warm.Unit, cold.Unit = "°C", "°C"
	px := drawn(t, hour(warm, bright, cold))
	x := px.column(0.5)
	where := make([]int, 3)
	for i := range where {
		a, _, ok := px.rows(x, palette[i])
		if !ok {
			t.Fatalf("series %d is not visible", i)
		}
		where[i] = a
	}
	if !(where[0] < where[2] && where[2] < where[1]) {
		t.Errorf("rows of the series: %v", where)
	}
	for _, c := range []*ferrule.Series{&warm, &bright, &cold} {
		c.Unit = ""
	}
	alone := hour(warm, bright, cold)
	alone.Height = HeightFor(3)
	px = drawn(t, alone)
	for i := range where {
		a, b, ok := px.rows(x, palette[i])
		if each := panelHeight + headerHeight; !ok || b-a > 4 || a < titleHeight+i*each || b > titleHeight+callsHeight+(i+1)*each {
			t.Errorf("series %d without a unit has rows from %d to %d", i, a, b)
		}
	}
	p := hour()
	for i := range 4 {
		series := sampled(10, func(part float64) float64 { return part })
		series.Unit = strings.Repeat("u", i)
		p.Series = append(p.Series, series)
	}
	if _, err := Draw(p); !errors.Is(err, ErrSize) {
		t.Errorf("four units in 400 pixels: %v", err)
	}
	p.Height = HeightFor(4)
	drawn(t, p)
}

// TestCheck checks the errors of invalid charts, and that any values can be drawn.
func TestCheck(t *testing.T) {
	t.Parallel()
	series := sampled(10, func(part float64) float64 { return part })
	for name, change := range map[string]func(p *Chart){
		"no series":   func(p *Chart) { p.Series = nil },
		"nine series": func(p *Chart) { p.Series = make([]ferrule.Series, MaxSeries+1) },
		"no time":     func(p *Chart) { p.To = p.From },
		"backwards":   func(p *Chart) { p.To = p.From.Add(-time.Second) },
		"too wide":    func(p *Chart) { p.Width = MaxWidth + 1 },
		"too high":    func(p *Chart) { p.Height = MaxHeight + 1 },
		"too small":   func(p *Chart) { p.Width, p.Height = MinWidth-1, MinHeight },
	} {
		p := hour(series)
		change(&p)
		if data, err := Draw(p); err == nil || data != nil {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	const huge, tiny = math.MaxFloat64, math.SmallestNonzeroFloat64
	for name, values := range map[string][]float64{
		"none":      {},
		"huge":      {-huge, huge, 0, huge},
		"one huge":  {huge, huge},
		"tiny":      {tiny, 2 * tiny, -tiny},
		"one tiny":  {tiny},
		"no number": {math.NaN(), math.Inf(1), math.Inf(-1)},
		"some":      {1, math.NaN(), 2, math.Inf(1), 3},
		"alike":     {1e15, 1e15 + 0.125, 1e15},
		"far":       {1e300, 1e-300},
	} {
		series := ferrule.Series{Signal: strings.Repeat("long_name", 20), Unit: "\x00\u202e🙂", Resolution: ferrule.Raw}
		for i, v := range values {
			series.Points = append(series.Points, ferrule.Sample{Time: began.Add(time.Duration(i) * time.Minute), Value: v}.Point())
		}
		for i := range 10_000 {
			series.Gaps = append(series.Gaps, ferrule.Gap{From: began.Add(time.Duration(i-1000) * time.Second), To: began.Add(time.Duration(i+1000) * time.Second)})
		}
		for _, grain := range []ferrule.Resolution{ferrule.Raw, ferrule.Minutes, ferrule.Hours} {
			series.Resolution = grain
			p := hour(series, sampled(5, func(part float64) float64 { return part }))
			p.Width, p.Height = 400, HeightFor(2)
			p.Calls = []ferrule.Entry{{Time: began.Add(time.Minute), Tool: strings.Repeat("\x1b[2Jx", 99)}, {Time: began.Add(time.Hour)}}
			p.Title = strings.Repeat("title\n", 99)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				drawn(t, p)
			})
		}
	}
}

// TestFit checks that a long text is shortened to the given width.
func TestFit(t *testing.T) {
	t.Parallel()
	c, err := newCanvas(100, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const text = "a long name of a signal"
	for room := range c.width(text) + 2 {
		got := c.fit(text, room)
		whole, more := strings.TrimSuffix(got, "…"), ""
		if got != "" && got != text {
			more = text[:len(whole)+1] + "…"
		}
		if c.width(got) > room || !strings.HasPrefix(text, whole) || more != "" && c.width(more) <= room || (got == text) != (room >= c.width(text)) {
			t.Errorf("in %d pixels: %q", room, got)
		}
	}
}

// BenchmarkDraw draws a chart of the default size, and the largest chart.
func BenchmarkDraw(b *testing.B) {
	wave := func(part float64) float64 { return math.Sin(100*part) + 0.3*math.Sin(9999*part) }
	usual, largest := hour(sampled(7200, wave)), hour()
	largest.Width, largest.Height = MaxWidth, MaxHeight
	for range MaxSeries {
		largest.Series = append(largest.Series, sampled(100_000, wave))
	}
	for name, p := range map[string]Chart{"usual": usual, "largest": largest} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data, err := Draw(p)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(data)), "bytes")
			}
		})
	}
}
