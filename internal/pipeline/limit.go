package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// limit refuses a caller who has too many calls in flight, or has made too many
// of late. What the gateway reads on its own account is not limited.
func limit(all *callers) stage {
	return func(next ferrule.Handler) ferrule.Handler {
		return func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			who := call.Principal
			if who.Role == ferrule.Gateway {
				return next(ctx, call)
			}
			if err := all.enter(who); err != nil {
				return nil, err
			}
			defer all.leave(who)
			return next(ctx, call)
		}
	}
}

// callers is who is calling, and how much.
type callers struct {
	inFlight, perMinute int // perMinute is 0 for as many as one likes

	mu      sync.Mutex
	known   map[ferrule.Principal]caller
	most    int // so many are known before the idle ones are looked for
	refused uint64
}

// fewCallers need no looking for those who are idle.
const fewCallers = 1024

// caller is what is known of one caller. Its allowance for a minute can be used
// at once, and comes back in the course of a minute.
type caller struct {
	inFlight int
	// whole is when the allowance is whole again.
	whole time.Time
}

func newCallers(c Config) *callers {
	return &callers{inFlight: c.InFlight, perMinute: c.PerMinute, known: make(map[ferrule.Principal]caller), most: fewCallers}
}

// enter lets one more call in, or says why not. One that was let in must leave.
func (c *callers) enter(who ferrule.Principal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, known := c.known[who]
	if one.inFlight >= c.inFlight {
		c.refused++
		return ferrule.Errorf(ferrule.Limited, "this caller has as many calls in flight as it may: calls.in_flight is %d", c.inFlight).
			WithHint("try again when one of them has ended")
	}
	if c.perMinute > 0 {
		now := time.Now()
		whole := one.whole
		if whole.Before(now) {
			whole = now
		}
		whole = whole.Add(time.Minute / time.Duration(c.perMinute))
		if wait := whole.Sub(now) - time.Minute; wait > 0 {
			c.refused++
			return ferrule.Errorf(ferrule.Limited, "this caller has made as many calls as it may in a minute: calls.per_minute is %d", c.perMinute).
				WithHint("try again in %v", (wait + time.Second - 1).Truncate(time.Second))
		}
		one.whole = whole
	}
	if !known && len(c.known) >= c.most {
		c.forget()
	}
	one.inFlight++
	c.known[who] = one
	return nil
}

// leave tells that a call has ended.
func (c *callers) leave(who ferrule.Principal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.known[who]
	one.inFlight--
	if one.inFlight == 0 && c.perMinute == 0 {
		delete(c.known, who)
		return
	}
	c.known[who] = one
}

// forget drops callers of whom there is nothing to remember. It is done each
// time that their number has doubled, so that it costs little.
func (c *callers) forget() {
	now := time.Now()
	for who, one := range c.known {
		if one.inFlight == 0 && !one.whole.After(now) {
			delete(c.known, who)
		}
	}
	c.most = max(fewCallers, 2*len(c.known))
}

func (c *callers) count(s *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Limited = c.refused
}
