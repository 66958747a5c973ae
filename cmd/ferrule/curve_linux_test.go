package main

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/history"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// unoRing describes the buffer of the Uno's light sensor. The board has too little
// memory to declare it.
const unoRing = `
match: {device: uno}
polls:
  light:
    tool: get_pin_buffer
    args: {pin: 14, limit: 20}
    ring: {interval: 100ms, size: 20}
`

// wave returns a voltage in millivolts.
func wave(since time.Duration) int {
	return 2500 + int(2000*math.Sin(2*math.Pi*since.Seconds()/6))
}
func converted(millivolts int) float64 { return math.Floor(float64(millivolts) * 1023 / 5000) }

// fed is a voltage that was put on the pin for some time, and how late the clock of the
// chip was.
type fed struct {
	from, by   time.Time
	millivolts int
	behind     time.Duration
}

// chipClock is the clock of the chip, in Hz.
const chipClock = 16_000_000

// uneven returns by how much the emulated chip ran unevenly around a moment: it stops
// while other processes run.
func uneven(all []fed, at time.Time) time.Duration {
	const around = 5 * time.Second
	least, most := time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, f := range all {
		if f.by.Sub(at).Abs() < around {
			least, most = min(least, f.behind), max(most, f.behind)
		}
	}
	return max(0, most-least)
}

// TestUnoCurve puts a sine on the analog pin of an emulated Uno, which samples it into
// its ring buffer. The samples are recorded in order and drawn. How well they and the chart
// match the sine at the recorded times depends on how evenly the emulated chip runs.
func TestUnoCurve(t *testing.T) {
	board := uno.Start(t, uno.Options{})
	overlays := t.TempDir()
	if err := os.WriteFile(filepath.Join(overlays, "uno.yaml"), []byte(unoRing), 0o600); err != nil {
		t.Fatal(err)
	}
	board.ADC(0, wave(0))
	g := startGateway(t, nil, onSerial("uno", board, 0), func(c *config.Config) { c.Overlays = overlays })
	g.online("uno")
	start := time.Now()
	var all []fed
	for since := time.Duration(0); since < 15*time.Second; since = time.Since(start) {
		from, millivolts := time.Now(), wave(since)
		board.ADC(0, millivolts)
		by, cycle := time.Now(), board.Cycle()
		all = append(all, fed{from, by, millivolts, by.Sub(start) - time.Duration(float64(cycle)/chipClock*1e9)})
		time.Sleep(10 * time.Millisecond)
	}
	end := time.Now()
	wait.For(t, "the last samples are recorded", func() bool { // they were in the buffer
		latest, err := g.History.Tail(t.Context(), "uno", "light", 1)
		return err == nil && len(latest) == 1 && latest[0].Time.After(end)
	})
	curves, err := g.History.Series(t.Context(), ferrule.HistoryQuery{
		Device: "uno", Signals: []string{"light"}, From: start.Add(time.Second), To: end, Points: history.MaxPoints, Resolution: ferrule.Raw,
	})
	if err != nil || len(curves) != 1 || len(curves[0].Points) == 0 {
		t.Fatalf("%+v, %v", curves, err)
	}
	points := curves[0].Points
	var within []time.Duration
	wrong := 0
	for i, p := range points {
		if i > 0 && !p.Time.After(points[i-1].Time) || p.Mean < converted(500)-1 || p.Mean > converted(4500)+1 {
			t.Errorf("%v at %v was never fed, or is out of order", p.Mean, p.Time.Sub(start))
		}
		off := time.Duration(p.Within) + uneven(all, p.Time)
		low, high := levels(all, p.Time.Add(-off), p.Time.Add(off))
		if p.Mean < low-1 || p.Mean > high+1 { // the converter may be off by one
			wrong++
			t.Logf("%v at %v ± %v, and it was from %v to %v", p.Mean, p.Time.Sub(start), time.Duration(p.Within), low, high)
		}
		within = append(within, time.Duration(p.Within))
	}
	slices.Sort(within)
	missing := 0
	for _, h := range curves[0].Gaps {
		missing += h.MaxMissing
	}
	t.Logf("%d samples in %v, up to %d more in %d gaps; uncertainty %v (median), %v (at most); the emulated chip was uneven by %v",
		len(points), end.Sub(start)-time.Second, missing, len(curves[0].Gaps), within[len(within)/2], within[len(within)-1], uneven(all, start.Add(8*time.Second)))
	figure.AtMost(t, "samples that are not what was fed", wrong, 0)
	figure.AtMost(t, "missing samples of 100", max(0, 100-len(points)), 0)
	figure.AtMost(t, "median uncertainty of the samples", within[len(within)/2], 100*time.Millisecond)
	shows(t, g.plot("uno", "light", start.Add(time.Second), end), points, all)
}

