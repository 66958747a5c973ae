package toolbox

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule"
)

// LatestInput is the arguments of latest.
type LatestInput struct {
	Device string `json:"device" jsonschema:"ID of the device"`
}

// LatestOutput is the result of latest.
type LatestOutput struct {
	Device  string         `json:"device"`
	Signals []LatestSignal `json:"signals"`
}

// LatestSignal is what a signal was last.
type LatestSignal struct {
	Signal string           `json:"signal"`
	Value  float64          `json:"value"`
	Unit   string           `json:"unit,omitempty"`
	Time   time.Time        `json:"time"`
	Age    ferrule.Duration `json:"age"`
	Within ferrule.Duration `json:"within,omitempty" jsonschema:"time is so far off at most"`
}

// Latest is the tool that tells what was last measured of a device.
func Latest(fleet Finder, past Past) Tool {
	const text = "Tell what was last measured of a device, without asking it: each signal's value, and how old it is."
	return Typed("latest", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, in LatestInput) (LatestOutput, error) {
		if err := visible(call, fleet, in.Device); err != nil {
			return LatestOutput{}, err
		}
		known, err := past.Latest(ctx, in.Device)
		if err != nil {
			return LatestOutput{}, err
		}
		out, now := LatestOutput{Device: in.Device, Signals: []LatestSignal{}}, time.Now()
		for _, l := range known {
			out.Signals = append(out.Signals, LatestSignal{
				Signal: l.Signal, Value: l.Value, Unit: l.Unit, Time: l.Time.UTC(), Age: about(now.Sub(l.Time)), Within: about(time.Duration(l.Within)),
			})
		}
		return out, nil
	})
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
