//go:build !linux

package api

import (
	"testing"
	"time"
)

// cpuTime returns how long fn takes.
func cpuTime(_ *testing.T, fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}
