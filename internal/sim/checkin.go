package sim

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// How firmware asks.
const (
	askAgain  = 10 * time.Second // after it could not ask; doubled each time
	askTimes  = 10               // and then it begins anew
	letInSoon = 3 * time.Second  // after it was not let in yet
	letInErr  = 10 * time.Second // after that could not be asked
)

// checkIn asks for settings, as firmware does when it has started, until it has them
// and is let in.
func (c *caller) checkIn(ctx context.Context) (xiaozhi.Settings, error) {
	for failed := 0; ; {
		settings, err := c.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return settings, ctx.Err()
		case err != nil:
			c.toy.note("failed", err.Error())
			sleep(ctx, askAgain<<failed)
			failed = (failed + 1) % askTimes
		case settings.Code != "":
			c.toy.note("code", settings.Code)
			c.activate(ctx)
			failed = 0
		default:
			return settings, nil
		}
	}
}

// ask asks for settings once.
func (c *caller) ask(ctx context.Context) (settings xiaozhi.Settings, err error) {
	if err := c.crowd.begin(ctx); err != nil {
		return settings, err
	}
	defer c.crowd.end()
	if body := c.toy.behaviour.visit; body != "" {
		return c.toy.CheckInWith(ctx, c.crowd.cfg.URL, c.toy.Identity, []byte(body))
	}
	return c.toy.CheckIn(ctx, c.crowd.cfg.URL, c.toy.Identity)
}

// activate asks whether the toy is let in, some times.
func (c *caller) activate(ctx context.Context) {
	for range askTimes {
		wait := letInSoon
		in, err := c.letIn(ctx)
		switch {
		case in:
			return
		case err != nil:
			wait = letInErr
		}
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

func (c *caller) letIn(ctx context.Context) (bool, error) {
	if err := c.crowd.begin(ctx); err != nil {
		return false, err
	}
	defer c.crowd.end()
	return c.toy.Activate(ctx, c.crowd.cfg.URL, c.toy.Identity)
}
