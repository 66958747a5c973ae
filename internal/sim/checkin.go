package sim

import (
	"context"
	"time"

	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// Timing of the check-in in firmware.
const (
	retryDelay      = 10 * time.Second // after a failure; doubles each time
	maxAttempts     = 10               // then it starts over
	activationPoll  = 3 * time.Second  // while it is not activated
	activationRetry = 10 * time.Second // after an error
)

// checkIn checks in, as firmware does after its start, until the toy has its settings and is
// activated.
func (c *toyClient) checkIn(ctx context.Context) (xiaozhi.Settings, error) {
	for failed := 0; ; {
		settings, err := c.requestSettings(ctx)
		switch {
		case ctx.Err() != nil:
			return settings, ctx.Err()
		case err != nil:
			c.toy.event("failed", err.Error())
			sleep(ctx, retryDelay<<failed)
			failed = (failed + 1) % maxAttempts
		case settings.Code != "":
			c.toy.event("code", settings.Code)
			c.activate(ctx)
			failed = 0
		default:
			return settings, nil
		}
	}
}

// requestSettings checks in once.
func (c *toyClient) requestSettings(ctx context.Context) (settings xiaozhi.Settings, err error) {
	if err := c.all.begin(ctx); err != nil {
		return settings, err
	}
	defer c.all.end()
	if body := c.toy.behavior.checkIn; body != "" {
		return c.toy.CheckInWith(ctx, c.all.cfg.URL, c.toy.Identity, []byte(body))
	}
	return c.toy.CheckIn(ctx, c.all.cfg.URL, c.toy.Identity)
}

// activate waits for the activation, up to maxAttempts times.
func (c *toyClient) activate(ctx context.Context) {
	for range maxAttempts {
		wait := activationPoll
		in, err := c.activated(ctx)
		switch {
		case in:
			return
		case err != nil:
			wait = activationRetry
		}
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

func (c *toyClient) activated(ctx context.Context) (bool, error) {
	if err := c.all.begin(ctx); err != nil {
		return false, err
	}
	defer c.all.end()
	return c.toy.Activate(ctx, c.all.cfg.URL, c.toy.Identity)
}
