package watchtext

import (
	"fmt"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/terminal"
	"github.com/ferrulehq/ferrule/internal/measure/gauges"
)

// shownReading is the JSON of a reading, with one object per sample.
type shownReading struct {
	ferrule.Reading
	Series []shownSeries `json:"batches"`
}

type shownSeries struct {
	Signal  string           `json:"signal"`
	Unit    string           `json:"unit,omitempty"`
	Samples []ferrule.Sample `json:"samples"`
	Gaps    []ferrule.Gap    `json:"gaps,omitempty"`
}

// ReadingJSON returns a reading as it is printed as JSON.
func ReadingJSON(r ferrule.Reading) any {
	shown := shownReading{Reading: r, Series: []shownSeries{}}
	for _, s := range r.Batches {
		shown.Series = append(shown.Series, shownSeries{s.Signal, s.Unit, append([]ferrule.Sample{}, s.Samples...), s.Gaps})
	}
	return shown
}

// Reading returns a line for each signal of a reading, and for each gap.
func Reading(r ferrule.Reading, who string, style terminal.Style) string {
	var b strings.Builder
	line := func(at time.Time, signal, text string) {
		fmt.Fprintf(&b, "%s %s %s %s\n", style(terminal.Faint, at.Local().Format("15:04:05.000")), style(terminal.Bold, who), signal, text)
	}
	for i := range r.Batches {
		s := &r.Batches[i]
		for _, gap := range s.Gaps {
			line(gap.To, s.Signal, gapText(gap))
		}
		if n := len(s.Samples); n > 0 {
			last := s.Samples[n-1]
			text := gauges.Value(last.Value, s.Unit)
			if n > 1 {
				text += fmt.Sprintf(", the last of %d samples", n)
			}
			line(last.Time, s.Signal, text)
		}
	}
	return b.String()
}

// gapText describes a gap.
func gapText(g ferrule.Gap) string {
	missing := "samples"
	switch {
	case g.MaxMissing == 1:
		missing = "1 sample"
	case g.MaxMissing > 1:
		missing = fmt.Sprintf("up to %d samples", g.MaxMissing)
	}
	return fmt.Sprintf("%s may be missing since %s: %s", missing, g.From.Local().Format("15:04:05.000"), ferrule.OneLine(ferrule.Clean(string(g.Reason), ferrule.MaxWord), MaxShown))
}
