package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a condition.
const (
	maxFor    = 7 * 24 * time.Hour
	maxParams = 8 // members of Params
	maxLabels = 4 // labels of a selector
)

// fieldError is a problem with one field of a condition.
type fieldError struct {
	field string // as in JSON
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// CheckAt is Check for a condition that is a field of something else: errors have the path of
// what is wrong, such as when.for.
func (c *Condition) CheckAt(path string) error {
	err := c.Check()
	if field := (*fieldError)(nil); errors.As(err, &field) {
		return &fieldError{path + "." + field.field, field.err}
	} else if err != nil {
		return &fieldError{path, err}
	}
	return nil
}

// Check returns an error if a condition cannot be evaluated.
func (c *Condition) Check() error {
	if _, err := ParseSelector(c.Device); err != nil {
		return &fieldError{"device", err}
	}
	if (c.Signal == "") == (c.Event == "") {
		return errors.New("a condition must have signal or event, and not both")
	}
	if c.Event != "" {
		return c.checkEvent()
	}
	if err := ferrule.CheckSignal(c.Signal); err != nil {
		return &fieldError{"signal", err}
	}
	if len(c.Params) > 0 {
		return &fieldError{"params", errors.New("only for events")}
	}
	return c.checkValues()
}

func (c *Condition) checkValues() error {
	tests := 0
	for name, v := range map[string]*float64{"above": c.Above, "below": c.Below, "equals": c.Equals} {
		if v == nil {
			continue
		}
		if tests++; !finite(*v) {
			return &fieldError{name, fmt.Errorf("must be a number, got %v", *v)}
		}
	}
	for name, b := range map[string]*Band{"inside": c.Inside, "outside": c.Outside} {
		if b == nil {
			continue
		}
		if tests++; !finite(b.From) || !finite(b.To) || b.From >= b.To {
			return &fieldError{name, fmt.Errorf("from must be less than to, got %v and %v", b.From, b.To)}
		}
	}
	if c.Changes {
		tests++
	}
	switch {
	case tests != 1:
		return fmt.Errorf("a condition on signal %s must have exactly one of above, below, equals, inside, outside and changes", c.Signal)
	case c.For < 0 || time.Duration(c.For) > maxFor:
		return &fieldError{"for", fmt.Errorf("must be from 0s to %v, got %v", maxFor, c.For)}
	case c.Changes && c.For != 0:
		return &fieldError{"for", errors.New("cannot be combined with changes; use equals, inside or outside")}
	case !finite(c.Hysteresis) || c.Hysteresis < 0:
		return &fieldError{"hysteresis", fmt.Errorf("must be 0 or more, got %v", c.Hysteresis)}
	case c.Outside != nil && c.Outside.From+c.Hysteresis > c.Outside.To-c.Hysteresis:
		return &fieldError{"hysteresis", fmt.Errorf("must be at most half of the band of outside, got %v", c.Hysteresis)}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// checkEvent checks a condition about an event.
func (c *Condition) checkEvent() error {
	switch {
	case c.Above != nil || c.Below != nil || c.Equals != nil || c.Inside != nil || c.Outside != nil || c.Changes:
		return &fieldError{"event", errors.New("above, below, equals, inside, outside and changes are for signals")}
	case c.For != 0 || c.Hysteresis != 0:
		return &fieldError{"event", errors.New("for and hysteresis are for signals")}
	case ferrule.Clean(c.Event, ferrule.MaxMethod) != c.Event:
		return &fieldError{"event", fmt.Errorf("must be an event type such as gone, or the method of a notification, in at most %d printable characters", ferrule.MaxMethod)}
	case ferrule.EventType(c.Event) == ferrule.ApprovalEvent:
		return &fieldError{"event", errors.New("approvals are not events of a device; see gateway__approval_status")}
	}
	_, err := c.params()
	return err
}

// params returns Params as they are compared: numbers are json.Number.
func (c *Condition) params() (map[string]any, error) {
	if len(c.Params) == 0 {
		return nil, nil
	}
	if n := len(c.Params); n > maxParams {
		return nil, &fieldError{"params", fmt.Errorf("%d members; limit is %d", n, maxParams)}
	}
	for name, v := range c.Params {
		switch v.(type) {
		case nil, string, bool, float64, json.Number:
		default:
			return nil, &fieldError{"params", fmt.Errorf("%s must be a text, a number, a boolean or null", ferrule.Clean(name, ferrule.MaxWord))}
		}
	}
	text, err := json.Marshal(c.Params)
	if err != nil {
		return nil, &fieldError{"params", err}
	}
	params, _ := object(text)
	return params, nil
}

// object decodes a JSON object. Numbers are json.Number.
func object(data []byte) (members map[string]any, ok bool) {
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	err := in.Decode(&members)
	return members, err == nil && members != nil
}

// MatchesEvent reports whether an event meets a condition about events.
func (c *Condition) MatchesEvent(e *ferrule.Event) bool {
	params, err := c.params()
	return err == nil && c.matchesEvent(e, params)
}

// matchesEvent is MatchesEvent with the result of params.
func (c *Condition) matchesEvent(e *ferrule.Event, params map[string]any) bool {
	if name := ferrule.EventType(c.Event); name.Known() {
		if name != e.Type {
			return false
		}
	} else if e.Type != ferrule.Notified || c.Event != e.Method {
		return false
	}
	if len(params) == 0 {
		return true
	}
	said, ok := object(e.Params)
	if !ok {
		return false
	}
	for name, want := range params {
		if got, given := said[name]; !given || !ferrule.SameJSON(got, want) {
			return false
		}
	}
	return true
}

// Selector selects devices: one by its ID or an earlier one, several by a pattern such as
// kitchen-*, or by labels such as room=kitchen,floor=1, which all must match. A value may be
// a pattern too. "*" selects all devices.
type Selector struct {
	id      string // of a single device
	pattern string
	labels  []label
}

type label struct{ key, value string }

// ParseSelector parses a selector.
func ParseSelector(text string) (s Selector, err error) {
	const want = "must be the ID of a device, a pattern such as kitchen-*, or labels such as room=kitchen"
	switch {
	case text == "" || len(text) > 256:
		return s, errors.New(want)
	case text == ferrule.GatewayID:
		return s, fmt.Errorf("%s is not a device", text)
	case strings.Contains(text, "="):
		for part := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(part, "=")
			if err := ferrule.CheckLabel(key, value); err != nil {
				return s, err
			}
			if _, err := path.Match(value, ""); err != nil {
				return s, fmt.Errorf("label %s: invalid pattern", key)
			}
			s.labels = append(s.labels, label{key, value})
		}
		if len(s.labels) > maxLabels {
			return s, fmt.Errorf("%d labels; limit is %d", len(s.labels), maxLabels)
		}
	case strings.ContainsAny(text, `*?[\`):
		if _, err := ferrule.CheckDevicePatterns([]string{text}); err != nil {
			return s, err
		}
		s.pattern = text
	default:
		if ferrule.CheckID(text) != nil {
			return s, fmt.Errorf("%s, got %q", want, ferrule.Clean(text, ferrule.MaxWord))
		}
		s.id = text
	}
	return s, nil
}

// ID returns the ID if the selector selects a single device; else it is empty.
func (s *Selector) ID() string { return s.id }

// Matches reports whether a device is selected. Labels that a device gives itself do not
// count.
func (s *Selector) Matches(dev *ferrule.Device) bool {
	switch {
	case dev.ID == ferrule.GatewayID:
		return false
	case s.id != "":
		if s.id == dev.ID {
			return true
		}
		for _, alias := range dev.Aliases {
			if s.id == alias {
				return true
			}
		}
		return false
	case s.pattern != "":
		ok, err := path.Match(s.pattern, dev.ID)
		return ok && err == nil
	}
	for _, l := range s.labels {
		value, has := dev.Labels[l.key]
		if ok, err := path.Match(l.value, value); !has || !ok || err != nil {
			return false
		}
	}
	return true
}
