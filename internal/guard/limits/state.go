package limits

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// state is what is known about an output. It is plain data, so that it survives a restart.
type state struct {
	// Calls are the ends of the last calls that may have run, for the rate.
	Calls []time.Time `json:"calls,omitempty"`
	// Ended is the end of the last one, and Running how many have not ended.
	Ended   time.Time `json:"ended,omitzero"`
	Running int       `json:"running,omitempty"`
	// Values are the values that limited arguments may have at the device.
	Values map[string]span `json:"values,omitempty"`
	// On is when the output was switched on; zero if it is off. Used are the stretches
	// in which it was on before.
	On   time.Time `json:"on,omitzero"`
	Used []stretch `json:"used,omitempty"`
	// Updated is when this state was made.
	Updated time.Time `json:"updated,omitzero"`
}

// span is a range of numbers.
type span struct {
	Low  json.Number `json:"low"`
	High json.Number `json:"high"`
}

type stretch struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// maxStretches limits the length of Used.
const maxStretches = 256

func (s *state) clone() state {
	c := *s
	c.Calls, c.Values, c.Used = slices.Clone(s.Calls), maps.Clone(s.Values), slices.Clone(s.Used)
	if c.Values == nil {
		c.Values = make(map[string]span)
	}
	return c
}

// restart makes a stored state usable. Calls that were running count as ended now. The
// clock may have been set back: nothing was in the future.
func (s *state) restart(now time.Time) {
	past := func(t time.Time) time.Time {
		if t.After(now) {
			return now
		}
		return t
	}
	for i, t := range s.Calls {
		s.Calls[i] = past(t)
	}
	for i, u := range s.Used {
		s.Used[i] = stretch{past(u.From), past(u.Until)}
	}
	s.Ended, s.On, s.Updated = past(s.Ended), past(s.On), past(s.Updated)
	for range min(max(s.Running, 0), ferrule.MaxRate) {
		s.Calls = append(s.Calls, now)
		s.Ended = now
	}
	slices.SortFunc(s.Calls, time.Time.Compare)
	s.Calls = s.Calls[max(0, len(s.Calls)-ferrule.MaxRate):]
	slices.SortFunc(s.Used, func(a, b stretch) int { return a.From.Compare(b.From) })
	s.Running = 0
	for name, v := range s.Values {
		low, okLow := ferrule.Exact(v.Low)
		high, okHigh := ferrule.Exact(v.High)
		if !okLow || !okHigh || low.Cmp(high) > 0 {
			delete(s.Values, name)
		}
	}
}

// exceeded is a limit that a call would exceed.
type exceeded struct {
	what string
	wait time.Duration // until it may be tried again; 0 if waiting does not help
	hint string        // then
}

// in returns an exceeded that ends at a time.
func in(wait time.Duration, format string, args ...any) *exceeded {
	return &exceeded{what: fmt.Sprintf(format, args...), wait: max(time.Second, (wait + time.Second - 1).Truncate(time.Second))}
}

// check returns the limit that a call would exceed, or the values of its limited
// arguments.
func (s *state) check(tool *ferrule.Tool, args map[string]any, off bool, now time.Time) (map[string]json.Number, *exceeded) {
	l := tool.Limits
	values, e := s.checkRanges(l.Range, args)
	if e == nil {
		e = s.checkTimes(l, now)
	}
	if on := l.OnTime; e == nil && on != nil && !off {
		if tool.Lease == nil { // overlays with that are refused
			e = &exceeded{what: "its time on is limited, and nothing switches it off", hint: "add a lease to its overlay"}
		} else if wait := s.onWait(on, now); wait > 0 {
			e = in(wait, "it may be on for %v in %v, and was", on.Max, on.Per)
		}
	}
	return values, e
}

// checkTimes checks the rate and the cooldown.
func (s *state) checkTimes(l *ferrule.Limits, now time.Time) *exceeded {
	if r := l.Rate; r != nil {
		per := time.Duration(r.Per)
		recent := s.recent(now.Add(-per))
		if surplus := len(recent) + s.Running - r.Calls; surplus >= 0 {
			wait := per // for a call that is still running
			if surplus < len(recent) {
				wait = recent[surplus].Add(per).Sub(now)
			}
			return in(wait, "it may be called %d times in %v, and was", r.Calls, r.Per)
		}
	}
	if pause := time.Duration(l.Cooldown); pause > 0 {
		if s.Running > 0 {
			return in(pause, "it is running, and may be called again %v after it has ended", pause)
		}
		if wait := s.Ended.Add(pause).Sub(now); wait > 0 {
			return in(wait, "it may be called again %v after its last call", pause)
		}
	}
	return nil
}

// recent returns the calls that ended after a time.
func (s *state) recent(since time.Time) []time.Time {
	i := slices.IndexFunc(s.Calls, func(t time.Time) bool { return t.After(since) })
	if i < 0 {
		return nil
	}
	return s.Calls[i:]
}

// checkRanges checks the values of limited arguments, and returns them.
func (s *state) checkRanges(ranges map[string]ferrule.Range, args map[string]any) (map[string]json.Number, *exceeded) {
	values := make(map[string]json.Number)
	var first *exceeded
	for name, r := range ranges {
		number, isNumber := args[name].(json.Number)
		v, ok := ferrule.Exact(number)
		if !isNumber || !ok {
			first = &exceeded{what: fmt.Sprintf("%s must be given as a number, because it is limited", name), hint: "give " + name}
			continue
		}
		if e := s.checkValue(name, v, r); e != nil {
			first = e
		}
		values[name] = number
	}
	return values, first
}

