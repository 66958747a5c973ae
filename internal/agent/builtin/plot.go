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

// Chart is what plot draws.
type Chart struct {
	Title    string
	From, To time.Time
	Series   []ferrule.Series
	// Calls are marked on the time axis.
	Calls         []ferrule.Entry
	Width, Height int
	// Zone is the time zone of the axis.
	Zone *time.Location
}

// CallLog returns the calls to a device in a time range, one entry per call: the intent
// of a call that may have changed something, else its outcome.
type CallLog interface {
	Calls(ctx context.Context, device string, from, to time.Time) ([]ferrule.Entry, error)
}

// Size of charts.
const (
	defaultWidth = 1000
	baseHeight   = 280
	unitHeight   = 120
	maxHeight    = 1200
	plotPoints   = 10_000 // per signal: the hours of a year, and more than the pixels of a chart
	maxPlots     = 2
)

// PlotInput has the arguments of plot.
type PlotInput struct {
	RangeInput
	Width  int `json:"width,omitempty" jsonschema:"pixels, default 1000"`
	Height int `json:"height,omitempty"`
}

// Plot returns the tool plot. Draw renders a chart as PNG.
func Plot(fleet Finder, see See, records Records, log CallLog, draw func(Chart) ([]byte, error)) Tool {
	const text = "Returns a PNG chart of a device's signals over a time range. Gaps are shaded and calls are marked."
	slots := make(chan struct{}, maxPlots)
	return Shown("plot", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in PlotInput) (*ferrule.Result, error) {
		query, err := in.query(ctx, call, fleet, see, records)
		if err != nil {
			return nil, err
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, ferrule.Errorf(ferrule.Limited, "other charts are being drawn").WithHint("Try again in a moment.")
		}
		query.Points = plotPoints
		all, err := seriesIn(ctx, records, query)
		if err != nil {
			return nil, err
		}
		p := Chart{Title: query.Device, From: query.From, To: query.To, Series: all, Width: in.Width, Height: in.Height, Zone: time.Local}
		p.setSize()
		p.fit(in.Until == "")
		calls, missing := log.Calls(ctx, query.Device, p.From, p.To)
		p.Calls = shownCalls(calls, fleet, see.of(call))
		text := p.summary()
		p.shadeTruncated()
		png, err := draw(p)
		if err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "drawing the chart: %w", err)
		}
		if missing != nil {
			text += " Some calls are not marked: " + missing.Error() + "."
		}
		return &ferrule.Result{Content: []ferrule.Content{
			{Type: ferrule.ImageContent, Data: png, MIME: "image/png"},
			{Type: ferrule.TextContent, Text: text},
		}}, nil
	})
}

// fit shortens the time range to that of the values, with a margin. Its end stays if the
// caller chose it.
func (p *Chart) fit(end bool) {
	var first, last time.Time
	for _, c := range p.Series {
		if len(c.Points) == 0 {
			continue
		}
		length := map[ferrule.Resolution]time.Duration{ferrule.Minutes: time.Minute, ferrule.Hours: time.Hour}[c.Resolution]
		from, to := c.Points[0].Time, c.Points[len(c.Points)-1].Time.Add(length)
		if c.Truncated { // what is left out is shaded
			from = p.From
		}
		if first.IsZero() || from.Before(first) {
			first = from
		}
		if to.After(last) {
			last = to
		}
	}
	if first.IsZero() {
		return
	}
	margin := max(last.Sub(first)/50, time.Second)
	if from := first.Add(-margin); from.After(p.From) {
		p.From = from
	}
	if to := last.Add(margin); end && to.Before(p.To) && to.After(p.From) {
		p.To = to
	}
}

// shownCalls returns the calls of tools that are shown.
func shownCalls(calls []ferrule.Entry, fleet Finder, seen ferrule.Visibility) []ferrule.Entry {
	if seen.Shows == nil {
		return calls
	}
	return slices.DeleteFunc(calls, func(e ferrule.Entry) bool {
		dev, manifest, ok := fleet.Lookup(e.Device)
		return !ok || manifest == nil || !seen.Item(dev, manifest, e.Operation, e.Tool)
	})
}

// setSize sets the default size: one panel per unit, and one per signal without a unit.
func (p *Chart) setSize() {
	if p.Width == 0 {
		p.Width = defaultWidth
	}
	if p.Height == 0 {
		var units []string
		for _, c := range p.Series {
			if c.Unit == "" || !slices.Contains(units, c.Unit) {
				units = append(units, c.Unit)
			}
		}
		p.Height = min(baseHeight+unitHeight*len(units), maxHeight)
	}
}

// shadeTruncated shades the time of points that were left out, which would otherwise look
// as if nothing had been measured.
func (p *Chart) shadeTruncated() {
	for i := range p.Series {
		if c := &p.Series[i]; c.Truncated && len(c.Points) > 0 {
			c.Gaps = append([]ferrule.Gap{{From: p.From, To: c.Points[0].Time, Reason: ferrule.Dropped}}, c.Gaps...)
		}
	}
}

// summary describes the chart in words, for readers without images.
func (p *Chart) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s to %s.", p.Title, p.From.In(p.Zone).Format(time.RFC3339), p.To.In(p.Zone).Format(time.RFC3339))
	for _, c := range p.Series {
		fmt.Fprintf(&b, " %s", summarize(c))
	}
	if n := len(p.Calls); n > 0 {
		fmt.Fprintf(&b, " Marked calls: %d.", n)
	}
	return b.String()
}

// summarize describes a series in one sentence.
func summarize(c ferrule.Series) string {
	if len(c.Points) == 0 {
		return c.Signal + ": no values."
	}
	low, high := math.Inf(1), math.Inf(-1)
	var mean ferrule.Mean
	for _, p := range c.Points {
		low, high = min(low, p.Min), max(high, p.Max)
		mean.Add(p.Mean, float64(p.Count))
	}
	last := c.Points[len(c.Points)-1].Mean
	if c.Last != nil {
		last = c.Last.Value
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	text := fmt.Sprintf("%s%s: min %s, max %s, mean %s, last %s; one point per %s", c.Signal, inUnit(c.Unit), number(low), number(high), number(mean.Value()), number(last), resolutionNames[c.Resolution])
	if n := len(c.Gaps); n > 0 {
		text += fmt.Sprintf(", gaps %d", n)
	}
	if c.Truncated {
		text += ", older points left out"
	}
	return text + "."
}

var resolutionNames = map[ferrule.Resolution]string{ferrule.Raw: "sample", ferrule.Minutes: "minute", ferrule.Hours: "hour"}

func inUnit(unit string) string {
	if unit == "" {
		return ""
	}
	return " in " + unit
}
