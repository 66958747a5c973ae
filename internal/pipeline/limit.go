package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// limit refuses a caller with too many calls in flight, too many calls per minute, or
// too many calls that were refused. It is the first stage after audit, because what
// follows costs time and a record on disk even for a call that is refused in the end. The
// gateway's own calls are not limited.
func limit(all *callers) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			who := origin{call.Via, call.Principal.Account()}
			if who.Role == ferrule.Gateway || call.Operation.OfJob() { // the gateway sets the pace of polls
				return next(ctx, call)
			}
			if call.Stops() {
				who.Name += " stop" // counted apart: other calls of the caller must not delay it
			}
			done, _ := ctx.Value(progressKey{}).(*progress)
			one, err := all.enter(who)
			if err != nil {
				done.limited = true
				return nil, err
			}
			refused := false
			defer func() { all.leave(one, refused) }()
			result, err := next(ctx, call)
			if err != nil && !done.sent {
				code := ferrule.AsError(err).Code
				innocent := done.stopped || code == ferrule.Offline || code == ferrule.Pending && call.Verdict.Ruling == ferrule.Ask
				refused = isMistake(code) && !innocent
				done.limited = innocent && all.isSurplus(one)
			}
			return result, err
		}
	}
}

// isMistake reports whether a call was refused because of what it asks for. A device that
// is offline or stopped, or a person who has not answered, is not the fault of the caller,
// who must still be able to read.
func isMistake(code ferrule.Code) bool {
	return code == ferrule.NotFound || code == ferrule.Invalid || code == ferrule.Denied || code == ferrule.Pending
}

// origin is an account on a node; Via is empty for this one. Accounts of different nodes
// may have the same name. Agents that name themselves share an account.
type origin struct {
	via string
	ferrule.Principal
}

// callers counts the calls of each caller.
type callers struct {
	inFlight, perMinute, refusedPerMinute int // per minute, 0 means unlimited

	mu      sync.Mutex
	known   map[origin]*caller
	sweepAt int // number of callers at which idle ones are dropped
	refused uint64
}

// minSweep is the number of callers below which idle ones are not dropped.
const minSweep = 1024

type caller struct {
	inFlight int
	rate     ratelimit.Limiter
	refused  ratelimit.Limiter // counts calls that the gateway refused
	innocent ratelimit.Limiter // counts calls that were refused without being mistakes
}

func newCallers(c Config) *callers {
	return &callers{inFlight: c.InFlight, perMinute: c.PerMinute, refusedPerMinute: c.RefusedPerMinute, known: make(map[origin]*caller), sweepAt: minSweep}
}

// enter admits one more call of a caller, or returns why not. An admitted call must leave.
func (c *callers) enter(who origin) (*caller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.known[who]
	if one == nil {
		if len(c.known) >= c.sweepAt {
			c.sweep()
		}
		one = &caller{}
		c.known[who] = one
	}
	if one.inFlight >= c.inFlight {
		c.refused++
		return nil, ferrule.Errorf(ferrule.Limited, "too many calls in flight: limit is %d per caller (calls.in_flight)", c.inFlight).
			WithHint("try again when one of them has ended")
	}
	now := time.Now()
	if c.refusedPerMinute > 0 {
		if wait := one.refused.Wait(ratelimit.PerMinute(c.refusedPerMinute), now); wait > 0 {
			c.refused++
			return nil, ferrule.Errorf(ferrule.Limited, "too many refused calls: limit is %d per minute and caller (calls.refused_per_minute)", c.refusedPerMinute).
				WithHint("correct the calls, then try again in %v", (wait + time.Second - 1).Truncate(time.Second))
		}
	}
	if c.perMinute > 0 {
		rate := ratelimit.PerMinute(c.perMinute)
		if !one.rate.Allow(rate, now) {
			c.refused++
			return nil, ferrule.Errorf(ferrule.Limited, "too many calls: limit is %d per minute and caller (calls.per_minute)", c.perMinute).
				WithHint("try again in %v", (one.rate.Wait(rate, now) + time.Second - 1).Truncate(time.Second))
		}
	}
	one.inFlight++
	return one, nil
}

// isSurplus counts a call that was refused without being a mistake. It reports whether there are so many
// that they are recorded together: each costs the caller nothing and the disk a record.
func (c *callers) isSurplus(one *caller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusedPerMinute == 0 {
		return false
	}
	return !one.innocent.Allow(ratelimit.PerMinute(c.refusedPerMinute), time.Now())
}

// leave counts the end of a call, and whether it was refused. Its caller stays known, which
// is faster if it calls again, until there are many.
func (c *callers) leave(one *caller, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.inFlight--
	if refused && c.refusedPerMinute > 0 {
		one.refused.Allow(ratelimit.PerMinute(c.refusedPerMinute), time.Now())
	}
}

// sweep drops idle callers. It runs each time that the number of callers has
// doubled, so that its cost per call stays constant.
func (c *callers) sweep() {
	now := time.Now()
	for who, one := range c.known {
		if one.inFlight == 0 && one.rate.Idle(now) && one.refused.Idle(now) && one.innocent.Idle(now) {
			delete(c.known, who)
		}
	}
	c.sweepAt = max(minSweep, 2*len(c.known))
}

func (c *callers) count(s *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Limited = c.refused
}
