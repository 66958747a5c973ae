// Package check tests the firmware of one device: does it follow the protocol, and does it
// stay usable when a line is cut, a request is too long or a client comes back?
//
//	Target -> open -> steps (identity, list, errors, ...) -> Findings -> Report
//	                   |
//	                   +-- each finding has a stable ID; its Rule has the severity,
//	                       the paragraph of the protocol page and how to fix it
//
// A check talks to the device itself, without a gateway. It sends requests that read, and
// requests that a device must reject. It calls nothing else unless Options.Actuate is set.
// Everything from a device is hostile until it is bounded.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Options configure a check.
type Options struct {
	// Actuate permits calls that change the outputs of an MCP/U board.
	Actuate bool
	// Baud is the bit rate of a serial port; zero for the usual one.
	Baud int
	// OnStep is called when a step begins, with its number, and when it has ended. It may
	// be nil.
	OnStep func(number, count int, s Step)
}

// maxTime bounds a check. Steps that do not fit in are skipped.
const maxTime = 55 * time.Second

// State is the result of a step.
type State string

const (
	Running State = "running"
	Passed  State = "passed"
	Failed  State = "failed"  // there are findings
	Skipped State = "skipped" // Detail says why
)

// Step is a group of tests. Its JSON keys are stable.
type Step struct {
	Name   string  `json:"name"`
	State  State   `json:"state"`
	Detail string  `json:"detail,omitempty"`
	Took   float64 `json:"seconds"`
}

// Severity says what a finding means for the people who use the device.
type Severity string

const (
	// Fatal means that the device cannot be used.
	Fatal Severity = "fatal"
	// Fault means that calls fail, or that their results are wrong.
	Fault Severity = "fault"
	// Weakness means that the device works, but slower or less reliably.
	Weakness Severity = "weakness"
	// Note is worth knowing and costs nothing.
	Note Severity = "note"
)

// costs is what one finding takes from the score of 100.
var costs = map[Severity]int{Fatal: 100, Fault: 15, Weakness: 5}

// Rule describes one kind of finding.
type Rule struct {
	ID       string
	Step     string // that it belongs to
	Severity Severity
	Title    string // what is wrong, for any device
	Page     string // the paragraph that says how it should be
	Fix      string
}

// Finding is a problem of the device. Its JSON keys are stable, and so are the IDs.
type Finding struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Title    string   `json:"title"`
	Detail   string   `json:"detail"`
	Count    int      `json:"count"` // how often it was seen
	// Sent and Received belong to the first time. They are shortened, and what cannot be
	// shown is escaped.
	Sent     string `json:"sent,omitempty"`
	Received string `json:"received,omitempty"`
	Page     string `json:"page"`
	Fix      string `json:"fix"`

	step string
}

// Report is the result of a check. Its JSON keys are stable.
type Report struct {
	Target   string    `json:"target"`
	Protocol string    `json:"protocol"`
	Device   string    `json:"device,omitempty"`
	Version  string    `json:"version,omitempty"`
	Score    int       `json:"score"`    // 0 to 100
	Actuated bool      `json:"actuated"` // a call may have changed something
	Tools    int       `json:"tools"`
	Called   []string  `json:"called"` // tools that were called
	Findings []Finding `json:"findings"`
	Steps    []Step    `json:"steps"`
	Took     float64   `json:"seconds"`
}

// errSkip is the error of a step that does not apply.
type errSkip string

func (e errSkip) Error() string { return string(e) }

// errFailed is the error of a step that failed for a reason which other steps have found.
type errFailed string

func (e errFailed) Error() string { return string(e) }

// errLate is why steps are skipped when the time is over.
var errLate = fmt.Sprintf("no time left: a check takes at most %v", maxTime)

// errGiveUp ends the remaining steps.
var errGiveUp = errors.New("the device cannot be tested any further")

// run is a check in progress.
type run struct {
	report   *Report
	options  Options
	rules    map[string]Rule
	began    time.Time
	findings map[string]*Finding
	order    []string
	tooLate  time.Time
}

func newRun(target Target, protocol string, rules []Rule, o Options) *run {
	r := &run{
		report: &Report{Target: target.String(), Protocol: protocol, Called: []string{}}, options: o,
		rules: make(map[string]Rule), findings: make(map[string]*Finding), began: time.Now(),
	}
	r.tooLate = r.began.Add(maxTime)
	for _, rule := range rules {
		r.rules[rule.ID] = rule
	}
	return r
}

// evidence is what was sent and received when something was found.
type evidence struct{ sent, received string }

