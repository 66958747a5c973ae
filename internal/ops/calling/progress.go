package calling

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
)

// Progress shows the progress of a call: a bar that is redrawn if the device reports a
// total, else a line. Words of the device are quoted.
func (s *Session) Progress(p ferrule.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Log != nil {
		s.leaveBar()
		fmt.Fprintln(s.Out, s.Style(terminal.Faint, s.quoted(shown(p.Log.Level+": "+string(p.Log.Data), maxShown))))
		return
	}
	text := shown(p.Message, maxShown)
	numbers := finite(p.Done) && finite(p.Total) && p.Total > 0 && p.Done >= 0
	switch {
	case numbers && s.Width != nil:
		fmt.Fprintf(s.Out, "\r%s\x1b[K", barText(p.Done, p.Total, text, s.Width()-1))
		s.bar = true
	case numbers && (text == "" || p.Said):
		fmt.Fprintln(s.Out, counts(p.Done, p.Total))
		if text != "" {
			fmt.Fprintln(s.Out, s.quoted(text))
		}
	case numbers:
		fmt.Fprintln(s.Out, counts(p.Done, p.Total)+" "+text)
	case text == "" && p.Done > 0 && finite(p.Done):
		s.leaveBar()
		fmt.Fprintln(s.Out, s.Style(terminal.Faint, number(p.Done)))
	case text != "":
		s.leaveBar()
		if p.Said {
			text = s.quoted(text)
		}
		fmt.Fprintln(s.Out, s.Style(terminal.Faint, text))
	}
}

// End leaves the line of the progress bar.
func (s *Session) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveBar()
}

// leaveBar begins a new line after the bar. It is called with mu held.
func (s *Session) leaveBar() {
	if s.bar {
		fmt.Fprintln(s.Out)
		s.bar = false
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// number formats a number of a device.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// counts says how much is done, to about a thousandth of the total.
func counts(done, total float64) string {
	if places := 2 - math.Floor(math.Log10(total)); places >= 0 && places < 6 {
		scale := math.Pow(10, places)
		done = math.Round(done*scale) / scale
	}
	return fmt.Sprintf("%s of %s (%.0f%%)", number(done), number(total), 100*min(done/total, 1))
}

// The length of a bar, in characters.
const (
	minBar = 10
	maxBar = 40
)

// barText returns a progress bar that fits into a number of columns.
func barText(done, total float64, text string, width int) string {
	numbers := counts(done, total)
	length := min(maxBar, max(minBar, width-len(numbers)-len(text)-4))
	filled := int(min(done/total, 1) * float64(length))
	line := "[" + strings.Repeat("#", filled) + strings.Repeat(".", length-filled) + "] " + numbers
	if text != "" {
		line += " " + text
	}
	end, _ := fitting(line, max(width, 1))
	return line[:end]
}
