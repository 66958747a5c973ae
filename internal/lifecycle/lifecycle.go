// Package lifecycle runs the parts of a program together.
package lifecycle

import (
	"context"
	"errors"
)

// Run starts parts in order. When ctx ends or a part returns, it stops all of them in
// reverse order: each is canceled and waited for before the part that started earlier.
// It returns the errors of all parts.
func Run(ctx context.Context, parts ...func(context.Context) error) error {
	type running struct {
		cancel context.CancelFunc
		ended  chan error
	}
	any := make(chan struct{}, len(parts))
	var started []running
	for _, part := range parts {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{cancel, make(chan error, 1)}
		go func() {
			r.ended <- part(partCtx)
			any <- struct{}{}
		}()
		started = append(started, r)
	}
	select {
	case <-ctx.Done():
	case <-any:
	}
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		started[i].cancel()
		errs = append(errs, <-started[i].ended)
	}
	return errors.Join(errs...)
}
