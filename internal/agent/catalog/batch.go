package catalog

import (
	"context"
	"time"
)

// Changes are reported when there was none for quietTime, or after maxDelay.
const (
	quietTime = 250 * time.Millisecond
	maxDelay  = 2 * time.Second
)

// Run calls notify after changes, until ctx ends.
func (c *Catalog) Run(ctx context.Context, notify func()) error {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil
		}
		c.settle(ctx)
		if ctx.Err() != nil {
			return nil
		}
		notify()
	}
}

func (c *Catalog) settle(ctx context.Context) {
	end := time.NewTimer(maxDelay)
	defer end.Stop()
	pause := time.NewTimer(quietTime)
	defer pause.Stop()
	for {
		select {
		case <-c.wake:
			pause.Reset(quietTime)
		case <-pause.C:
			return
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
