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

// TestAcceptOnFullDisk checks that nothing is accepted that cannot be stored.
func TestAcceptOnFullDisk(t *testing.T) {
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(small, syscall.MNT_DETACH) })
	bubble(t, func(t *testing.T, _ string) {
		dir := filepath.Join(small, "data")
		w := open(t, dir)
		b := &board{address: "a1", manifest: door()}
		w.transport.see("g", named(b, "door"))
		b.change(func(m *ferrule.Manifest) { m.Tool("open").Text = "New." })
		offered := w.device("door").Offered
		ballast := filepath.Join(small, "ballast")
		file, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{4096, 1} {
			for err = nil; err == nil; {
				_, err = file.Write(make([]byte, size))
			}
		}
		file.Close()
		var failed error
		for i := 0; failed == nil && i < 100; i++ { // the last page of the store may have room
			if _, failed = w.dock.Label("door", map[string]string{"x": fmt.Sprint(i)}, nil); failed != nil {
				break
			}
		}
		if _, _, err := w.dock.Accept("door", offered); err == nil || w.device("door").Waiting != 1 || w.usable(b, "door")["open"] {
			t.Errorf("accepted on a full disk: %v, %+v", err, w.device("door"))
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		w.stop()
		w = open(t, dir)
		w.transport.see("g", named(b, "door"))
		if w.device("door").Waiting != 1 || w.usable(b, "door")["open"] {
			t.Errorf("accepted after a restart: %+v", w.device("door"))
		}
		if _, _, err := w.dock.Accept("door", offered); err != nil || !w.usable(b, "door")["open"] {
			t.Errorf("with space on the disk: %v", err)
		}
	})
}
