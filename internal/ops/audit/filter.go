package audit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Query selects records, in the words of the command line. An empty field selects all.
type Query struct {
	Device, Tool, Principal, Outcome string
	Since, Until                     string // understood by ParseTime
	Node                             string
	Local                            bool // only the journal of the data directory
	Follow                           bool // go on with new records
	All                              bool // include calls that only looked, and checkpoints
	Records                          bool // show intent and outcome as separate records
	Last                             int  // only the newest; 0 is all
}

// Filter is a checked Query.
type Filter struct {
	Query
	from, to time.Time // zero is unlimited
}

// The outcomes besides codes and phases.
const (
	outcomeOK    = "ok"
	outcomeError = "error"
	outcomeMaybe = "may-have-run"
)

// Outcomes lists the values of Query.Outcome.
var Outcomes = []string{
	outcomeOK, outcomeError, outcomeMaybe, string(ferrule.Intent), string(ferrule.Asked), string(ferrule.ApprovalStep), string(ferrule.Access), string(ferrule.Registration), string(ferrule.Stopped), string(ferrule.Resumed), string(ferrule.JournalGap),
	string(ferrule.NotFound), string(ferrule.Denied), string(ferrule.Invalid), string(ferrule.Limited),
	string(ferrule.Pending), string(ferrule.Offline), string(ferrule.Busy), string(ferrule.Refused),
	string(ferrule.Failed), string(ferrule.Unanswered), string(ferrule.Cancelled), string(ferrule.Internal),
}

// Filter checks a query.
func (q Query) Filter(now time.Time) (f Filter, err error) {
	f.Query = q
	switch {
	case q.Last < 0:
		return f, fmt.Errorf("--last must be 0 or more, got %d", q.Last)
	case q.Local && q.Node != "":
		return f, errors.New("--local and --node exclude each other")
	case q.Follow && q.Until != "":
		return f, errors.New("--follow and --until exclude each other")
	case q.Outcome != "" && !slices.Contains(Outcomes, q.Outcome):
		return f, fmt.Errorf("--outcome must be one of %s; got %q", strings.Join(Outcomes, ", "), q.Outcome)
	}
	if q.Since != "" {
		if f.from, err = ParseTime(q.Since, now); err != nil {
			return f, fmt.Errorf("--since: %w", err)
		}
	}
	if q.Until != "" {
		if f.to, err = ParseTime(q.Until, now); err != nil {
			return f, fmt.Errorf("--until: %w", err)
		}
	}
	if !f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to) {
		return f, errors.New("--since must be before --until")
	}
	return f, nil
}

// layouts are the formats of ParseTime. Without a zone, a time is local.
var layouts = []string{
	time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano,
}

// ParseTime parses a duration back from now (90m, 7d), a date, or a date and time.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if back, err := ferrule.ParseDuration(text); err == nil && back >= 0 {
		return now.Add(-back), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(`must be 2h, 7d, 2026-01-31, "2026-01-31 15:04" or 2026-01-31T15:04:05Z; got %q`, text)
}

// Matches reports whether a record is selected. Calls that looked at something and succeeded
// are left out, unless they are asked for: there are many, and they changed nothing.
func (f Filter) Matches(r Record) bool {
	switch {
	case f.Device != "" && r.Device != f.Device,
		f.Tool != "" && r.Tool != f.Tool,
		f.Principal != "" && !isCaller(r.Principal, f.Principal) && !isCaller(r.Principal.Account(), f.Principal),
		!f.from.IsZero() && r.Began.Before(f.from),
		!f.to.IsZero() && !r.Began.Before(f.to),
		!f.matchesOutcome(r.Entry):
		return false
	}
	if r.Phase == ferrule.JournalCheckpoint {
		return f.All
	}
	return !r.isLook() || f.All || f.Tool != ""
}

// isCaller reports whether p is called name, with or without its role.
func isCaller(p ferrule.Principal, name string) bool { return p.Name == name || p.String() == name }

func (f Filter) matchesOutcome(e ferrule.Entry) bool {
	switch f.Outcome {
	case "":
		return true
	case outcomeOK:
		return e.Phase == ferrule.Outcome && e.Code == ""
	case outcomeError:
		return e.Code != ""
	case outcomeMaybe:
		return e.MayHaveRun
	}
	return f.Outcome == string(e.Phase) || f.Outcome == string(e.Code)
}
