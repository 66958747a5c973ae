//go:build bench

package main

import (
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestRatioMemory measures the memory of `ferrule mcp` with one board: idle, after calls, and some
// time later. Pages of the program's file are not counted: they are the same for every process that
// runs it, and the system drops and reads them as it likes. The server with the bare SDK is in the
// same program.
func TestRatioMemory(t *testing.T) {
	const idle, loaded = 20 << 20, 36 << 20
	boards := simProcess(t, 2)
	ours, sdk := stdioServer(t, "ferrule", "robot__gpio_read", boards[0]), stdioServer(t, "bare", "gpio_read", boards[1])
	settles := func(when string) {
		t.Helper()
		wait.For(t, "memory is given back", func() bool {
			time.Sleep(100 * time.Millisecond)
			return memoryOf(t, ours.pid, "RssAnon") <= idle
		})
		t.Logf("%s: %d KB, at most %d; the bare SDK %d KB; with the file %d and %d KB", when, memoryOf(t, ours.pid, "RssAnon")>>10, idle>>10, memoryOf(t, sdk.pid, "RssAnon")>>10,
			memoryOf(t, ours.pid, "VmRSS")>>10, memoryOf(t, sdk.pid, "VmRSS")>>10)
	}
	settles("idle")
	most := 0
	for range 10 {
		ours.many(2000)
		sdk.many(2000)
		most = max(most, memoryOf(t, ours.pid, "RssAnon"))
	}
	t.Logf("after 20000 calls that read, sixteen at once: %d KB, at most %d; the bare SDK %d KB; with the file %d and %d KB", most>>10, loaded>>10, memoryOf(t, sdk.pid, "RssAnon")>>10,
		memoryOf(t, ours.pid, "VmRSS")>>10, memoryOf(t, sdk.pid, "VmRSS")>>10)
	if most > loaded {
		t.Errorf("%d bytes", most)
	}
	settles("idle again")
}
