package api

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns how long fn uses a processor. What other programs use does not count.
func cpuTime(t *testing.T, fn func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	start := used()
	fn()
	return used() - start
}
