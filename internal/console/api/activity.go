package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// Calls has the calls of all nodes, as the journals have them: an *audit.CallLog.
type Calls interface {
	// Recent returns the newest calls that match, from memory.
	Recent(limit int, match func(*audit.Call) bool) []audit.Call
	// Decisions returns the newest answers to requests for approval that match.
	Decisions(limit int, match func(*audit.Call) bool) []audit.Call
	// Newest returns the number of the newest record of this node.
	Newest() (chain string, seq uint64)
	// Page returns calls before a cursor.
	Page(ctx context.Context, q audit.PageQuery) (audit.Page, error)
}

// activityOperations returns the operations on the journal.
func (a *API) activityOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/activity", "List calls, the newest first.", ferrule.ScopeRead, a.Activity),
		operation(http.MethodGet, "/activity/{call}", "Return a call with its steps.", ferrule.ScopeRead, a.ActivityCall),
		operation(http.MethodGet, "/journal/verification", "Return whether the journals are intact, as of the last verification.", ferrule.ScopeRead, a.Verification),
		operation(http.MethodPost, "/journal/verification", "Start a verification of the journals of all nodes.", ferrule.ScopeAdmin, a.Verify),
	}
}

// ActivityInput selects calls. An empty field selects all.
type ActivityInput struct {
	Device  string `json:"device,omitempty" jsonschema:"ID of a device"`
	Caller  string `json:"caller,omitempty" jsonschema:"who called, as agent:NAME or person:NAME or a NAME, or the name of the program"`
	Outcome string `json:"outcome,omitempty" jsonschema:"done, may_have_run, not_sent, refused, waiting, or a code such as offline"`
	Tool    string `json:"tool,omitempty" jsonschema:"name of a tool"`
	Effect  string `json:"effect,omitempty" jsonschema:"reads, changes or endangers, as the device declares the tool today"`
	Since   string `json:"since,omitempty" jsonschema:"2h, 7d, a date, or a date and time"`
	Until   string `json:"until,omitempty" jsonschema:"as since"`
	Text    string `json:"text,omitempty" jsonschema:"part of the device, tool, caller, arguments or message"`
	Before  string `json:"before,omitempty" jsonschema:"next of the page before"`
	Limit   int    `json:"limit,omitempty" jsonschema:"at most 200; 50 if it is left out"`
}

// ActivityOutput is a page of calls.
type ActivityOutput struct {
	Calls []Activity `json:"calls" jsonschema:"the newest first"`
	// Next is the key of the next page.
	Next string `json:"next,omitempty" jsonschema:"before of the next page; left out after the last"`
	// Reached is set if the search ended before the page was full.
	Reached time.Time `json:"reached,omitzero" jsonschema:"how far back was searched, if the page is not full"`
}

// Activity is a call, or another record of the journal. Texts are bounded.
type Activity struct {
	ID string `json:"id,omitempty" jsonschema:"ID of the call"`
	// At finds the call again, together with its ID.
	At   string    `json:"at" jsonschema:"where the journal has it"`
	Node string    `json:"node,omitempty"`
	Time time.Time `json:"time" jsonschema:"when the call was made"`
	// Ended is the time of the newest record of the call.
	Ended time.Time `json:"ended" jsonschema:"when the call ended, or when its last step was"`
	// Phase is outcome; intent or approval if there is no outcome yet; or that of another
	// record.
	Phase      ferrule.Phase     `json:"phase"`
	Caller     string            `json:"caller"`
	Auth       ferrule.Auth      `json:"auth,omitempty"`
	User       string            `json:"user,omitempty"`
	Via        string            `json:"via,omitempty"`
	From       string            `json:"from,omitempty"`
	Client     ferrule.Client    `json:"client,omitzero"`
	Device     string            `json:"device,omitempty"`
	Kind       ferrule.Kind      `json:"kind,omitempty"`
	Operation  ferrule.Operation `json:"operation,omitempty"`
	Tool       string            `json:"tool,omitempty"`
	Effect     ferrule.Effect    `json:"effect,omitempty" jsonschema:"of the tool today"`
	Args       json.RawMessage   `json:"args,omitempty"`
	Hidden     bool              `json:"hidden,omitempty" jsonschema:"whether arguments are left out, because only admins see those of others"`
	Verdict    ferrule.Ruling    `json:"verdict,omitempty"`
	Rule       string            `json:"rule,omitempty"`
	Code       ferrule.Code      `json:"code,omitempty"`
	Message    string            `json:"message,omitempty"`
	MayHaveRun bool              `json:"may_have_run"`
	Took       ferrule.Duration  `json:"took,omitempty"`
	Record     uint64            `json:"record"`
	Chain      string            `json:"chain,omitempty"`
	Hash       string            `json:"hash"`
	Steps      []ActivityStep    `json:"steps,omitempty" jsonschema:"other records of the call, the oldest first"`
}

