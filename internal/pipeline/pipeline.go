// Package pipeline is the one road to a device. Whoever calls (an agent, the
// command line, another node), the call passes the same stages in the same
// order, outermost first:
//
//	audit      records the outcome; turns a panic into an error
//	resolve    is it there, and may this caller know of it?
//	validate   do the arguments fit? Names every violation at once
//	authorize  may this caller do this, with these arguments?
//	approve    does a person have to agree?
//	cache      is the answer known already?
//	limit      is this caller calling too much?
//	deadline   how long may it take, waiting included?
//	intent     records, on disk, that the world is about to be changed
//	─────────
//	fleet → lane → device
//
// Without a policy, every valid call to an adopted device is permitted; where a
// policy wants a person to agree, the call is denied, because nobody can be asked
// yet. What is answered from the cache is not limited, and is no intent. Audit
// stands at both ends, because only behind resolve is it known whether a call
// changes the world, and because only the door sees every outcome. What the gateway
// reads by itself takes the same road, and is counted in place of recorded.
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

// stage wraps the rest of the road.
type stage func(next ferrule.Handler) ferrule.Handler

// Config is what can be set about the road.
type Config struct {
	// Deadline bounds a call for which neither the caller nor the tool says
	// more.
	Deadline time.Duration
	// Cache is how long the answer of a tool that only reads is kept, where its
	// owner does not say; 0 is not at all.
	Cache time.Duration
	// InFlight is how many calls one caller may have in flight.
	InFlight int
	// PerMinute is how many calls one caller may make in a minute; 0 is as many
	// as one likes.
	PerMinute int
}

// maxPerMinute is far above what any gateway serves.
const maxPerMinute = 1_000_000

// DefaultConfig gives a call thirty seconds, and a caller ample room.
func DefaultConfig() Config { return Config{Deadline: 30 * time.Second, InFlight: 256} }

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Deadline <= 0 || c.Deadline > MaxDeadline {
		return fmt.Errorf("deadline: want more than nothing and at most %v, got %v", MaxDeadline, c.Deadline)
	}
	if c.Cache < 0 || c.Cache > ferrule.MaxCache {
		return fmt.Errorf("cache: want from 0s to %v, got %v", ferrule.MaxCache, c.Cache)
	}
	if c.InFlight < 1 {
		return fmt.Errorf("in_flight: want 1 or more, got %d", c.InFlight)
	}
	if c.PerMinute < 0 || c.PerMinute > maxPerMinute {
		return fmt.Errorf("per_minute: want from 0 to %d, got %d", maxPerMinute, c.PerMinute)
	}
	return nil
}

// Parts is what the stages work with.
type Parts struct {
	Config  Config
	Journal Journal
	Fleet   Fleet
	// Policy decides about calls; nil permits every one.
	Policy Policy
	// End serves the call.
	End ferrule.Handler
	// Meters measure the road, its stages, and what lies behind it; nil if nobody
	// does.
	Meters ferrule.Meters
	Log    *slog.Logger
}

// Road is the stages, one behind the other.
type Pipeline struct {
	handle  ferrule.Handler
	answers *answers
	callers *callers
	// readings is what the gateway has asked for by itself.
	readings readings
}

// New builds the road.
func New(p Parts) *Pipeline {
	r := &Pipeline{handle: ferrule.Measured(p.Meters.For(ferrule.PartFleet), p.End), answers: newAnswers(), callers: newCallers(p.Config)}
	for _, s := range slices.Backward(r.seats(p)) {
		r.handle = ferrule.Measured(p.Meters.For(s.name), s.stage(r.handle))
	}
	r.handle = ferrule.Measured(p.Meters.For(ferrule.PartPipeline), r.handle)
	return r
}

// Handle takes a call down the road. It is a ferrule.Handler.
func (r *Pipeline) Handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return r.handle(ctx, call)
}

// seat is the place of a stage on the road.
type seat struct {
	name  string
	stage stage
}

// seats is the road, outermost first. A test compares it with the drawing above.
func (r *Pipeline) seats(p Parts) []seat {
	return []seat{
		{"audit", audit(p.Journal, &r.readings, p.Log)},
		{"resolve", resolve(p.Fleet)},
		{"validate", validate()},
		{"authorize", authorize(p.Policy)},
		{"approve", approve()},
		{"cache", cache(p.Config.Cache, r.answers)},
		{"limit", limit(r.callers)},
		{"deadline", deadline(p.Config.Deadline)},
		{"intent", intent(p.Journal)},
	}
}
