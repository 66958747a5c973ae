package approval_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/approval"
)

// TestRealFullDisk fills a small file system. What cannot be stored is refused, a line that
// was cut by the end of the disk takes nothing with it, and no call runs without an approval
// that is on disk.
func TestRealFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the gate must be allowed to mount: %v", err)
		}
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.dir, w.cfg.PerCaller = dir, 200 })
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 36<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		leave := func(n int) error { // a call whose caller leaves
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return <-w.call(ctx, burn(robby, fmt.Sprintf(`{"n":%d}`, n)))
		}
		var stored int
		var err error
		for stored = 0; stored < 200; stored++ {
			if err = leave(stored); errors.Is(err, syscall.ENOSPC) {
				break
			}
		}
		isDenied(t, err, "the request cannot be stored")
		if n := len(w.approvals.List()); n != stored || n == 0 {
			t.Fatalf("%d requests, want %d", n, stored)
		}
		approved := make(map[string]bool)
		for _, a := range w.approvals.List() {
			if _, err := w.approvals.Answer(anna, a.ID, approval.Answer{Allow: true}); err == nil {
				approved[string(a.Args)] = true
			}
		}
		for n := range stored { // those that were not approved have to wait
			args := fmt.Sprintf(`{"n":%d}`, n)
			if err := leave(n); (err == nil) && !approved[args] {
				t.Errorf("%s ran without an approval", args)
			}
		}
		before := len(w.runs())
		// The gateway restarts, with space: nothing is lost, and nothing runs twice.
		w.approvals.Close()
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		w.open()
		waiting := 0
		for _, a := range w.approvals.List() {
			if a.State == ferrule.ApprovalWaiting {
				waiting++
			}
			w.approvals.Answer(anna, a.ID, approval.Answer{Allow: true})
		}
		if waiting == 0 {
			t.Error("all requests were approved on a full disk")
		}
		for n := range stored {
			leave(n)
		}
		seen := make(map[string]int)
		for _, run := range w.runs() {
			if seen[run]++; seen[run] > 1 {
				t.Errorf("twice: %s", run)
			}
		}
		t.Logf("%d requests, %d approved and %d run on a full disk, %d run in all", stored, len(approved), before, len(seen))
		w.approvals.Close()
	})
}
