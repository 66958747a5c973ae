// Package gauges shows the signals of a device on a terminal, one line each, redrawn in
// place. Other lines are printed above them.
//
//	heat   ▁▅█ ▁  20 °C  now
//	light  ▄▄▄▄▄  7 lx   4s
package gauges

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
	"github.com/ferrulehq/ferrule/internal/measure/sparkline"
)

// Gauges shows the signals of one device. It is safe for concurrent use.
type Gauges struct {
	out   io.Writer
	style func(style Style, text string) string
	size  func() (width, height int) // of the terminal

	mu      sync.Mutex
	all     map[string]*gauge // by signal
	widest  int               // value so far; a column that shrinks would move all lines
	drawn   int               // lines on the screen, above the cursor
	changed bool              // since they were drawn
}

// Style is how a part of a line is shown.
type Style int

const (
	Name Style = iota
	Curve
	Age
)

// gauge is one signal.
type gauge struct {
	sparkline.Trend
	unit string
}

// value returns the last value with its unit, or "" if there is none.
func (g *gauge) value() string {
	if g.Last.Time.IsZero() {
		return ""
	}
	return Value(g.Last.Value, g.unit)
}

// maxGauges limits the number of signals that are remembered.
const maxGauges = 1024

// New returns gauges that draw on out, a terminal of the given size. Style adds colors.
func New(out io.Writer, size func() (width, height int), style func(style Style, text string) string) *Gauges {
	return &Gauges{out: out, style: style, size: size, all: make(map[string]*gauge)}
}

// Measured adds a reading.
func (g *Gauges) Measured(r ferrule.Reading) {
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
		one.Add(s)
		one.unit = s.Unit
	}
	g.changed = true
}

// Gap notes that readings may have been lost.
func (g *Gauges) Gap() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		one.Gap()
	}
}

// Above lets print write lines to the terminal, above the gauges.
func (g *Gauges) Above(print func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drawn > 0 {
		fmt.Fprintf(g.out, "\x1b[%dA\x1b[J", g.drawn)
		g.drawn = 0
	}
	print()
	g.draw()
}

// Run draws until ctx ends: within 100 ms after a change, and every second because the
// ages grow.
func (g *Gauges) Run(ctx context.Context) {
	const interval, ticksPerSecond = 100 * time.Millisecond, 10
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for tick := 1; ; tick++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			g.redraw(false)
			return
		}
		g.redraw(tick%ticksPerSecond == 0)
	}
}

// redraw draws if something has changed, or always.
func (g *Gauges) redraw(always bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed || always {
		g.draw()
	}
}

// draw draws all lines over the old ones. It is called with mu held.
func (g *Gauges) draw() {
	lines := g.lines(time.Now())
	var out strings.Builder
	if g.drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", g.drawn)
	}
	out.WriteString("\x1b[?7l") // cut lines that are too long instead of wrapping them
	for _, line := range lines {
		out.WriteString("\r" + line + "\x1b[K\n")
	}
	out.WriteString("\x1b[?7h\x1b[J")
	if len(lines) > 0 || g.drawn > 0 {
		io.WriteString(g.out, out.String())
	}
	g.drawn, g.changed = len(lines), false
}

// lines returns a line for each signal that fits on the terminal. It is called with mu held.
func (g *Gauges) lines(now time.Time) (lines []string) {
	const gap = "  "
	width, height := g.size()
	names := slices.Sorted(maps.Keys(g.all))
	more := 0
	if rows := max(height-2, 0); len(names) > rows { // the cursor and the number of further signals take a line each
		more = len(names) - rows
		names = names[:rows]
	}
	longest := 0
	for _, name := range names {
		longest = max(longest, min(len(name), longestName))
		g.widest = max(g.widest, utf8.RuneCountInString(g.all[name].value()))
	}
	// The last column stays empty: some terminals wrap when it is written.
	length := min(sparkline.Length, max(0, width-1-longest-g.widest-ageWidth-3*len(gap)))
	for _, name := range names {
		one := g.all[name]
		lines = append(lines, g.style(Name, padded(ferrule.OneLine(name, longestName), longest))+gap+
			g.style(Curve, sparkline.Draw(one.Values, length))+gap+
			padded(one.value(), g.widest)+gap+g.style(Age, one.Age(now)))
	}
	if more > 0 {
		lines = append(lines, g.style(Age, fmt.Sprintf("… and %d more", more)))
	}
	return lines
}

// The widths of columns.
const (
	longestName = 24 // names are cut to this
	ageWidth    = 3
)

// padded pads a cell to the width of its column.
func padded(cell string, width int) string {
	return cell + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(cell)))
}

// Value returns a number with its unit in one line. The unit comes from a device and is
// not trusted.
func Value(v float64, unit string) string {
	return ferrule.OneLine(shortNumber(v)+" "+ferrule.Clean(unit, ferrule.MaxUnit), maxValue)
}

// maxValue limits the characters of a value with its unit.
const maxValue = 300

// shortNumber returns a number in full, or with six digits if it is long.
func shortNumber(v float64) string {
	if text := strconv.FormatFloat(v, 'f', -1, 64); len(text) <= 9 {
		return text
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