// find records a finding. Only the first of each ID is described.
func (r *run) find(id string, e evidence, format string, args ...any) {
	if f := r.findings[id]; f != nil {
		f.Count++
		return
	}
	rule, ok := r.rules[id]
	if !ok {
		panic("no rule " + id) // TestRules finds it
	}
	r.findings[id] = &Finding{
		ID: id, Severity: rule.Severity, Title: rule.Title, Detail: ferrule.OneLine(ferrule.Clean(fmt.Sprintf(format, args...), ferrule.MaxText), 400), Count: 1,
		Sent: show(e.sent), Received: show(e.received), Page: rule.Page, Fix: rule.Fix, step: rule.Step,
	}
	r.order = append(r.order, id)
}

// forget removes findings that have another cause.
func (r *run) forget(ids ...string) {
	for _, id := range ids {
		delete(r.findings, id)
	}
	r.order = slices.DeleteFunc(r.order, func(id string) bool { return r.findings[id] == nil })
}

// found reports whether there is a finding.
func (r *run) found(id string) bool { return r.findings[id] != nil }

// called records that a tool was called.
func (r *run) called(tool string) {
	if tool = ferrule.Clean(tool, ferrule.MaxToolName); !slices.Contains(r.report.Called, tool) {
		r.report.Called = append(r.report.Called, tool)
	}
}

// step is one step of a protocol. It returns what it found out, for people.
type step struct {
	name string
	do   func(ctx context.Context) (detail string, err error)
}

// steps runs steps until ctx ends, one gives up, or the time is over. Options that do nothing
// for the protocol are a step that is skipped.
func (r *run) steps(ctx context.Context, all []step) error {
	if r.options.Actuate && r.report.Protocol != "mcpu" {
		all = append(slices.Clip(all), step{"actuators", func(context.Context) (string, error) {
			return "", errSkip("--actuate is for MCP/U boards: no output was set")
		}})
	}
	var skip string
	for i, s := range all {
		done := Step{Name: s.name, State: Skipped, Detail: skip}
		if skip == "" {
			r.progress(i+1, len(all), Step{Name: s.name, State: Running})
			began := time.Now()
			limited, cancel := context.WithDeadline(ctx, r.tooLate)
			detail, err := s.do(limited)
			late := limited.Err() != nil
			cancel()
			done = Step{Name: s.name, State: Passed, Detail: ferrule.OneLine(ferrule.Clean(detail, ferrule.MaxText), 200), Took: seconds(time.Since(began))}
			var skipped errSkip
			var failed errFailed
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case late:
				r.find(r.report.Protocol+".out-of-time", evidence{}, "the check was not done after %v, in the step %s", maxTime, s.name)
				skip, done.State, done.Detail = errLate, Skipped, errLate
			case errors.As(err, &skipped):
				done.State, done.Detail = Skipped, string(skipped)
			case errors.As(err, &failed):
				done.State, done.Detail = Failed, string(failed)
			case errors.Is(err, errGiveUp):
				skip, done.State = errGiveUp.Error(), Failed
			case err != nil:
				return err
			}
		}
		r.report.Steps = append(r.report.Steps, done)
		r.progress(i+1, len(all), r.judged(done))
	}
	return nil
}

// judged returns a step as failed if it has findings that cost something.
func (r *run) judged(s Step) Step {
	for _, f := range r.findings {
		if f.step == s.Name && f.Severity != Note {
			s.State = Failed
		}
	}
	return s
}

func (r *run) progress(number, count int, s Step) {
	if r.options.OnStep != nil {
		r.options.OnStep(number, count, s)
	}
}

// finish computes the score and returns the report. Findings come in the order of their
// severity.
func (r *run) finish() *Report {
	score := 100
	r.report.Findings = []Finding{}
	for _, id := range r.order {
		f := r.findings[id]
		score -= costs[f.Severity]
		r.report.Findings = append(r.report.Findings, *f)
	}
	slices.SortStableFunc(r.report.Findings, func(a, b Finding) int { return cmp.Compare(ranks[a.Severity], ranks[b.Severity]) })
	for i, s := range r.report.Steps {
		r.report.Steps[i] = r.judged(s)
	}
	r.report.Score = max(0, score)
	r.report.Took = seconds(time.Since(r.began))
	r.report.Device, r.report.Version = ferrule.Clean(r.report.Device, ferrule.MaxWord), ferrule.Clean(r.report.Version, ferrule.MaxWord)
	return r.report
}

var ranks = map[Severity]int{Fatal: 0, Fault: 1, Weakness: 2, Note: 3}

// seconds rounds a duration to milliseconds.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// maxShown is how many characters of a message are shown.
const maxShown = 300

// show returns bytes as people can read them: in one line, without what a terminal obeys.
func show(data string) string {
	const cut = 4 * maxShown // an escape has at most four characters
	long := len(data) > cut
	if long {
		data = data[:cut]
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(data, "\ufffd") {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ':
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	text := []rune(ferrule.Clean(b.String(), ferrule.MaxText))
	if len(text) > maxShown {
		text, long = text[:maxShown], true
	}
	if long {
		return string(text) + "…"
	}
	return string(text)
}
