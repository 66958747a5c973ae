package builtin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Picture is what is to be drawn.
type Chart struct {
	Title    string
	From, To time.Time
	Series   []ferrule.Series
	// Calls are marked where they were made.
	Calls         []ferrule.Entry
	Width, Height int
	// Zone is where the times on the axis are told.
	Zone *time.Location
}

// Diary tells which calls were made to a device in a time, one entry for each: an intent
// if it may have changed something.
type CallLog interface {
	Calls(ctx context.Context, device string, from, to time.Time) ([]ferrule.Entry, error)
}

// The size of pictures.
const (
	usualWidth  = 1000
	baseHeight  = 280
	unitHeight  = 120
	mostHeight  = 1200
	plotPoints  = 10_000 // of each signal: the hours of a year, and more than a picture is wide
	plotsAtOnce = 2
)

// PlotInput is the arguments of plot.
type PlotInput struct {
	SpanInput
	Width  int `json:"width,omitempty" jsonschema:"pixels; 1000 unless said"`
	Height int `json:"height,omitempty"`
}

// Plot is the tool that draws what was measured. Draw makes a PNG of a picture.
func Plot(fleet Finder, records Records, diary CallLog, draw func(Chart) ([]byte, error)) Tool {
	const text = "Draw what was measured of a device over time, as a picture: gaps are shaded, and calls are marked."
	seats := make(chan struct{}, plotsAtOnce)
	return Shown("plot", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in PlotInput) (*ferrule.Result, error) {
		span, err := in.span(ctx, call, fleet, records)
		if err != nil {
			return nil, err
		}
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
		case <-ctx.Done():
			return nil, ferrule.Errorf(ferrule.Limited, "other pictures are being drawn").WithHint("ask again in a moment")
		}
		span.Points = plotPoints
		all, err := curves(ctx, records, span)
		if err != nil {
			return nil, err
		}
		p := Chart{Title: span.Device, From: span.From, To: span.To, Series: all, Width: in.Width, Height: in.Height, Zone: time.Local}
		p.fill()
		calls, missing := diary.Calls(ctx, span.Device, span.From, span.To)
		p.Calls = calls
		words := p.words()
		p.shadeCut()
		png, err := draw(p)
		if err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "it cannot be drawn: %w", err)
		}
		if missing != nil {
			words += " Not all calls are marked: " + missing.Error() + "."
		}
		return &ferrule.Result{Content: []ferrule.Content{
			{Type: ferrule.ImageContent, Data: png, MIME: "image/png"},
			{Type: ferrule.TextContent, Text: words},
		}}, nil
	})
}

// fill chooses the size where none is said: each unit has a panel of its own, and so has
// each signal without one.
func (p *Chart) fill() {
	if p.Width == 0 {
		p.Width = usualWidth
	}
	if p.Height == 0 {
		var units []string
		for _, c := range p.Series {
			if c.Unit == "" || !slices.Contains(units, c.Unit) {
				units = append(units, c.Unit)
			}
		}
		p.Height = min(baseHeight+unitHeight*len(units), mostHeight)
	}
}

// shadeCut shades the time of points that are left out: it would look as if nothing had
// been measured then.
func (p *Chart) shadeCut() {
	for i := range p.Series {
		if c := &p.Series[i]; c.Truncated && len(c.Points) > 0 {
			c.Gaps = append([]ferrule.Gap{{From: p.From, To: c.Points[0].Time, Reason: ferrule.Dropped}}, c.Gaps...)
		}
	}
}

// words tells what is to be seen, for those who cannot look.
func (p *Chart) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s to %s.", p.Title, p.From.In(p.Zone).Format(time.RFC3339), p.To.In(p.Zone).Format(time.RFC3339))
	for _, c := range p.Series {
		fmt.Fprintf(&b, " %s", summary(c))
	}
	if n := len(p.Calls); n > 0 {
		fmt.Fprintf(&b, " Calls that are marked: %d.", n)
	}
	return b.String()
}

// summary tells a curve in a sentence.
func summary(c ferrule.Series) string {
	if len(c.Points) == 0 {
		return c.Signal + ": nothing was measured."
	}
	low, high := math.Inf(1), math.Inf(-1)
	var mean ferrule.Mean
	for _, p := range c.Points {
		low, high = min(low, p.Min), max(high, p.Max)
		mean.Add(p.Mean, float64(p.Count))
	}
	last := c.Points[len(c.Points)-1]
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	text := fmt.Sprintf("%s%s: from %s to %s, mean %s, last %s; points are %s", c.Signal, in(c.Unit), number(low), number(high), number(mean.Value()), number(last.Mean), grains[c.Resolution])
	if n := len(c.Gaps); n > 0 {
		text += fmt.Sprintf(", gaps %d", n)
	}
	if c.Truncated {
		text += ", older ones are left out"
	}
	return text + "."
}

// grains are what points are.
var grains = map[ferrule.Resolution]string{ferrule.Raw: "samples", ferrule.Minutes: "minutes", ferrule.Hours: "hours"}

func in(unit string) string {
	if unit == "" {
		return ""
	}
	return " in " + unit
}
