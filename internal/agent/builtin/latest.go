package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// LatestInput is the arguments of latest.
type LatestInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Signal string `json:"signal,omitempty" jsonschema:"all unless said"`
}

// LatestOutput is the result of latest.
type LatestOutput struct {
	Device  string         `json:"device"`
	Signals []LatestSignal `json:"signals"`
}

// LatestSignal is what a signal was last.
type LatestSignal struct {
	Name   string           `json:"name"`
	Value  float64          `json:"value"`
	Unit   string           `json:"unit,omitempty"`
	Time   time.Time        `json:"time"`
	Age    ferrule.Duration `json:"age"`
	Within ferrule.Duration `json:"within,omitempty" jsonschema:"time is so far off at most"`
	Before []EarlierValue   `json:"before,omitempty"`
}

// EarlierValue is what a signal was a little earlier.
type EarlierValue struct {
	Time  time.Time `json:"time"`
	Value float64   `json:"value"`
}

// A little past is told of one signal: so many values, of so long a time.
const (
	earlierValues = 10
	earlierTime   = time.Hour
)

// Latest is the tool that tells what was last measured of a device.
func Latest(fleet Finder, records Records) Tool {
	const text = "Tell what was last measured of a device, without asking it: each signal's value, and how old it is."
	return Typed("latest", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in LatestInput) (LatestOutput, error) {
		if err := visible(call, fleet, in.Device); err != nil {
			return LatestOutput{}, err
		}
		known, err := records.Latest(ctx, in.Device)
		if err != nil {
			return LatestOutput{}, err
		}
		out, now := LatestOutput{Device: in.Device, Signals: []LatestSignal{}}, time.Now()
		for _, l := range known {
			if in.Signal != "" && in.Signal != l.Signal {
				continue
			}
			out.Signals = append(out.Signals, LatestSignal{
				Name: l.Signal, Value: l.Value, Unit: l.Unit, Time: l.Time.UTC(), Age: about(now.Sub(l.Time)), Within: about(time.Duration(l.Within)),
			})
		}
		if in.Signal == "" {
			return out, nil
		}
		if len(out.Signals) == 0 {
			return out, noSignal(in.Device, in.Signal, known)
		}
		err = out.Signals[0].look(ctx, in.Device, records)
		return out, err
	})
}

// look adds what the signal was before.
func (s *LatestSignal) look(ctx context.Context, device string, records Records) error {
	curves, err := records.Past(ctx, ferrule.HistoryQuery{
		Device: device, Signals: []string{s.Name}, From: s.Time.Add(-earlierTime), To: s.Time, Points: earlierValues, Resolution: ferrule.Raw,
	})
	for _, c := range curves {
		for _, p := range c.Points {
			if p.Time.Before(s.Time) {
				s.Before = append(s.Before, EarlierValue{p.Time.UTC(), p.Mean})
			}
		}
	}
	return err
}

// about is a duration as finely as it matters.
func about(d time.Duration) ferrule.Duration {
	switch d = max(d, 0); {
	case d > time.Minute:
		d = d.Round(time.Second)
	case d > time.Second:
		d = d.Round(time.Millisecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return ferrule.Duration(d)
}
