package ferrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits are the physical limits of a tool, which all its callers share. The node that
// holds the device enforces them.
type Limits struct {
	Rate *Rate `json:"rate,omitempty"`
	// Cooldown is the shortest time between the end of a call and the next one.
	Cooldown Duration `json:"cooldown,omitempty"`
	// Range limits arguments, by name.
	Range  map[string]Range `json:"range,omitempty"`
	OnTime *OnTime          `json:"on_time,omitempty"`
	// By lists the arguments that tell one output from another, for example pin. Each
	// output has its own count. In an effective manifest it is never nil.
	By []string `json:"by,omitempty"`
}

// Rate allows a number of calls in any stretch of time of a length.
type Rate struct {
	Calls int
	Per   Duration
}

// MaxRate is the largest number of calls in a Rate.
const MaxRate = 1000

var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) error {
	wrong := fmt.Errorf("must be calls per time such as 6/m or 10/30s, up to %d calls per day, got %q", MaxRate, Clean(string(text), MaxWord))
	number, unit, _ := strings.Cut(string(text), "/")
	calls, err := strconv.Atoi(number)
	if err != nil || calls < 1 || calls > MaxRate {
		return wrong
	}
	per, known := rateUnits[unit]
	if !known {
		if per, err = ParseDuration(unit); err != nil || per <= 0 || per > 24*time.Hour {
			return wrong
		}
	}
	*r = Rate{calls, Duration(per)}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Rate) String() string {
	for unit, per := range rateUnits {
		if per == time.Duration(r.Per) {
			return fmt.Sprintf("%d/%s", r.Calls, unit)
		}
	}
	return fmt.Sprintf("%d/%v", r.Calls, r.Per)
}

// Range limits a number. Fields that are empty limit nothing.
type Range struct {
	Min json.Number `json:"min,omitempty"`
	Max json.Number `json:"max,omitempty"`
	// Step is the largest change against the value that was sent last, and Start the
	// value that counts as sent before the first call.
	Step  json.Number `json:"step,omitempty"`
	Start json.Number `json:"start,omitempty"`
}

// OnTime limits how long an output is on: at most Max in any stretch of Per. The lease of
// the tool says what switches it off.
type OnTime struct {
	Per Duration `json:"per"`
	Max Duration `json:"max"`
}

// Lease says how a call of a tool is undone: when For is over, when the caller's session
// is gone, or when the node that holds the device has ended.
type Lease struct {
	For Duration `json:"for"`
	// Off has arguments of a call that switches the output off, so that there is nothing
	// to undo. If it is nil, that is the call Then.
	Off  map[string]any `json:"off,omitempty"`
	Then Undo           `json:"then"`
}

// Undo is the call that ends a Lease. It may be made more than once.
type Undo struct {
	Tool string `json:"tool"`
	// Args may take over an argument of the leased call: "$pin" is its pin. A text that
	// begins with $$ stands for itself with one $.
	Args map[string]any `json:"args,omitempty"`
}

// Taken returns the arguments that the Undo takes over from the call, sorted.
func (u Undo) Taken() []string {
	all := make(map[string]bool)
	for _, v := range u.Args {
		if name, ok := taken(v); ok {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// taken returns the argument that a value of Undo.Args takes over, if it does.
func taken(v any) (name string, ok bool) {
	text, _ := v.(string)
	name, ok = strings.CutPrefix(text, "$")
	return name, ok && !strings.HasPrefix(name, "$")
}

// For returns the arguments that undo a call. It returns an error if the call lacks one.
func (u Undo) For(call map[string]any) (map[string]any, error) {
	args := make(map[string]any, len(u.Args))
	for key, v := range u.Args {
		if name, ok := taken(v); ok {
			value, given := call[name]
			if !given {
				return nil, fmt.Errorf("%s must be given: it is needed to undo the call later", name)
			}
			v = value
		} else if text, ok := v.(string); ok && strings.HasPrefix(text, "$$") {
			v = text[1:]
		}
		args[key] = v
	}
	return args, nil
}

// Check returns an error if the lease cannot be used.
func (l *Lease) Check() error {
	if l.For < Duration(time.Second) || l.For > Duration(24*time.Hour) {
		return fmt.Errorf("for: must be from 1s to 24h, got %v", l.For)
	}
	if l.Then.Tool == "" || l.Then.Tool != Clean(l.Then.Tool, MaxToolName) {
		return errors.New("then.tool: must be the tool that undoes the call")
	}
	if slices.Contains(l.Then.Taken(), "") {
		return errors.New("then.args: $ must be followed by the name of an argument; $$ is a plain $")
	}
	return nil
}

// SwitchesOff reports whether a call certainly switches off what an earlier call of the
// same tool switched on. Any other call counts as switching it on.
func (l *Lease) SwitchesOff(tool string, args map[string]any) bool {
	off := l.Off
	if off == nil {
		var err error
		if off, err = l.Then.For(args); err != nil || tool != l.Then.Tool {
			return false
		}
	}
	for name, want := range off {
		if got, given := args[name]; !given || !SameJSON(got, want) {
			return false
		}
	}
	return len(off) > 0 || len(args) == 0
}

// Exact returns the value of a JSON number, or false if it is out of range: an exponent
// of a billion takes only twelve bytes.
func Exact(n json.Number) (*big.Rat, bool) {
	const digits, exponent = 64, 400
	mantissa, exp, _ := strings.Cut(strings.ToLower(string(n)), "e")
	if power, err := strconv.Atoi(exp); exp != "" && (err != nil || power > exponent || power < -exponent) {
		return nil, false
	}
	if len(mantissa) > digits || strings.Trim(mantissa, "+-.0123456789") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

// SameJSON reports whether two decoded JSON values are the same. Numbers are compared by
// value: 1e2 is 100.
func SameJSON(a, b any) bool { return ExactJSON(a) == ExactJSON(b) }

// ExactJSON returns a text that two decoded JSON values share only if they are the same.
func ExactJSON(v any) string {
	var b strings.Builder
	writeExact(&b, v)
	return b.String()
}

func writeExact(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(strconv.Quote(name) + ":")
			writeExact(b, v[name])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for _, e := range v {
			writeExact(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case json.Number:
		if value, ok := Exact(v); ok {
			b.WriteString(value.RatString())
			return
		}
		b.WriteString(string(v))
	case string:
		b.WriteString(strconv.Quote(v))
	default: // null and booleans
		fmt.Fprint(b, v)
	}
}