func (s *state) checkValue(name string, v *big.Rat, r ferrule.Range) *exceeded {
	low, high := bound(r.Min), bound(r.Max)
	if low != nil && v.Cmp(low) < 0 || high != nil && v.Cmp(high) > 0 {
		return &exceeded{what: fmt.Sprintf("%s is outside its limits", name), hint: fmt.Sprintf("use a value of %s", interval(name, low, high))}
	}
	step := bound(r.Step)
	if step == nil {
		return nil
	}
	last, known := s.Values[name]
	if !known {
		last = span{r.Start, r.Start}
	}
	from, to := new(big.Rat).Sub(bound(last.High), step), new(big.Rat).Add(bound(last.Low), step)
	if v.Cmp(from) >= 0 && v.Cmp(to) <= 0 {
		return nil
	}
	if low != nil && from.Cmp(low) < 0 {
		from = low
	}
	if high != nil && to.Cmp(high) > 0 {
		to = high
	}
	return &exceeded{
		what: fmt.Sprintf("%s may change by at most %s in one call, and was %s", name, r.Step, last),
		hint: fmt.Sprintf("use a value of %s, then go on from there", interval(name, from, to)),
	}
}

func (v span) String() string {
	if v.Low == v.High {
		return string(v.Low)
	}
	return fmt.Sprintf("%s or %s", v.Low, v.High)
}

// bound returns the value of a bound, or nil if there is none.
func bound(n json.Number) *big.Rat {
	v, ok := ferrule.Exact(n)
	if !ok {
		return nil
	}
	return v
}

func interval(name string, low, high *big.Rat) string {
	text := func(v *big.Rat) string {
		digits, _ := v.FloatPrec()
		return v.FloatString(digits)
	}
	switch {
	case low == nil:
		return fmt.Sprintf("%s up to %s", name, text(high))
	case high == nil:
		return fmt.Sprintf("%s from %s", name, text(low))
	}
	return fmt.Sprintf("%s from %s to %s", name, text(low), text(high))
}

// enter records that a call may run.
func (s *state) enter(tool *ferrule.Tool, values map[string]json.Number, off bool, now time.Time) {
	s.Running++
	s.Updated = now
	for name, v := range values {
		last, known := s.Values[name]
		if !known {
			start := tool.Limits.Range[name].Start
			if start == "" {
				start = v
			}
			last = span{start, start}
		}
		if bound(v).Cmp(bound(last.Low)) < 0 {
			last.Low = v
		}
		if bound(v).Cmp(bound(last.High)) > 0 {
			last.High = v
		}
		s.Values[name] = last
	}
	if on := tool.Limits.OnTime; on != nil {
		s.prune(now.Add(-time.Duration(on.Per)))
		if !off && s.On.IsZero() {
			s.On = now
		}
	}
}

// leave records the end of a call.
func (s *state) leave(l *ferrule.Limits, now time.Time, ran bool) {
	s.Running--
	s.Updated = now
	if !ran {
		return
	}
	s.Ended = now
	if l.Rate != nil {
		s.Calls = append(s.Calls, now)
		s.Calls = s.Calls[max(0, len(s.Calls)-l.Rate.Calls):]
	}
}

// switchOff records that the output is off from now on.
func (s *state) switchOff(now time.Time) {
	if s.On.IsZero() {
		return
	}
	s.Used = append(s.Used, stretch{s.On, now})
	s.On = time.Time{}
	if len(s.Used) > maxStretches { // the pause between the first two counts as on
		s.Used[1].From = s.Used[0].From
		s.Used = s.Used[1:]
	}
}

// prune drops stretches that ended before a time.
func (s *state) prune(before time.Time) {
	s.Used = slices.DeleteFunc(s.Used, func(u stretch) bool { return !u.Until.After(before) })
}

// used returns the stretches since a time in which the output was on, oldest first.
func (s *state) used(since, now time.Time) (all []stretch) {
	for _, u := range append(slices.Clone(s.Used), stretch{s.On, now}) {
		if u.From.Before(since) && !u.From.IsZero() {
			u.From = since
		}
		if !u.From.IsZero() && u.Until.After(u.From) {
			all = append(all, u)
		}
	}
	return all
}

// budget returns how long the output may be on from now.
func (s *state) budget(on *ferrule.OnTime, now time.Time) time.Duration {
	left := time.Duration(on.Max)
	for _, u := range s.used(now.Add(-time.Duration(on.Per)), now) {
		left -= u.Until.Sub(u.From)
	}
	return left
}

// minOn is the shortest time for which an output is switched on.
const minOn = time.Second

// onWait returns how long to wait until the output may be on for a moment; 0 if it may.
func (s *state) onWait(on *ferrule.OnTime, now time.Time) time.Duration {
	per := time.Duration(on.Per)
	surplus := min(minOn, time.Duration(on.Max)) - s.budget(on, now)
	if surplus <= 0 {
		return 0
	}
	for _, u := range s.used(now.Add(-per), now) {
		length := u.Until.Sub(u.From)
		if surplus <= length {
			return u.From.Add(surplus + per).Sub(now)
		}
		surplus -= length
	}
	return per
}
