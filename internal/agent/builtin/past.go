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

// Records is what was measured. What it returns is the caller's.
type Records interface {
	// Latest tells of all signals of a device, by name.
	Latest(ctx context.Context, device string) ([]ferrule.Latest, error)
	// Past is one curve for each signal that is asked for, in that order.
	Past(ctx context.Context, span ferrule.HistoryQuery) ([]ferrule.Series, error)
}

// Finder finds a device. What it returns is shared and read only.
type Finder interface {
	Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool)
}

// maxUnnamed is how many signals a device may have for none to be named.
const maxUnnamed = 8

// SpanInput is what of the past is asked for.
type SpanInput struct {
	Device  string   `json:"device" jsonschema:"ID of the device"`
	Signals []string `json:"signals,omitempty" jsonschema:"all unless said"`
	Since   string   `json:"since,omitempty" jsonschema:"2h or 7d ago, or a time; 1h unless said"`
	Until   string   `json:"until,omitempty" jsonschema:"now unless said"`
}

// span is what is meant, of a device that the caller may know of.
func (in SpanInput) span(ctx context.Context, call *ferrule.Call, fleet Finder, records Records) (span ferrule.HistoryQuery, err error) {
	if err := visible(call, fleet, in.Device); err != nil {
		return span, err
	}
	now := time.Now()
	span = ferrule.HistoryQuery{Device: in.Device, From: now.Add(-time.Hour), To: now}
	if in.Until != "" {
		if span.To, err = moment("until", in.Until, now); err != nil {
			return span, err
		}
		span.From = span.To.Add(-time.Hour)
	}
	if in.Since != "" {
		if span.From, err = moment("since", in.Since, now); err != nil {
			return span, err
		}
	}
	if !span.From.Before(span.To) {
		return span, ferrule.Errorf(ferrule.Invalid, "since is not before until: nothing lies between them")
	}
	span.Signals, err = in.signals(ctx, records)
	return span, err
}

// curves are what is known of each signal in a span. One that was measured just now is not
// written yet.
func curves(ctx context.Context, records Records, span ferrule.HistoryQuery) ([]ferrule.Series, error) {
	found, err := records.Past(ctx, span)
	if err != nil {
		return nil, err
	}
	all := make([]ferrule.Series, len(span.Signals))
	for i, name := range span.Signals {
		all[i] = ferrule.Series{Signal: name, Resolution: ferrule.Raw}
		if at := slices.IndexFunc(found, func(c ferrule.Series) bool { return c.Signal == name }); at >= 0 {
			all[i] = found[at]
		}
	}
	return all, nil
}

// signals are those that are meant: of many, some have to be named.
func (in SpanInput) signals(ctx context.Context, records Records) ([]string, error) {
	known, err := records.Latest(ctx, in.Device)
	if err != nil {
		return nil, err
	}
	names := namesOf(known)
	switch {
	case len(names) == 0:
		return nil, noSignal(in.Device, "", nil)
	case len(in.Signals) == 0 && len(names) > maxUnnamed:
		return nil, ferrule.Errorf(ferrule.Invalid, "%s has %d signals; name at most %d of them", in.Device, len(names), maxUnnamed).
			WithHint("they are %s", some(names))
	case len(in.Signals) == 0:
		return names, nil
	case len(in.Signals) > maxUnnamed:
		return nil, ferrule.Errorf(ferrule.Invalid, "%d signals are named; at most %d are possible", len(in.Signals), maxUnnamed)
	}
	for i, name := range in.Signals {
		if !slices.Contains(names, name) {
			return nil, noSignal(in.Device, name, known)
		}
		if slices.Contains(in.Signals[:i], name) {
			return nil, ferrule.Errorf(ferrule.Invalid, "%s is named twice", name)
		}
	}
	return in.Signals, nil
}

// noSignal tells that a device has no signal of a name, or none at all.
func noSignal(device, name string, known []ferrule.Latest) error {
	if len(known) == 0 {
		return ferrule.Errorf(ferrule.NotFound, "nothing was measured of %s", device).
			WithHint("a device is measured if it says what it samples, or if an overlay names a tool to be polled")
	}
	return ferrule.Errorf(ferrule.NotFound, "%s has no signal %q", device, ferrule.Clean(name, ferrule.MaxSignal)).WithHint("it has %s", some(namesOf(known)))
}

func namesOf(known []ferrule.Latest) (names []string) {
	for _, l := range known {
		names = append(names, l.Signal)
	}
	return names
}

// some is the first of many names.
func some(names []string) string {
	const most = 30
	if n := len(names); n > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

// visible tells why a caller may not know of a device.
func visible(call *ferrule.Call, fleet Finder, id string) error {
	dev, _, ok := fleet.Lookup(id)
	if !ok || !call.Principal.CanSee(dev) || id == ferrule.GatewayID {
		return ferrule.UnknownDevice(id)
	}
	return nil
}

// moment is a time, or how long ago: 90s, 2h, 7d.
func moment(name, text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if back, err := time.ParseDuration(text); err == nil && back >= 0 {
		return now.Add(-back), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return now, ferrule.Errorf(ferrule.Invalid, "%s: want 2h, 7d or 2026-01-31T15:04:05Z, got %q", name, ferrule.Clean(text, 64))
}
