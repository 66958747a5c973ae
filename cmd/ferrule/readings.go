package main

import (
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// shownReading is a reading for scripts: its samples are told one by one.
type shownReading struct {
	ferrule.Reading
	Series []shownSeries `json:"batches"`
}

type shownSeries struct {
	Signal  string           `json:"signal"`
	Unit    string           `json:"unit,omitempty"`
	Samples []ferrule.Sample `json:"samples"`
	Holes   []ferrule.Gap    `json:"gaps,omitempty"`
}

// printReading prints a reading, with its node if there are several: in a line for each
// signal, and for each hole in it.
func (a *app) printReading(r ferrule.Reading, several bool) {
	if a.json {
		shown := shownReading{Reading: r, Series: []shownSeries{}}
		for _, s := range r.Batches {
			shown.Series = append(shown.Series, shownSeries{s.Signal, s.Unit, append([]ferrule.Sample{}, s.Samples...), s.Gaps})
		}
		a.jsonLines().Encode(shown)
		return
	}
	who := ofNode(r.Device, r.Node, several)
	for i := range r.Batches {
		s := &r.Batches[i]
		for _, hole := range s.Gaps {
			a.printMeasured(hole.To, who, s.Signal, missing(hole))
		}
		if n := len(s.Samples); n > 0 {
			last := s.Samples[n-1]
			said := inUnit(last.Value, s.Unit)
			if n > 1 {
				said += fmt.Sprintf(", the last of %d samples", n)
			}
			a.printMeasured(last.Time, who, s.Signal, said)
		}
	}
}

func (a *app) printMeasured(at time.Time, who, signal, said string) {
	fmt.Fprintf(a.stdout, "%s %s %s %s\n", a.style(faint, at.Local().Format("15:04:05.000")), a.style(bold, who), signal, said)
}

// missing tells of a hole.
func missing(h ferrule.Gap) string {
	some := "samples"
	switch {
	case h.MaxMissing == 1:
		some = "a sample"
	case h.MaxMissing > 1:
		some = fmt.Sprintf("up to %d samples", h.MaxMissing)
	}
	return fmt.Sprintf("may lack %s since %s: %s", some, h.From.Local().Format("15:04:05.000"), oneLine(ferrule.Clean(string(h.Reason), ferrule.MaxWord), maxShown))
}
