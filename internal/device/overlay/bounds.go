package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Limits are physical limits of a tool. What is not set stays as it is.
type Limits struct {
	About string `json:"about,omitempty"`
	// Rate is a [ferrule.Rate] such as 6/m.
	Rate     string                   `json:"rate,omitempty"`
	Cooldown ferrule.Duration         `json:"cooldown,omitempty"`
	Range    map[string]ferrule.Range `json:"range,omitempty"`
	OnTime   *ferrule.OnTime          `json:"on_time,omitempty"`
	// By lists the arguments that tell one output from another. Default: arguments that
	// are pins, and those that the lease takes over.
	By *[]string `json:"by,omitempty"`
}

// maxBound is the longest cooldown, and the longest stretch of an on-time.
const maxBound = ferrule.Duration(24 * time.Hour)

// maxBy limits the arguments that tell outputs apart.
const maxBy = 8

func (l *Limits) check() error {
	if l == nil {
		return nil
	}
	if l.Rate != "" {
		if err := new(ferrule.Rate).UnmarshalText([]byte(l.Rate)); err != nil {
			return fmt.Errorf("limits.rate: %w", err)
		}
	}
	if l.Cooldown < 0 || l.Cooldown > maxBound {
		return fmt.Errorf("limits.cooldown: must be from 0s to 24h, got %v", l.Cooldown)
	}
	for name, r := range l.Range {
		if err := checkRange(r); err != nil {
			return fmt.Errorf("limits.range.%s.%w", name, err)
		}
	}
	if o := l.OnTime; o != nil {
		if o.Per < ferrule.Duration(time.Second) || o.Per > maxBound {
			return fmt.Errorf("limits.on_time.per: must be from 1s to 24h, got %v", o.Per)
		}
		if o.Max <= 0 || o.Max >= o.Per {
			return fmt.Errorf("limits.on_time.max: must be greater than 0 and less than %v, got %v", o.Per, o.Max)
		}
	}
	if l.By != nil && (len(*l.By) > maxBy || slices.Contains(*l.By, "")) {
		return fmt.Errorf("limits.by: must be up to %d names of arguments", maxBy)
	}
	return nil
}

// checkRange returns an error that begins with a key of the range.
func checkRange(r ferrule.Range) error {
	for key, n := range map[string]json.Number{"min": r.Min, "max": r.Max, "step": r.Step, "start": r.Start} {
		if _, ok := ferrule.Exact(n); n != "" && !ok {
			return fmt.Errorf("%s: must be a number of up to 64 digits", key)
		}
	}
	less := func(a, b json.Number) bool {
		x, okX := ferrule.Exact(a)
		y, okY := ferrule.Exact(b)
		return okX && okY && x.Cmp(y) < 0
	}
	switch {
	case r.Min == "" && r.Max == "" && r.Step == "":
		return errors.New("min: must be set, or max or step")
	case less(r.Max, r.Min):
		return fmt.Errorf("max: must be at least min, %s, got %s", r.Min, r.Max)
	case r.Step != "" && !less("0", r.Step):
		return fmt.Errorf("step: must be greater than 0, got %s", r.Step)
	case r.Step != "" && r.Start == "":
		return errors.New("start: must be set with step: the value before the first call")
	case r.Step == "" && r.Start != "":
		return errors.New("start: has no meaning without step")
	case less(r.Start, r.Min) || less(r.Max, r.Start):
		return fmt.Errorf("start: must be from min to max, got %s", r.Start)
	}
	return nil
}

func checkLease(l *ferrule.Lease) error {
	if l == nil {
		return nil
	}
	if err := l.Check(); err != nil {
		return fmt.Errorf("lease.%w", err)
	}
	if l.Off != nil && len(l.Off) == 0 {
		return errors.New("lease.off: must have at least one argument")
	}
	for key, args := range map[string]map[string]any{"off": l.Off, "then.args": l.Then.Args} {
		if data, err := json.Marshal(args); err != nil || len(data) > maxArgs {
			return fmt.Errorf("lease.%s: has %d bytes; limit is %d", key, len(data), maxArgs)
		}
		if !exact(args) {
			return fmt.Errorf("lease.%s: has a number that is out of range", key)
		}
	}
	return nil
}

