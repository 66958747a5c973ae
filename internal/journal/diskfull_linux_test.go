package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/journal"
)

// smallDisk mounts a file system of a few pages.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the gate must be allowed to mount: %v", err)
		}
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestFullDisk fills a small file system: a record that does not fit is refused, the chain
// stays intact, and writing continues when there is space again.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir, journal.DefaultConfig())
	n := 0
	var err error
	for ; n < 1000 && err == nil; n++ {
		err = j.Append(entry(n), true)
	}
	if !errors.Is(err, syscall.ENOSPC) || j.Health() == nil {
		t.Fatalf("after %d records: %v", n, err)
	}
	if found := verify(t, dir); found != nil {
		t.Errorf("verify found %q", found)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry(9999), true); err != nil || j.Health() != nil {
		t.Errorf("with free space: %v, %v", err, j.Health())
	}
	if found := verify(t, dir); found != nil {
		t.Errorf("verify found %q", found)
	}
	// The record that did not fit was kept.
	if got := read(t, dir); got[len(got)-1] != fmt.Sprint(n+1, " call-9999") {
		t.Errorf("the last record is %q, want number %d", got[len(got)-1], n+1)
	}
}

// TestFullDiskWithInterval checks that a full disk is reported with a sync interval.
func TestFullDiskWithInterval(t *testing.T) {
	dir := smallDisk(t)
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 60<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir, journal.Config{Sync: time.Millisecond})
	var err error
	for n := 0; n < 1000 && err == nil; n++ {
		err = j.Append(entry(n), true)
		time.Sleep(2 * time.Millisecond)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}
