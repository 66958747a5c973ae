// Package wait waits for conditions in tests.
package wait

import (
	"testing"
	"time"
)

// Ample is a time limit that a busy machine does not exceed.
const Ample = 2 * time.Minute

// For waits until a condition holds. It has no limit of the caller's choice: a slow
// machine must not fail a test that waits for something that happens.
func For(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Ample, what, holds)
}

// Within is like For with a limit, for real parts that take minutes to start. It gives up
// before the deadline of the test, so that the failure names the condition.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	const margin = 5 * time.Second
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := d.Deadline(); ok {
			limit = min(limit, time.Until(deadline)-margin)
		}
	}
	for end := time.Now().Add(limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit.Round(time.Second), what)
		}
	}
}