// exact reports whether all numbers in a value have an exact value.
func exact(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if !exact(e) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !exact(e) })
	case json.Number:
		_, ok := ferrule.Exact(v)
		return ok
	}
	return true
}

// applyBounds sets the limits and the lease of a tool.
func applyBounds(t *ferrule.Tool, patches []Tool) {
	pins := make(map[string]bool)
	for _, p := range patches {
		for arg := range p.Pins {
			pins[arg] = true
		}
		if p.Lease != nil {
			t.Lease = p.Lease
		}
	}
	for _, p := range patches {
		l := p.Limits
		if l == nil {
			continue
		}
		all := ferrule.Limits{}
		if t.Limits != nil {
			all = *t.Limits
		}
		var rate ferrule.Rate
		if l.Rate != "" && rate.UnmarshalText([]byte(l.Rate)) == nil {
			all.Rate = &rate
		}
		if l.Cooldown > 0 {
			all.Cooldown = l.Cooldown
		}
		if l.Range != nil {
			all.Range = l.Range
		}
		if l.OnTime != nil {
			all.OnTime = l.OnTime
		}
		if l.By != nil {
			all.By = append([]string{}, slices.Compact(slices.Sorted(slices.Values(*l.By)))...)
		}
		t.Limits = &all
	}
	if t.Limits != nil && t.Limits.By == nil {
		if t.Lease != nil {
			for _, arg := range t.Lease.Then.Taken() {
				pins[arg] = true
			}
		}
		t.Limits.By = append([]string{}, slices.Sorted(maps.Keys(pins))...)
	}
}

// checkBounds quarantines tools whose limits or leases cannot be kept on this device.
func checkBounds(m *ferrule.Manifest) {
	for again := true; again; {
		again = false // a lease may end with a tool that was just quarantined
		for i := range m.Tools {
			t := &m.Tools[i]
			if t.Quarantine == "" && (t.Limits != nil || t.Lease != nil) {
				t.Quarantine = unkept(t, m)
				again = again || t.Quarantine != ""
			}
		}
	}
}

// unkept returns why the limits or the lease of a tool cannot be kept, or "".
func unkept(t *ferrule.Tool, m *ferrule.Manifest) string {
	onTime := t.Limits != nil && t.Limits.OnTime != nil
	if t.Lease == nil {
		if onTime {
			return "its limits have an on_time, which needs a lease that switches it off"
		}
		return ""
	}
	then := t.Lease.Then
	undo := m.Tool(then.Tool)
	switch {
	case undo == nil:
		return fmt.Sprintf("its lease ends with the tool %q, which the device does not have", then.Tool)
	case undo.Quarantine != "":
		return fmt.Sprintf("its lease ends with the tool %q, which is in quarantine: %s", then.Tool, undo.Quarantine)
	case undo.UserOnly:
		return fmt.Sprintf("its lease ends with the tool %q, which only people may call", then.Tool)
	}
	taken := then.Taken()
	if onTime && slices.ContainsFunc(taken, func(arg string) bool { return !slices.Contains(t.Limits.By, arg) }) {
		return "limits.by must have all arguments that its lease takes over: " + strings.Join(taken, ", ")
	}
	if len(taken) > 0 || undo.Check == nil {
		return ""
	}
	args, err := then.For(nil)
	if err != nil {
		return err.Error()
	}
	if wrong := undo.Check(args); len(wrong) > 0 {
		return fmt.Sprintf("its lease ends with invalid arguments for %s: %s", then.Tool, strings.Join(wrong, "; "))
	}
	return ""
}
