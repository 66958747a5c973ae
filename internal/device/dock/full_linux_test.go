package dock_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestStoreOnFullDisk checks that an incomplete line does not damage the next one.
func TestStoreOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	open := func() *dock.Store {
		m, err := dock.OpenStore(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	keep := func(id string) error {
		return m.Keep(&ferrule.Device{ID: id, Address: id, Trust: ferrule.TrustAdopted, State: ferrule.StateOffline}, nil)
	}
	if err := keep("robot"); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 48<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; keep(fmt.Sprint("filler-", n)) == nil; n++ {
		if n == 1000 {
			t.Fatal("the disk is never full")
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := m.Forget("robot"); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = open()
	defer m.Close()
	if _, ok := m.Get("robot"); ok {
		t.Error("robot was forgotten, and is back")
	}
	if got := len(m.Devices()); got != n+1 {
		t.Errorf("%d devices are remembered, want %d", got, n+1)
	}
}
