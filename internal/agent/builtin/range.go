package builtin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Records returns measured values. The caller owns the results.
type Records interface {
	// Latest returns the latest value of every signal of a device, sorted by name.
	Latest(ctx context.Context, device string) ([]ferrule.Latest, error)
	// Series returns one series per signal of the query, in that order.
	Series(ctx context.Context, query ferrule.HistoryQuery) ([]ferrule.Series, error)
}

// Finder looks up a device. Results are shared and read-only.
type Finder interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// maxUnnamed is the maximum number of signals in one query.
const maxUnnamed = 8

// RangeInput selects signals of a device and a time range.
type RangeInput struct {
	Device  string   `json:"device" jsonschema:"ID of the device"`
	Signals []string `json:"signals,omitempty" jsonschema:"default: all"`
	Since   string   `json:"since,omitempty" jsonschema:"age such as 2h or 7d, or a time; default 1h"`
	Until   string   `json:"until,omitempty" jsonschema:"default: now"`
}

// query converts the input. It fails if the caller may not see the device.
func (in RangeInput) query(ctx context.Context, call *ferrule.Call, fleet Finder, see See, records Records) (query ferrule.HistoryQuery, err error) {
	if in.Device, err = visible(call, fleet, see, in.Device); err != nil {
		return query, err
	}
	now := time.Now()
	query = ferrule.HistoryQuery{Device: in.Device, From: now.Add(-time.Hour), To: now}
	if in.Until != "" {
		if query.To, err = parseTime("until", in.Until, now); err != nil {
			return query, err
		}
		query.From = query.To.Add(-time.Hour)
	}
	if in.Since != "" {
		if query.From, err = parseTime("since", in.Since, now); err != nil {
			return query, err
		}
	}
	if !query.From.Before(query.To) {
		return query, ferrule.Errorf(ferrule.Invalid, "since must be before until")
	}
	query.Signals, err = in.signals(ctx, records)
	return query, err
}

// seriesIn returns one series per signal of a query. A signal that was first measured just
// now is not stored yet, and gets an empty one.
func seriesIn(ctx context.Context, records Records, query ferrule.HistoryQuery) ([]ferrule.Series, error) {
	found, err := records.Series(ctx, query)
	if err != nil {
		return nil, err
	}
	all := make([]ferrule.Series, len(query.Signals))
	for i, name := range query.Signals {
		all[i] = ferrule.Series{Signal: name, Resolution: ferrule.Raw}
		if at := slices.IndexFunc(found, func(c ferrule.Series) bool { return c.Signal == name }); at >= 0 {
			all[i] = found[at]
		}
	}
	return all, nil
}

// signals returns the selected signals. If a device has many, the caller must name some.
func (in RangeInput) signals(ctx context.Context, records Records) ([]string, error) {
	known, err := records.Latest(ctx, in.Device)
	if err != nil {
		return nil, err
	}
	names := namesOf(known)
	switch {
	case len(names) == 0:
		return nil, UnknownSignal(in.Device, "", nil)
	case len(in.Signals) == 0 && len(names) > maxUnnamed:
		return nil, ferrule.Errorf(ferrule.Invalid, "%s has %d signals; select at most %d", in.Device, len(names), maxUnnamed).
			WithHint("Signals are %s.", joinSome(names))
	case len(in.Signals) == 0:
		return names, nil
	case len(in.Signals) > maxUnnamed:
		return nil, ferrule.Errorf(ferrule.Invalid, "%d signals selected; limit is %d", len(in.Signals), maxUnnamed)
	}
	for i, name := range in.Signals {
		if !slices.Contains(names, name) {
			return nil, UnknownSignal(in.Device, name, known)
		}
		if slices.Contains(in.Signals[:i], name) {
			return nil, ferrule.Errorf(ferrule.Invalid, "duplicate signal %s", name)
		}
	}
	return in.Signals, nil
}

// UnknownSignal returns the error for a signal that a device does not have.
func UnknownSignal(device, name string, known []ferrule.Latest) error {
	if len(known) == 0 {
		return ferrule.Errorf(ferrule.NotFound, "no measured values of %s", device).
			WithHint("A device is polled if it declares sampling, or if an overlay names a tool to poll.")
	}
	return ferrule.Errorf(ferrule.NotFound, "%s has no signal %q", device, ferrule.Clean(name, ferrule.MaxSignal)).WithHint("It has %s.", joinSome(namesOf(known)))
}

func namesOf(known []ferrule.Latest) (names []string) {
	for _, l := range known {
		names = append(names, l.Signal)
	}
	return names
}

// joinSome joins the first names.
func joinSome(names []string) string {
	const limit = 30
	if n := len(names); n > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), n-limit)
	}
	return strings.Join(names, ", ")
}

// visible returns the ID of a device that is given by its ID or an earlier one. It returns
// not_found for a device that the caller may not see.
func visible(call *ferrule.Call, fleet Finder, see See, id string) (string, error) {
	dev, manifest, ok := fleet.Lookup(id)
	if !ok || !see.device(call, dev, manifest) || id == ferrule.GatewayID {
		return "", ferrule.UnknownDevice(id)
	}
	return dev.ID, nil
}

// parseTime parses a time, or an age such as 90s, 2h or 7d.
func parseTime(name, text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if back, err := ferrule.ParseDuration(text); err == nil && back >= 0 {
		return now.Add(-back), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return now, ferrule.Errorf(ferrule.Invalid, "%s must be like 2h, 7d or 2026-01-31T15:04:05Z, got %q", name, ferrule.Clean(text, 64))
}
