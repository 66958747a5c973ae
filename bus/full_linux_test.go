package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/rig/cluster"
)

// TestFullDisk: on a full disk nothing is recorded, and the state says so; when
// there is room again, everything is.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	cfg := DefaultConfig()
	cfg.Store = minStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	a.has("first", "arm", ferrule.StateOnline)
	eventually(t, 5*time.Second, "recorded", func() bool { return a.record("first") != nil })

	free := fill(t, dir)
	n := 0
	eventually(t, 20*time.Second, "it says that nothing can be recorded", func() bool {
		for range 50 {
			if n < 5000 { // they have room in the store, once there is some on the disk
				a.has(fmt.Sprint("d", n), "arm", ferrule.StateOnline)
				n++
			}
		}
		return !a.bus.State().Working
	})
	t.Logf("after %d devices: %s", n, a.bus.State().Why)

	free()
	eventually(t, 30*time.Second, "everything is recorded", func() bool {
		return a.bus.State().Working && a.record("first") != nil && a.record(fmt.Sprint("d", n-1)) != nil
	})
}

// TestFullDiskOfALeaf: events wait in memory while there is no room for them, and
// arrive at the hub when there is again.
func TestFullDiskOfALeaf(t *testing.T) {
	t.Parallel()
	dir, client, leafPort := smallDisk(t), cluster.Port(t), cluster.Port(t)
	hubServer(t, t.TempDir(), client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	cfg.Store = minStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	arrived := func(n uint64) func() bool {
		return func() bool {
			h := a.bus.home.Load()
			if h == nil {
				return false
			}
			info, err := h.events.Info(t.Context())
			return err == nil && info.State.Msgs == n
		}
	}
	a.has("first", "arm", ferrule.StateOnline)
	eventually(t, 10*time.Second, "the first event is at the hub", arrived(1))
	free := fill(t, dir)
	const more = 500 // a block is reserved for the first of them
	for i := range more {
		a.has(fmt.Sprint("d", i), "arm", ferrule.StateOnline)
	}
	time.Sleep(3 * time.Second)
	if arrived(1 + more)() {
		t.Error("all events are at the hub: the disk was not full")
	}
	free()
	eventually(t, 40*time.Second, "all events are at the hub", arrived(1+more))
}

// TestFullDiskOfReadings: readings wait in memory while there is no room for them, and are
// kept when there is again, each once.
func TestFullDiskOfReadings(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	cfg := DefaultConfig()
	cfg.Store = 2 * minStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	a.measures("robot", 0, 10)
	a.reads("").has(0, 10)
	free := fill(t, dir)
	a.measures("robot", 10, 3000) // more than a block has room for
	time.Sleep(2 * time.Second)
	if a.bus.State().Unkept == 0 {
		t.Error("all are kept: the disk was not full")
	}
	free()
	eventually(t, 60*time.Second, "all are kept", func() bool { return a.bus.State().Unkept == 0 })
	a.reads("").has(0, 3000)
}

// smallDisk is a directory with little room.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill leaves no room in a directory, until free is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
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
	return func() {
		if err := os.Remove(ballast.Name()); err != nil {
			t.Fatal(err)
		}
	}
}
