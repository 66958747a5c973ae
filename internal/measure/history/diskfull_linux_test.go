package history

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestDiskFull checks that a full disk is reported, and that everything is recorded once
// there is space again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	source := newStream()
	o := open(t, filepath.Join(dir, "history.db"), testConfig(), source)
	source.add(reading("robot", "light", 0, time.Second, 1, 2, 3))
	o.wait("the first samples", func() bool { return o.Stats().Samples == 3 })

	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = ballast.Write(block)
	}
	ballast.Close()
	for i := range 200 {
		source.add(reading("robot", "light", time.Duration(10+i*100)*time.Second, time.Second, make([]float64, 100)...))
	}
	o.wait("the store to stop", func() bool { return o.Stats().Stopped != "" })
	t.Logf("after %d samples: %s", o.Stats().Samples, o.Stats().Stopped)
	if latest, err := o.Latest(t.Context(), "robot"); err != nil || len(latest) != 1 {
		t.Errorf("Latest on a full disk: %+v, %v", latest, err)
	}

	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	o.wait("all samples", func() bool { return o.Stats().Stopped == "" && o.number("SELECT count(*) FROM samples") == 20003 })
	o.agrees()
}
