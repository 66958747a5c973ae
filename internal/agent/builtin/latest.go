package builtin

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// LatestInput has the arguments of latest.
type LatestInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
	Signal string `json:"signal,omitempty" jsonschema:"default: all signals"`
}

// LatestOutput is the result of latest.
type LatestOutput struct {
	Device  string         `json:"device"`
	Signals []LatestSignal `json:"signals"`
}

// LatestSignal is the latest value of a signal.
type LatestSignal struct {
	Name    string           `json:"name"`
	Value   float64          `json:"value"`
	Unit    string           `json:"unit,omitempty"`
	Time    time.Time        `json:"time"`
	Age     ferrule.Duration `json:"age"`
	Within  ferrule.Duration `json:"within,omitempty" jsonschema:"uncertainty of time"`
	Earlier []EarlierValue   `json:"earlier,omitempty"`
}

// EarlierValue is a value before the latest.
type EarlierValue struct {
	Time  time.Time `json:"time"`
	Value float64   `json:"value"`
}

// Limits of earlier values in the result for a single signal.
const (
	earlierValues = 10
	earlierTime   = time.Hour
)

// Latest returns the tool latest.
func Latest(fleet Finder, see See, records Records) Tool {
	const text = "Returns the latest measured value of each signal of a device, with unit and age. Does not contact the device."
	return Typed("latest", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in LatestInput) (LatestOutput, error) {
		var err error
		if in.Device, err = visible(call, fleet, see, in.Device); err != nil {
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
				Name: l.Signal, Value: l.Value, Unit: l.Unit, Time: l.Time.UTC(), Age: rounded(now.Sub(l.Time)), Within: rounded(time.Duration(l.Within)),
			})
		}
		if in.Signal == "" {
			return out, nil
		}
		if len(out.Signals) == 0 {
			return out, UnknownSignal(in.Device, in.Signal, known)
		}
		err = out.Signals[0].addEarlier(ctx, in.Device, records)
		return out, err
	})
}

// addEarlier adds values before the latest.
func (s *LatestSignal) addEarlier(ctx context.Context, device string, records Records) error {
	series, err := records.Series(ctx, ferrule.HistoryQuery{
		Device: device, Signals: []string{s.Name}, From: s.Time.Add(-earlierTime), To: s.Time, Points: earlierValues, Resolution: ferrule.Raw,
	})
	for _, c := range series {
		for _, p := range c.Points {
			if p.Time.Before(s.Time) {
				s.Earlier = append(s.Earlier, EarlierValue{p.Time.UTC(), p.Mean})
			}
		}
	}
	return err
}

// rounded returns a duration with the precision that a reader needs.
func rounded(d time.Duration) ferrule.Duration {
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
