package catalog

import (
	"context"
	"time"
)

// How long changes are collected before somebody is told: until there has been
// none for a moment, and not longer than that.
const (
	quiet  = 250 * time.Millisecond
	latest = 2 * time.Second
)

// Run calls tell after changes, until ctx ends. Devices that come and go all the
// time are told of every two seconds.
func (c *Catalog) Run(ctx context.Context, tell func()) error {
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
		tell()
	}
}

// settle waits until there are no more changes, or for long enough.
func (c *Catalog) settle(ctx context.Context) {
	end := time.NewTimer(latest)
	defer end.Stop()
	pause := time.NewTimer(quiet)
	defer pause.Stop()
	for {
		select {
		case <-c.wake:
			pause.Reset(quiet)
		case <-pause.C:
			return
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