// levels returns the lowest and highest value that the chip could measure between two
// moments.
func levels(all []fed, from, to time.Time) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i, f := range all {
		ended := i+1 < len(all) && all[i+1].by.Before(from)
		if f.from.After(to) || ended {
			continue
		}
		low, high = min(low, converted(f.millivolts)), max(high, converted(f.millivolts))
	}
	return low, high
}

// plot returns the chart that an agent gets.
func (g *testGateway) plot(device, signal string, from, to time.Time) image.Image {
	g.t.Helper()
	args, err := json.Marshal(map[string]any{"device": device, "signals": []string{signal}, "since": from.Format(time.RFC3339Nano), "until": to.Format(time.RFC3339Nano)})
	if err != nil {
		g.t.Fatal(err)
	}
	result, err := g.Pipeline.Handle(g.t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}, Device: ferrule.GatewayID, Tool: "plot", Args: args})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, c := range result.Content {
		if c.Type != ferrule.ImageContent {
			continue
		}
		picture, err := png.Decode(bytes.NewReader(c.Data))
		if err != nil {
			g.t.Fatal(err)
		}
		if dir := os.Getenv("FERRULE_PICTURES"); dir != "" { // for people who want to look at it
			os.WriteFile(filepath.Join(dir, device+"-"+signal+".png"), c.Data, 0o600)
		}
		return picture
	}
	g.t.Fatal("there is no picture")
	return nil
}

// shows checks that a chart has a line, and measures whether it shows the sine: in each
// column the line is where the sine was.
func shows(t *testing.T, picture image.Image, points []ferrule.Point, all []fed) {
	t.Helper()
	line := lineIn(picture)
	width := picture.Bounds().Dx()
	if len(line) == 0 {
		t.Fatal("the picture has no line")
	}
	figure.AtMost(t, "columns of the chart without a line", width-len(line), width/2)
	first, last := points[0].Time, points[len(points)-1].Time
	left, right := line[0].X, line[len(line)-1].X
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		low, high = min(low, p.Mean), max(high, p.Mean)
	}
	top, bottom := line[0].Y, line[0].Y
	for _, dot := range line {
		top, bottom = min(top, dot.Y), max(bottom, dot.Y)
	}
	height := float64(bottom - top)
	missed := 0
	for _, dot := range line {
		at := first.Add(time.Duration(float64(dot.X-left) / float64(right-left) * float64(last.Sub(first))))
		off := 100*time.Millisecond + uneven(all, at) // the line between two samples is straight
		least, most := levels(all, at.Add(-off), at.Add(off))
		value := high - float64(dot.Y-top)/height*(high-low)
		if slack := 0.03 * (high - low); value < least-slack || value > most+slack {
			missed++
		}
	}
	t.Logf("the line is in %d columns, %.0f pixels high, and misses the sine in %d of them", len(line), height, missed)
	figure.AtMost(t, "columns of the chart that miss the sine", missed, len(line)/50)
	if height < 50 {
		t.Error("the picture does not show what was fed")
	}
}

// lineIn returns the position of the colored line in each column.
func lineIn(picture image.Image) (line []image.Point) {
	const head = 70 // title and legend
	size := picture.Bounds()
	for x := size.Min.X; x < size.Max.X; x++ {
		sum, n := 0.0, 0.0
		for y := size.Min.Y + head; y < size.Max.Y; y++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			if weight := float64(max(r, g, b) - min(r, g, b)); weight > 0x4000 {
				sum, n = sum+weight*float64(y), n+weight
			}
		}
		if n > 0 {
			line = append(line, image.Pt(x, int(math.Round(sum/n))))
		}
	}
	return line
}
