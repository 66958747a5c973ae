package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// asked is what is asked of the journals, as it stands on the command line.
type asked struct {
	device, tool, principal, outcome string
	since, until                     string
	node                             string
	local, follow, all               bool
	last                             int
}

// filter tells which records are meant.
type filter struct {
	asked
	from, to time.Time // zero does not bound
}

// The outcomes that are no codes.
const (
	outcomeOK    = "ok"
	outcomeError = "error"
	outcomeMaybe = "may-have-run"
)

// outcomes is what may be asked for.
var outcomes = []string{
	outcomeOK, outcomeError, outcomeMaybe, string(ferrule.Intent), string(ferrule.JournalGap),
	string(ferrule.NotFound), string(ferrule.Denied), string(ferrule.Invalid), string(ferrule.Limited),
	string(ferrule.Pending), string(ferrule.Offline), string(ferrule.Busy), string(ferrule.Refused),
	string(ferrule.Failed), string(ferrule.Unanswered), string(ferrule.Cancelled), string(ferrule.Internal),
}

// filter checks what is asked for.
func (q asked) filter(now time.Time) (f filter, err error) {
	f.asked = q
	switch {
	case q.last < 0:
		return f, fmt.Errorf("--last: want 0 or more, got %d", q.last)
	case q.local && q.node != "":
		return f, errors.New("--local is the journal of the data directory; leave out --node, or --local")
	case q.follow && q.until != "":
		return f, errors.New("--follow goes on with what comes, which --until leaves out; leave out one of them")
	case q.outcome != "" && !slices.Contains(outcomes, q.outcome):
		return f, fmt.Errorf("--outcome: want one of %s; got %q", strings.Join(outcomes, ", "), q.outcome)
	}
	if q.since != "" {
		if f.from, err = parseTime(q.since, now); err != nil {
			return f, fmt.Errorf("--since: %w", err)
		}
	}
	if q.until != "" {
		if f.to, err = parseTime(q.until, now); err != nil {
			return f, fmt.Errorf("--until: %w", err)
		}
	}
	if !f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to) {
		return f, errors.New("--since is not before --until: nothing lies between them")
	}
	return f, nil
}

// layouts are the times that are understood, where no zone is named of this place.
var layouts = []string{
	time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano,
}

// parseTime understands a duration back from now, a date, and a date and time.
func parseTime(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if back, err := time.ParseDuration(text); err == nil && back >= 0 {
		return now.Add(-back), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(`want 2h, 7d, 2026-01-31, "2026-01-31 15:04" or 2026-01-31T15:04:05Z; got %q`, text)
}

// looks are the gateway's tools that only tell what there is. Commands call them
// all the time.
var looks = map[string]bool{"list_devices": true, "describe_device": true, "device_state": true, "status": true, "latest": true}

// has tells whether a record is meant.
func (f filter) has(e ferrule.Entry) bool {
	switch {
	case f.device != "" && e.Device != f.device,
		f.tool != "" && e.Tool != f.tool,
		f.principal != "" && e.Principal.Name != f.principal && e.Principal.String() != f.principal,
		!f.from.IsZero() && e.Time.Before(f.from),
		!f.to.IsZero() && !e.Time.Before(f.to),
		!f.hasOutcome(e):
		return false
	}
	looked := looks[e.Tool] && e.Code == "" && e.Device == ferrule.GatewayID
	return !looked || f.all || f.device != "" || f.tool != ""
}

func (f filter) hasOutcome(e ferrule.Entry) bool {
	switch f.outcome {
	case "":
		return true
	case outcomeOK:
		return e.Phase == ferrule.Outcome && e.Code == ""
	case outcomeError:
		return e.Code != ""
	case outcomeMaybe:
		return e.MayHaveRun
	}
	return f.outcome == string(e.Phase) || f.outcome == string(e.Code)
}
