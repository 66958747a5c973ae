package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

// gauges shows on a terminal what is measured, a line for each signal, drawn anew in
// place. What happens stands above them.
type gauges struct {
	app  *app
	size func() (width, height int) // of the terminal

	mu     sync.Mutex
	all    map[string]*gauge // by signal
	widest int               // of all values so far: a column that shrinks would have all lines move
	drawn  int               // lines on the screen, above the cursor
	news   bool              // since they were drawn
}

// gauge is one signal.
type gauge struct {
	trend
	unit string
}

// value is the last value with its unit; empty if there is none.
func (g *gauge) value() string {
	if g.last.Time.IsZero() {
		return ""
	}
	return inUnit(g.last.Value, g.unit)
}

// maxGauges is how many signals are remembered.
const maxGauges = 1024

func newGauges(a *app, size func() (width, height int)) *gauges {
	return &gauges{app: a, size: size, all: make(map[string]*gauge)}
}

// known shows what was last measured of a device, if that is recorded: a device may be
// asked next only in a minute.
func (g *gauges) known(ctx context.Context, client *control.Client, device string) {
	type last struct {
		Name string `json:"name"`
		Unit string `json:"unit"`
		ferrule.Sample
	}
	type latest struct {
		Signals []last `json:"signals"`
	}
	out, err := callOwn[latest](ctx, client, "latest", map[string]string{"device": device})
	if err != nil {
		return // what comes is shown all the same
	}
	var r ferrule.Reading
	for _, s := range out.Signals {
		r.Batches = append(r.Batches, ferrule.SampleBatch{Signal: s.Name, Unit: s.Unit, Samples: []ferrule.Sample{s.Sample}})
	}
	g.measured(r)
}

// measured takes in a reading.
func (g *gauges) measured(r ferrule.Reading) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range r.Batches {
		s := &r.Batches[i]
		one := g.all[s.Signal]
		if one == nil {
			if len(g.all) >= maxGauges {
				continue
			}
			one = &gauge{}
			g.all[s.Signal] = one
		}
		one.add(s)
		one.unit = s.Unit
	}
	g.news = true
}

// missed notes that something was lost.
func (g *gauges) missed(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		one.gap()
	}
	g.above(func() { g.app.printMissed(n) })
}

// happened shows an event.
func (g *gauges) happened(e ferrule.Event, several bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.above(func() { g.app.printEvent(e, several) })
}

// above has something printed above the lines. It is called with mu held.
func (g *gauges) above(print func()) {
	if g.drawn > 0 {
		fmt.Fprintf(g.app.stdout, "\x1b[%dA\x1b[J", g.drawn)
		g.drawn = 0
	}
	print()
	g.draw()
}

// run draws until ctx ends: soon when there is something new, and each second because
// all becomes older.
func (g *gauges) run(ctx context.Context) {
	const soon, old = 100 * time.Millisecond, 10
	ticker := time.NewTicker(soon)
	defer ticker.Stop()
	for tick := 1; ; tick++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			g.redraw(false)
			return
		}
		g.redraw(tick%old == 0)
	}
}

// redraw draws if there is something new, or whether there is or not.
func (g *gauges) redraw(anyway bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.news || anyway {
		g.draw()
	}
}

// draw draws all lines, over those that are there. It is called with mu held.
func (g *gauges) draw() {
	lines := g.lines(time.Now())
	var out strings.Builder
	if g.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", g.drawn)
	}
	out.WriteString("\x1b[?7l") // a line that is too long is cut, whatever its characters are
	for _, line := range lines {
		out.WriteString("\r" + line + "\x1b[K\n")
	}
	out.WriteString("\x1b[?7h\x1b[J")
	if len(lines) > 0 || g.drawn > 0 {
		io.WriteString(g.app.stdout, out.String())
	}
	g.drawn, g.news = len(lines), false
}

// lines are what is shown of all signals, as far as the terminal has room.
func (g *gauges) lines(now time.Time) (lines []string) {
	const gap = "  "
	width, height := g.size()
	names := slices.Sorted(maps.Keys(g.all))
	more := 0
	if room := max(height-2, 0); len(names) > room { // the cursor takes a line, and so does how many more there are
		more = len(names) - room
		names = names[:room]
	}
	longest := 0
	for _, name := range names {
		longest = max(longest, min(len(name), longestName))
		g.widest = max(g.widest, utf8.RuneCountInString(g.all[name].value()))
	}
	// The last column stays empty: some terminals go on below it.
	length := min(trendLength, max(0, width-1-longest-g.widest-ageWidth-3*len(gap)))
	for _, name := range names {
		one := g.all[name]
		lines = append(lines, g.app.style(bold, padded(oneLine(name, longestName), longest))+gap+
			g.app.style(green, sparkline(one.values, length))+gap+
			padded(one.value(), g.widest)+gap+g.app.style(faint, one.age(now)))
	}
	if more > 0 {
		lines = append(lines, g.app.style(faint, fmt.Sprintf("… and %d more", more)))
	}
	return lines
}

// The widths of columns.
const (
	longestName = 24 // of what the name of a signal is cut to
	ageWidth    = 3
)

// padded makes a cell as wide as its column.
func padded(cell string, width int) string {
	return cell + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(cell)))
}

// inUnit is a number with its unit, as it is shown to people, whatever a device calls it.
func inUnit(v float64, unit string) string {
	return oneLine(shortNumber(v)+" "+ferrule.Clean(unit, ferrule.MaxUnit), maxShown)
}

// shortNumber has at most six digits where all of them would be too many.
func shortNumber(v float64) string {
	if text := strconv.FormatFloat(v, 'f', -1, 64); len(text) <= 9 {
		return text
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
