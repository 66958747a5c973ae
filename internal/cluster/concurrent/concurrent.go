// Package concurrent runs functions concurrently and waits for them.
package concurrent

import (
	"context"
	"sync"
	"time"
)

// All runs functions concurrently, waits for all of them, and returns the first
// error that occurred.
func All(fns ...func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(fns))
	for _, fn := range fns {
		wg.Go(func() {
			if err := fn(); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// UntilFirst runs functions concurrently until one of them returns, cancels the
// others, waits for them, and returns the first one's error.
func UntilFirst(ctx context.Context, fns ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var once sync.Once
	var result error
	run := func(fn func(context.Context) error) {
		err := fn(ctx)
		once.Do(func() { result = err })
		cancel()
	}
	var others sync.WaitGroup
	for _, fn := range fns[1:] {
		others.Go(func() { run(fn) })
	}
	run(fns[0]) // here, so that no goroutine only waits
	others.Wait()
	return result
}

// Sleep waits for a duration or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
