package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// smallDisk mounts a file system of a few pages.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
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
	dir := smallDisk(t, "64k")
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
	dir := smallDisk(t, "64k")
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

// TestReserve checks that a full disk denies new changes, but not the outcomes of those that
// were sent, and that records of reads cannot use up the space for outcomes.
func TestReserve(t *testing.T) {
	dir := smallDisk(t, "2m")
	cfg := journal.DefaultConfig()
	cfg.Reserve = 512 << 10
	j := open(t, dir, cfg)
	intent := entry(0)
	intent.Phase = ferrule.Intent
	if err := j.Append(intent, true); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	var err error
	for n := 0; n < 100 && err == nil; n++ { // the last page has space for some
		err = j.Append(intent, true)
	}
	if !errors.Is(err, syscall.ENOSPC) || j.Health() == nil {
		t.Fatalf("an intent on a full disk: %v", err)
	}
	for i := range 500 {
		outcome := entry(1000 + i)
		outcome.Phase = ferrule.Outcome
		if err := j.Append(outcome, true); err != nil {
			t.Fatalf("outcome %d: %v", i, err)
		}
		if err := j.Append(entry(5000+i), false); err != nil { // of a call that only reads
			t.Fatalf("lazy record %d: %v", i, err)
		}
		if err := j.Append(intent, true); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("intent %d: %v", i, err)
		}
	}
	if j.Health() == nil {
		t.Error("the journal is healthy on a full disk")
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	for synced, n := uint64(0), 0; n < 500; { // outcomes are synced, too
		l, err := j.Lines(ctx, synced, 1<<20)
		if err != nil {
			t.Fatalf("%d outcomes are synced: %v", n, err)
		}
		synced = l.Last
		n += strings.Count(string(l.Lines), `"call":"call-1`)
	}
	on := strings.Join(read(t, dir), "\n")
	if strings.Count(on, "call-1") < 500 || strings.Contains(on, "call-5") {
		t.Errorf("on disk: %.2000s", on)
	}
	if found := verify(t, dir); found != nil {
		t.Errorf("verify found %q", found)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(intent, true); err != nil || j.Health() != nil {
		t.Errorf("with free space: %v, %v", err, j.Health())
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	on = strings.Join(read(t, dir), "\n")
	if n := strings.Count(on, "call-5"); n != 500 {
		t.Errorf("%d records of reads are on disk", n)
	}
	if found := findings(t, dir, publicKey(t, dir)); found != nil {
		t.Errorf("verify found %q", found)
	}
	info, err := os.Stat(filepath.Join(dir, "journal.reserve"))
	if err != nil || info.Size() != cfg.Reserve || info.Mode().Perm() != 0o600 {
		t.Errorf("the reserve: %+v, %v", info, err)
	}
}

// TestReserveRecovers checks that a journal on its reserve notices free space by itself.
func TestReserveRecovers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a second")
	}
	dir := smallDisk(t, "2m")
	cfg := journal.DefaultConfig()
	cfg.Reserve = 512 << 10
	j := open(t, dir, cfg)
	ballast := filepath.Join(dir, "ballast")
	os.WriteFile(ballast, make([]byte, 2<<20), 0o600)
	for i := range 100 {
		if err := j.Append(entry(i), true); err != nil {
			t.Fatal(err)
		}
	}
	if j.Health() == nil {
		t.Error("the journal is healthy on a full disk")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the journal is healthy", func() bool { return j.Health() == nil })
}
