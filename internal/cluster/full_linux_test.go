package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
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
	dir, client, leafPort := smallDisk(t), natscluster.Port(t), natscluster.Port(t)
	hubServer(t, t.TempDir(), client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	cfg.Store = minStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	arrived := func() (n uint64) {
		if h := a.bus.home.Load(); h != nil {
			if info, err := h.events.Info(t.Context()); err == nil {
				n = info.State.Msgs
			}
		}
		return n
	}
	a.has("first", "arm", ferrule.StateOnline)
	reaches(t, 1, "events at the hub", arrived)
	free := fill(t, dir)
	const more = 500 // a block is reserved for the first of them
	for i := range more {
		a.has(fmt.Sprint("d", i), "arm", ferrule.StateOnline)
	}
	time.Sleep(3 * time.Second)
	if arrived() == 1+more {
		t.Error("all events are at the hub: the disk was not full")
	}
	free()
	reaches(t, 1+more, "events at the hub", arrived)
}

// reaches waits until there are as many, for as long as there are ever more: how fast they
// come is up to the machine.
func reaches(t *testing.T, want uint64, what string, count func() uint64) {
	t.Helper()
	const still = 40 * time.Second
	most := uint64(0)
	for end := time.Now().Add(still); most != want; time.Sleep(20 * time.Millisecond) {
		switch n := count(); {
		case n > most:
			most, end = n, time.Now().Add(still)
		case time.Now().After(end):
			t.Fatalf("there are %d %s, and no more for %v; want %d", n, what, still, want)
		}
	}
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
