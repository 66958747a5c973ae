package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// TestAllowGarbage: a small process may have much garbage, until it is not small,
// and again when it is.
func TestAllowGarbage(t *testing.T) {
	t.Setenv("GOGC", "")
	allowGarbage()
	becomes := func(want uint64) {
		t.Helper()
		eventually(t, 10*time.Second, "the percentage is the other", func() bool {
			runtime.GC()
			percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
			metrics.Read(percent)
			return percent[0].Value.Uint64() == want
		})
	}
	becomes(whenSmall)
	used := make([]byte, 2*small)
	becomes(otherwise)
	runtime.KeepAlive(used)
	becomes(whenSmall)
}
