// Package pipeline is the only way to a device. Every call, whether from an
// agent or the command line, passes the same stages in the same order, outermost
// first. A call to a device of another node passes them on both: the caller's node
// decides what it sends, and the holder what it does. The holder has the last word,
// and records the call.
//
//	audit      records the outcome; turns a panic into an error
//	limit      refuses callers that call too often
//	resolve    finds the device, the tool and the route; hides what the caller may not see
//	validate   decodes and checks the arguments; lists all violations
//	authorize  checks the caller's scopes, and asks the policy
//	approve    asks a person, if the policy requires it
//	hooks      asks the owner's programs and services, which may refuse
//	cache      answers from memory, if a recent answer is known
//	deadline   limits the time of the call, including the wait in queues; checks the answer
//	stop       refuses changes while they are stopped, and ends those under way
//	bounds     enforces the physical limits of the tool
//	intent     records on disk that the world is about to change
//	questions  lets the device ask the caller, if its owner allows it
//	jobs       waits for work that the device goes on with after it has answered
//	─────────
//	fleet → lane → device
//
// Each thing is done once. Resolve looks up the fleet and puts the result into
// Call.Target, whose Handler then serves the call. Validate decodes the arguments
// into Call.DecodedArgs. Audit has the only recover of this package. Nothing
// here retries: the dock does towards devices, and cluster/calls between nodes.
// Within the deadline the answer is checked too.
//
// An answer from the cache counts towards the limits, because it is recorded, but has no
// intent. Audit has two parts: only the outermost stage sees every
// outcome, and only behind resolve is it known whether a call changes the world. The
// gateway's own readings take the same path but are counted, not journaled.
//
// One stage is one file.
package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// stage wraps the rest of the pipeline.
type stage func(next ferrule.Handler) ferrule.Handler

// Config holds the limits of the pipeline.
type Config struct {
	// CleanResults removes from results what a reader does not see.
	CleanResults bool

	// Deadline limits a call if neither the caller nor the tool sets a limit.
	Deadline time.Duration
	// ApprovalWait is how long a call to a device of another node may wait there for the
	// approval of a person.
	ApprovalWait time.Duration
	// Cache is how long the answer of a read-only tool is cached, unless its
	// owner configured it; 0 disables the cache.
	Cache time.Duration
	// InFlight is the maximum number of concurrent calls of one caller.
	InFlight int
	// PerMinute is the maximum number of calls of one caller in a minute; 0 is no
	// limit.
	PerMinute int
	// RefusedPerMinute is the maximum number of calls of one caller in a minute that
	// the gateway refuses, for example because of wrong arguments. More are refused
	// before they are looked at; 0 means unlimited.
	RefusedPerMinute int
}

// maxPerMinute is far above what a gateway can serve.
const maxPerMinute = 1_000_000

// DefaultConfig returns a deadline of 30 seconds and generous limits.
func DefaultConfig() Config {
	return Config{Deadline: 30 * time.Second, InFlight: 256, RefusedPerMinute: 600}
}

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	if c.Deadline <= 0 || c.Deadline > MaxDeadline {
		return fmt.Errorf("deadline: must be greater than 0 and at most %v, got %v", MaxDeadline, c.Deadline)
	}
	if c.Cache < 0 || c.Cache > ferrule.MaxCache {
		return fmt.Errorf("cache: must be from 0s to %v, got %v", ferrule.MaxCache, c.Cache)
	}
	if c.InFlight < 1 {
		return fmt.Errorf("in_flight: must be at least 1, got %d", c.InFlight)
	}
	if c.PerMinute < 0 || c.PerMinute > maxPerMinute {
		return fmt.Errorf("per_minute: must be from 0 to %d, got %d", maxPerMinute, c.PerMinute)
	}
	if c.RefusedPerMinute < 0 || c.RefusedPerMinute > maxPerMinute {
		return fmt.Errorf("refused_per_minute: must be from 0 to %d, got %d", maxPerMinute, c.RefusedPerMinute)
	}
	return nil
}

// Parts is what the stages use.
type Parts struct {
	Config  Config
	Journal Journal
	Fleet   Fleet
	// Policy decides on calls; nil permits all.
	Policy Policy
	// Visible returns what a caller is shown, for hints in errors; nil shows everything.
	Visible func(who ferrule.Principal) ferrule.Visibility
	// Approvals asks people; if it is nil, what needs approval is denied.
	Approvals Approvals
	// Hooks may refuse calls, and are told about outcomes; it may be nil.
	Hooks Hooks
	// Stop can end all changes, and Bounds has the physical limits; each may be nil.
	Stop   Stop
	Bounds Bounds
	// Meters measures the pipeline, its stages and what lies behind it; it may be
	// nil.
	Meters ferrule.Meters
	Log    *slog.Logger
}

// Pipeline is the chain of stages.
type Pipeline struct {
	handle    ferrule.Handler
	answers   *answers
	callers   *callers
	questions *questionBudget
	readings  readings
	refused   *refusals
}

// New builds the chain.
func New(parts Parts) *Pipeline {
	p := &Pipeline{answers: newAnswers(), callers: newCallers(parts.Config), questions: newQuestionBudget(), refused: newRefusals(parts.Journal, parts.Log)}
	p.handle = ferrule.Measured(parts.Meters.For(ferrule.PartFleet), send)
	if parts.Config.CleanResults {
		p.handle = cleanAnswers(p.handle)
	}
	for _, s := range slices.Backward(p.stages(parts)) {
		p.handle = ferrule.Measured(parts.Meters.For(s.name), s.stage(p.handle))
	}
	p.handle = ferrule.Measured(parts.Meters.For(ferrule.PartPipeline), p.handle)
	return p
}

// Handle serves a call. It is a [ferrule.Handler].
func (p *Pipeline) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	// model: call_enter
	return p.handle(ctx, call)
}

// Flush records what was counted so far. It is called before the journal is closed.
func (p *Pipeline) Flush() { p.refused.digest.Flush() }

// send passes a call on to the device that resolve found.
func send(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return call.Target.Handle(ctx, call)
}

type namedStage struct {
	name  string
	stage stage
}

// stages returns the stages, outermost first. A test compares them with the
// drawing in the package comment.
func (p *Pipeline) stages(parts Parts) []namedStage {
	return []namedStage{
		{"audit", audit(parts.Journal, &p.readings, p.refused, parts.Visible, parts.Log)},
		{"limit", limit(p.callers)},
		{"resolve", resolve(parts.Fleet, parts.Visible)},
		{"validate", validate()},
		{"authorize", authorize(parts.Policy)},
		{"approve", approve(parts.Approvals)},
		{"hooks", hooks(parts.Hooks)},
		{"cache", cache(parts.Config.Cache, p.answers)},
		{"deadline", deadline(parts.Config.Deadline, parts.Config.ApprovalWait)},
		{"stop", stop(parts.Stop)},
		{"bounds", bounds(parts.Bounds)},
		{"intent", intent(parts.Journal)},
		{"questions", questions(parts.Journal, p.questions, parts.Log)},
		{"jobs", jobs(parts.Fleet, parts.Journal)},
	}
}
