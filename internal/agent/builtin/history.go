package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// How many points of a signal are told.
const (
	usualPoints  = 100
	maxPoints    = 1000
	personPoints = 10_000 // people write them to files
)

// HistoryInput is the arguments of history.
type HistoryInput struct {
	SpanInput
	Points int    `json:"points,omitempty" jsonschema:"of each signal at most; 100 unless said"`
	Each   string `json:"each,omitempty" jsonschema:"raw, minute or hour; by points unless said"`
}

// HistoryOutput is the result of history.
type HistoryOutput struct {
	Device  string          `json:"device"`
	From    time.Time       `json:"from"`
	To      time.Time       `json:"to"`
	Signals []HistorySeries `json:"signals"`
}

// HistoryLine is the past of one signal.
type HistorySeries struct {
	Name   string         `json:"name"`
	Unit   string         `json:"unit,omitempty"`
	Each   string         `json:"each" jsonschema:"what a point is"`
	Points []HistoryPoint `json:"points"`
	Gaps   []HistoryGap   `json:"gaps" jsonschema:"where samples may be missing"`
	Cut    bool           `json:"cut,omitempty" jsonschema:"older ones are left out"`
}

// HistoryPoint is one sample, or the mean of several.
type HistoryPoint struct {
	Time   time.Time        `json:"time"`
	Value  float64          `json:"value"`
	Within ferrule.Duration `json:"within,omitempty"`
	Min    *float64         `json:"min,omitempty"`
	Max    *float64         `json:"max,omitempty"`
	Count  int              `json:"count,omitempty"`
}

// HistoryHole is where samples may be missing.
type HistoryGap struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Reason     string    `json:"reason"`
	MaxMissing int       `json:"max_missing,omitempty"`
}

// History is the tool that tells what was measured.
func History(fleet Finder, records Records) Tool {
	const text = "Tell what was measured of a device, as numbers."
	return Typed("history", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in HistoryInput) (HistoryOutput, error) {
		most := maxPoints
		if call.Principal.Role == ferrule.Person {
			most = personPoints
		}
		switch grain := ferrule.Resolution(in.Each); grain {
		case "", ferrule.Raw, ferrule.Minutes, ferrule.Hours:
		default:
			return HistoryOutput{}, ferrule.Errorf(ferrule.Invalid, "each: want raw, minute or hour, got %q", ferrule.Clean(in.Each, 32))
		}
		if in.Points < 0 || in.Points > most {
			return HistoryOutput{}, ferrule.Errorf(ferrule.Invalid, "points: want from 1 to %d, got %d", most, in.Points)
		}
		span, err := in.span(ctx, call, fleet, records)
		if err != nil {
			return HistoryOutput{}, err
		}
		span.Resolution, span.Points = ferrule.Resolution(in.Each), in.Points
		if span.Points == 0 {
			span.Points = usualPoints
		}
		all, err := curves(ctx, records, span)
		if err != nil {
			return HistoryOutput{}, err
		}
		return historyOf(span, all), nil
	})
}

func historyOf(span ferrule.HistoryQuery, curves []ferrule.Series) HistoryOutput {
	out := HistoryOutput{Device: span.Device, From: span.From.UTC(), To: span.To.UTC(), Signals: []HistorySeries{}}
	for _, c := range curves {
		line := HistorySeries{Name: c.Signal, Unit: c.Unit, Each: string(c.Resolution), Points: []HistoryPoint{}, Gaps: []HistoryGap{}, Cut: c.Truncated}
		for _, p := range c.Points {
			point := HistoryPoint{Time: p.Time.UTC(), Value: p.Mean, Within: about(time.Duration(p.Within))}
			if c.Resolution != ferrule.Raw {
				point.Min, point.Max, point.Count = &p.Min, &p.Max, p.Count
			}
			line.Points = append(line.Points, point)
		}
		for _, h := range c.Gaps {
			line.Gaps = append(line.Gaps, HistoryGap{h.From.UTC(), h.To.UTC(), string(h.Reason), h.MaxMissing})
		}
		out.Signals = append(out.Signals, line)
	}
	return out
}
