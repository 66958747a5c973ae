package halt

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestFullDisk: on a disk without a free byte, a stop is saved and so is its end.
func TestFullDisk(t *testing.T) { untimed(t, testFullDisk) }

func testFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	again := func() *Stop {
		return newStop(t, func(o *Options) { o.Dir, o.Journal = dir, &journal{err: syscall.ENOSPC} })
	}
	s := again()
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = ballast.Write(make([]byte, 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for range 3 {
		if r := halted(t, s, "the disk is full", "pump"); r.NotSaved != "" {
			t.Fatal(r.NotSaved)
		}
		if s = again(); ferrule.AsError(enters(s, "pump")).Code != ferrule.Denied {
			t.Fatal("not stopped after a restart")
		}
		resumed(t, s)
		if s = again(); enters(s, "pump") != nil {
			t.Fatal("stopped after resume and a restart")
		}
	}
}
