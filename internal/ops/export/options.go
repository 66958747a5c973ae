package export

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// Options are the flags of `ferrule history`.
type Options struct {
	Since, Until, Resolution string
	CSV, JSON                bool
	PNG, Size                string // of a chart: its file, and its size in pixels
}

// Resolutions are the values of --resolution.
var Resolutions = []string{string(ferrule.Raw), string(ferrule.Minutes), string(ferrule.Hours)}

// Check returns the query for the gateway.
func (f Options) Check(args []string, now time.Time) (in builtin.HistoryInput, err error) {
	in = builtin.HistoryInput{RangeInput: builtin.RangeInput{Device: args[0], Signals: args[1:]}, Resolution: f.Resolution}
	from, err := audit.ParseTime(f.Since, now)
	if err != nil {
		return in, fmt.Errorf("--since: %w", err)
	}
	to := now
	if f.Until != "" {
		if to, err = audit.ParseTime(f.Until, now); err != nil {
			return in, fmt.Errorf("--until: %w", err)
		}
	}
	formats := 0
	for _, set := range []bool{f.JSON, f.CSV, f.PNG != ""} {
		if set {
			formats++
		}
	}
	switch {
	case !from.Before(to):
		return in, errors.New("--since must be before --until")
	case formats > 1:
		return in, errors.New("--csv, --json and --png exclude each other")
	case f.Resolution != "" && !slices.Contains(Resolutions, f.Resolution):
		return in, fmt.Errorf("--resolution must be raw, minute or hour; got %q", f.Resolution)
	case f.Resolution != "" && !f.JSON && !f.CSV:
		return in, errors.New("--resolution needs --csv or --json")
	case f.Size != "" && f.PNG == "":
		return in, errors.New("--size needs --png")
	}
	if _, _, err := f.Pixels(); err != nil {
		return in, err
	}
	in.Since, in.Until = from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano)
	return in, nil
}

// Pixels returns the size of the chart; 0 for the default.
func (f Options) Pixels() (width, height int, err error) {
	if f.Size == "" {
		return 0, 0, nil
	}
	if n, err := fmt.Sscanf(f.Size+"\n", "%dx%d\n", &width, &height); n != 2 || err != nil || width < 1 || height < 1 {
		return 0, 0, fmt.Errorf("--size must be WIDTHxHEIGHT such as 1200x500, got %q", f.Size)
	}
	return width, height, nil
}

// Select returns the named signals, or all if none is named.
func Select(latest builtin.LatestOutput, names []string) (signals []builtin.LatestSignal, err error) {
	if len(names) == 0 {
		return latest.Signals, nil
	}
	for _, name := range names {
		at := slices.IndexFunc(latest.Signals, func(s builtin.LatestSignal) bool { return s.Name == name })
		if at < 0 {
			var known []string
			for _, s := range latest.Signals {
				known = append(known, s.Name)
			}
			return nil, ferrule.Errorf(ferrule.NotFound, "%s has no signal %q%s", latest.Device, name, ferrule.DidYouMean(name, known)).
				WithHint("run `ferrule history %s` to list its signals", latest.Device)
		}
		signals = append(signals, latest.Signals[at])
	}
	return signals, nil
}
