package protocol

import "context"

type paceKey struct{}

// WithPace returns a context for Greet. Greet calls wait while it reads the manifest, with
// the number of bytes so far. Wait may block, and Greet fails with its error.
func WithPace(ctx context.Context, wait func(bytes int) error) context.Context {
	return context.WithValue(ctx, paceKey{}, wait)
}

// Pace is called after each page of a list, with the bytes so far.
func Pace(ctx context.Context, bytes int) error {
	if wait, ok := ctx.Value(paceKey{}).(func(int) error); ok {
		return wait(bytes)
	}
	return nil
}