// ActivityStep is a step of a call before its outcome.
type ActivityStep struct {
	Time    time.Time     `json:"time"`
	Phase   ferrule.Phase `json:"phase"`
	Message string        `json:"message,omitempty"`
	Record  uint64        `json:"record"`
}

// Open reports whether the call has no outcome yet, or will never have one.
func (c *Activity) Open() bool { return c.Phase == ferrule.Intent || c.Phase == ferrule.ApprovalStep }

// IsCall reports whether this is a call, and not another record.
func (c *Activity) IsCall() bool { return c.Phase == ferrule.Outcome || c.Open() }

// Limits of the texts of a call.
const (
	maxCalls     = 200
	defaultCalls = 50
	maxArgs      = 16 << 10
)

// RecentCalls returns the newest calls of a device that a person may see, or of all devices,
// from memory. The newest is first.
func (a *API) RecentCalls(who ferrule.Principal, device string, limit int) []Activity {
	if a.parts.Calls == nil {
		return nil
	}
	seen := a.seenBy(who)
	found := a.parts.Calls.Recent(min(limit, maxCalls), func(c *audit.Call) bool {
		isCall := c.Phase == ferrule.Outcome || c.Open()
		return isCall && (device == "" && !seen.isNoise(c) || c.Device == device && device != "") && seen.shows(c)
	})
	return seen.all(found)
}

// RecentActivity returns the newest calls that are selected and that a person may see, from
// memory. The newest is first.
func (a *API) RecentActivity(who ferrule.Principal, in ActivityInput) []Activity {
	if a.parts.Calls == nil {
		return nil
	}
	q, err := in.query(time.Now())
	if err != nil {
		return nil
	}
	seen := a.seenBy(who)
	return seen.all(a.parts.Calls.Recent(q.Limit, func(c *audit.Call) bool {
		return (q.Since.IsZero() || !c.Record.Time.Before(q.Since)) && in.matches(c, seen) && seen.shows(c)
	}))
}

// RecentDecisions returns the newest answers to calls that waited for a person, and requests
// that ended without one: the Message says which. The newest is first.
func (a *API) RecentDecisions(who ferrule.Principal, limit int) []Activity {
	if a.parts.Calls == nil || !who.Scopes.Has(ferrule.ScopeEndanger) {
		return nil
	}
	seen := a.seenBy(who)
	return seen.all(a.parts.Calls.Decisions(min(limit, maxCalls), seen.shows))
}

// Activity returns a page of the calls that a person may see.
func (a *API) Activity(ctx context.Context, who ferrule.Principal, in ActivityInput) (out ActivityOutput, err error) {
	q, err := in.query(time.Now())
	if err != nil {
		return out, ferrule.Errorf(ferrule.Invalid, "%w", err)
	}
	seen := a.seenBy(who)
	q.Match = func(c *audit.Call) bool { return in.matches(c, seen) && seen.shows(c) }
	p, err := a.parts.Calls.Page(ctx, q)
	if err != nil {
		return out, ferrule.Errorf(ferrule.Internal, "the journal cannot be read: %w", err).WithHint("run `ferrule audit verify`")
	}
	out.Calls = seen.all(p.Calls)
	if p.More {
		out.Next = p.Next.String()
	}
	if p.More && len(p.Calls) < q.Limit {
		out.Reached = p.Reached
	}
	return out, nil
}

