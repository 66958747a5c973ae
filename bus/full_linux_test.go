package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
)

// TestFullDisk: on a full disk nothing is recorded, and the state says so; when
// there is room again, everything is.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	cfg := DefaultConfig()
	cfg.Store = minStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	a.has("first", "arm", ferrule.StateOnline)
	eventually(t, 5*time.Second, "recorded", func() bool { return a.record("first") != nil })

	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); ; {
		if _, err := ballast.Write(block); err != nil {
			break
		}
	}
	ballast.Close()
	n := 0
	eventually(t, 20*time.Second, "it says that nothing can be recorded", func() bool {
		for range 50 {
			a.has(fmt.Sprint("d", n), "arm", ferrule.StateOnline)
			n++
		}
		return !a.bus.State().Working
	})
	t.Logf("after %d devices: %s", n, a.bus.State().Why)

	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "everything is recorded", func() bool {
		return a.bus.State().Working && a.record("first") != nil && a.record(fmt.Sprint("d", n-1)) != nil
	})
}
