// Package wait waits for conditions in tests.
package wait

import (
	"testing"
	"time"
)

// Ample is a time limit that a busy machine does not exceed.
const Ample = 10 * time.Second

// For waits until a condition holds, and fails the test after a time limit.
func For(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