// ActivityCallInput names a call.
type ActivityCallInput struct {
	Call string `json:"call" jsonschema:"ID of the call"`
	At   string `json:"at,omitempty" jsonschema:"where the journal has it; without it, only newer calls are found"`
}

// ActivityCall returns a call.
func (a *API) ActivityCall(ctx context.Context, who ferrule.Principal, in ActivityCallInput) (Activity, error) {
	at, err := audit.ParseCursor(in.At)
	if err != nil {
		return Activity{}, ferrule.Errorf(ferrule.Invalid, "at: %w", err)
	}
	seen := a.seenBy(who)
	match := func(c *audit.Call) bool {
		return in.Call != "" && ferrule.Clean(c.Record.Call, ferrule.MaxWord) == in.Call && seen.shows(c)
	}
	found := a.parts.Calls.Recent(1, match)
	if len(found) == 0 || len(found[0].Steps) == 0 { // its steps may be older
		p, err := a.parts.Calls.Page(ctx, audit.PageQuery{Before: at.After(), Limit: 2, Match: match})
		if err == nil && len(p.Calls) > 0 {
			found = p.Calls
		}
	}
	if len(found) == 0 {
		return Activity{}, ferrule.Errorf(ferrule.NotFound, "there is no call %s that you may see", ferrule.Clean(in.Call, ferrule.MaxWord)).WithHint("look for it on the page Activity")
	}
	return seen.one(&found[0]), nil
}

// query returns the query of an input.
func (in ActivityInput) query(now time.Time) (q audit.PageQuery, err error) {
	if q.Limit = in.Limit; q.Limit <= 0 {
		q.Limit = defaultCalls
	}
	q.Limit = min(q.Limit, maxCalls)
	if q.Before, err = audit.ParseCursor(in.Before); err != nil {
		return q, err
	}
	if in.Since != "" {
		if q.Since, err = audit.ParseTime(in.Since, now); err != nil {
			return q, err
		}
	}
	if in.Until != "" {
		q.Until, err = audit.ParseTime(in.Until, now)
	}
	return q, err
}

// matches reports whether a call is selected.
func (in ActivityInput) matches(c *audit.Call, seen *seen) bool {
	switch {
	case in.Device != "" && c.Device != in.Device,
		in.Tool != "" && c.Tool != in.Tool,
		in.Caller != "" && in.Caller != c.Principal.Name && in.Caller != c.Principal.String() && in.Caller != c.Client.Name,
		in.Outcome != "" && !outcomeIs(in.Outcome, c),
		in.Effect != "" && seen.effect(&c.Record) != ferrule.Effect(in.Effect),
		in.Device == "" && in.Tool == "" && in.Text == "" && seen.isNoise(c):
		return false
	}
	return in.Text == "" || seen.contains(c, strings.ToLower(in.Text))
}

// outcomeIs reports whether a call has an outcome of a class, or a code.
func outcomeIs(class string, c *audit.Call) bool {
	switch class {
	case "done":
		return c.Phase == ferrule.Outcome && c.Code == ""
	case "may_have_run":
		return c.MayHaveRun
	case "refused":
		return c.Code == ferrule.Refused
	case "waiting":
		return c.Phase == ferrule.ApprovalStep
	case "not_sent":
		return c.Phase == ferrule.Outcome && c.Code != "" && !c.MayHaveRun && c.Code != ferrule.Refused
	}
	return class == string(c.Code) || class == string(c.Phase)
}
