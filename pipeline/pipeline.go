// Package pipeline is the one road to a device. Whoever calls (an agent, the
// command line, another node), the call passes the same stages in the same
// order, outermost first:
//
//	 audit      records the outcome; turns a panic into an error
//	 resolve    is it there, and may this caller know of it?
//	 validate   do the arguments fit? Names every violation at once
//	 authorize  may this caller do this, with these arguments?
//	 approve    does a person have to agree?
//	[cache      is the answer known already?]
//	[limit      is this caller calling too much?]
//	 deadline   how long may it take, waiting included?
//	 intent     records, on disk, that the world is about to be changed
//	 ─────────
//	 fleet → lane → device
//
// A stage in brackets has its seat here and does not work yet: until it does,
// every call is answered by the device and is not limited. Without a policy,
// every valid call to an adopted device is permitted; where a policy wants a
// person to agree, the call is denied, because nobody can be asked yet. Audit
// stands at both ends, because only behind resolve is it known whether a call
// changes the world, and because only the door sees every outcome.
//
// One stage is one file.
package pipeline

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule"
)

// stage wraps the rest of the road.
type stage func(next ferrule.Handler) ferrule.Handler

// Config is what can be set about the road.
type Config struct {
	// Deadline bounds a call for which neither the caller nor the tool says
	// more.
	Deadline time.Duration
}

// DefaultConfig gives a call thirty seconds.
func DefaultConfig() Config { return Config{Deadline: 30 * time.Second} }

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Deadline <= 0 || c.Deadline > MaxDeadline {
		return fmt.Errorf("deadline: want more than nothing and at most %v, got %v", MaxDeadline, c.Deadline)
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
	Log *slog.Logger
}

// New builds the road.
func New(p Parts) ferrule.Handler {
	handle := p.End
	for _, s := range slices.Backward(seats(p)) {
		handle = s.stage(handle)
	}
	return handle
}

// seat is the place of a stage on the road.
type seat struct {
	name  string
	stage stage
}

// seats is the road, outermost first. A test compares it with the drawing above.
func seats(p Parts) []seat {
	return []seat{
		{"audit", audit(p.Journal, p.Log)},
		{"resolve", resolve(p.Fleet)},
		{"validate", validate()},
		{"authorize", authorize(p.Policy)},
		{"approve", approve()},
		{"deadline", deadline(p.Config.Deadline)},
		{"intent", intent(p.Journal)},
	}
}
