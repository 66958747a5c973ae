package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits of points per signal.
const (
	defaultPoints = 100
	maxPoints     = 1000
	personPoints  = 10_000 // people export them to files
)

// HistoryInput has the arguments of history.
type HistoryInput struct {
	RangeInput
	Points     int    `json:"points,omitempty" jsonschema:"maximum per signal, default 100"`
	Resolution string `json:"resolution,omitempty" jsonschema:"raw, minute or hour; default: fits points"`
}

// HistoryOutput is the result of history.
type HistoryOutput struct {
	Device  string          `json:"device"`
	From    time.Time       `json:"from"`
	To      time.Time       `json:"to"`
	Signals []HistorySeries `json:"signals"`
}

// HistorySeries is the history of one signal.
type HistorySeries struct {
	Name       string         `json:"name"`
	Unit       string         `json:"unit,omitempty"`
	Resolution string         `json:"resolution"`
	State      bool           `json:"state,omitempty" jsonschema:"each value is valid until the next"`
	Last       *HistoryPoint  `json:"last,omitempty" jsonschema:"newest sample in the time range"`
	Points     []HistoryPoint `json:"points"`
	Gaps       []HistoryGap   `json:"gaps" jsonschema:"where samples may be missing"`
	Truncated  bool           `json:"truncated,omitempty" jsonschema:"older points are left out"`
}

// HistoryPoint is one sample, or the mean of a minute or an hour.
type HistoryPoint struct {
	Time   time.Time        `json:"time"`
	Value  float64          `json:"value"`
	Within ferrule.Duration `json:"within,omitempty"`
	Min    *float64         `json:"min,omitempty"`
	Max    *float64         `json:"max,omitempty"`
	Count  int              `json:"count,omitempty"`
}

// HistoryGap is a stretch in which samples may be missing.
type HistoryGap struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Reason     string    `json:"reason"`
	MaxMissing int       `json:"max_missing,omitempty"`
}

// History returns the tool history.
func History(fleet Finder, see See, records Records) Tool {
	const text = "Returns measured values of a device over a time range, downsampled to at most `points` per signal, with gaps."
	return Typed("history", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in HistoryInput) (HistoryOutput, error) {
		limit := maxPoints
		if call.Principal.Role == ferrule.Person {
			limit = personPoints
		}
		switch ferrule.Resolution(in.Resolution) {
		case "", ferrule.Raw, ferrule.Minutes, ferrule.Hours:
		default:
			return HistoryOutput{}, ferrule.Errorf(ferrule.Invalid, "resolution must be raw, minute or hour, got %q", ferrule.Clean(in.Resolution, 32))
		}
		if in.Points < 0 || in.Points > limit {
			return HistoryOutput{}, ferrule.Errorf(ferrule.Invalid, "points must be from 1 to %d, got %d", limit, in.Points)
		}
		query, err := in.query(ctx, call, fleet, see, records)
		if err != nil {
			return HistoryOutput{}, err
		}
		query.Resolution, query.Points = ferrule.Resolution(in.Resolution), in.Points
		if query.Points == 0 {
			query.Points = defaultPoints
		}
		all, err := seriesIn(ctx, records, query)
		if err != nil {
			return HistoryOutput{}, err
		}
		return historyOf(query, all), nil
	})
}

func historyOf(query ferrule.HistoryQuery, all []ferrule.Series) HistoryOutput {
	out := HistoryOutput{Device: query.Device, From: query.From.UTC(), To: query.To.UTC(), Signals: []HistorySeries{}}
	for _, c := range all {
		series := HistorySeries{Name: c.Signal, Unit: c.Unit, Resolution: string(c.Resolution), State: c.State, Points: []HistoryPoint{}, Gaps: []HistoryGap{}, Truncated: c.Truncated}
		if l := c.Last; l != nil {
			series.Last = &HistoryPoint{Time: l.Time.UTC(), Value: l.Value, Within: rounded(time.Duration(l.Within))}
		}
		for _, p := range c.Points {
			point := HistoryPoint{Time: p.Time.UTC(), Value: p.Mean, Within: rounded(time.Duration(p.Within))}
			if c.Resolution != ferrule.Raw {
				point.Min, point.Max, point.Count = &p.Min, &p.Max, p.Count
			}
			series.Points = append(series.Points, point)
		}
		for _, g := range c.Gaps {
			series.Gaps = append(series.Gaps, HistoryGap{g.From.UTC(), g.To.UTC(), string(g.Reason), g.MaxMissing})
		}
		out.Signals = append(out.Signals, series)
	}
	return out
}
