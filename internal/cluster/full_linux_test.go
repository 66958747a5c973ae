package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestFullDisk checks that a full disk is reported, and that everything is recorded once
// there is space again.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir := smallDisk(t)
	cfg := DefaultConfig()
	cfg.Store = engine.MinStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	a.putDevice("first", "arm", ferrule.StateOnline)
	wait.For(t, "recorded", func() bool { return a.lookup("first") != nil })

	free := fill(t, dir)
	n := 0
	wait.For(t, "the full disk is reported", func() bool {
		for range 50 {
			if n < 5000 { // they fit into the store, once the disk has space
				a.putDevice(fmt.Sprint("d", n), "arm", ferrule.StateOnline)
				n++
			}
		}
		return !a.cluster.State().Working
	})
	t.Logf("after %d devices: %s", n, a.cluster.State().Reason)

	free()
	wait.For(t, "everything is recorded", func() bool {
		return a.cluster.State().Working && a.lookup("first") != nil && a.lookup(fmt.Sprint("d", n-1)) != nil
	})
}

// TestFullDiskAtLeaf checks that events wait in memory while a leaf's disk is full, and
// arrive at the hub afterwards.
func TestFullDiskAtLeaf(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir, client, leafPort := smallDisk(t), natscluster.Port(t), natscluster.Port(t)
	hubServer(t, t.TempDir(), client, leafPort)
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Leaf, []string{fmt.Sprintf("nats://127.0.0.1:%d", leafPort)}, 1, 1
	cfg.Store = engine.MinStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	a.putDevice("first", "arm", ferrule.StateOnline)
	waitFor(t, 1, "events at the hub", a.storedEvents)
	free := fill(t, dir)
	const more = 500 // a block is reserved for the first of them
	for i := range more {
		a.putDevice(fmt.Sprint("d", i), "arm", ferrule.StateOnline)
	}
	time.Sleep(3 * time.Second)
	if a.storedEvents() == 1+more {
		t.Error("all events are at the hub: the disk was not full")
	}
	free()
	waitFor(t, 1+more, "events at the hub", a.storedEvents)
}

// waitFor waits until a count is reached, as long as it grows: how fast depends on the
// machine.
func waitFor(t *testing.T, want uint64, what string, count func() uint64) {
	t.Helper()
	most := uint64(0)
	for end := time.Now().Add(wait.Ample); most != want; time.Sleep(20 * time.Millisecond) {
		switch n := count(); {
		case n > most:
			most, end = n, time.Now().Add(wait.Ample)
		case time.Now().After(end):
			t.Fatalf("%d %s, unchanged for %v; want %d", n, what, wait.Ample, want)
		}
	}
}

// TestFullDiskReadings checks that readings wait in memory while the disk is full, and are
// stored afterwards, each once.
func TestFullDiskReadings(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir := smallDisk(t)
	cfg := DefaultConfig()
	cfg.Store = 2 * engine.MinStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	a.measure("robot", 0, 10)
	a.read("").expect(0, 10)
	free := fill(t, dir)
	a.measure("robot", 10, 3000) // more than fit into a block
	time.Sleep(2 * time.Second)
	if a.cluster.State().Unstored == 0 {
		t.Error("all are stored: the disk was not full")
	}
	free()
	wait.For(t, "all are stored", func() bool { return a.cluster.State().Unstored == 0 })
	a.read("").expect(0, 3000)
}

// smallDisk returns a directory on a small file system.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill fills the file system of a directory, until free is called.
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

// TestFullDiskTasks checks that a task is refused while the disk is full, that one that has
// begun can be ended once there is space, and that a restart loses neither.
func TestFullDiskTasks(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir := smallDisk(t)
	cfg := DefaultConfig()
	cfg.Store = engine.MinStore
	a := nodeWith(t, "a", cfg, noJournal{}, dir)
	store := a.cluster.Tasks()
	// A result that cannot be compressed, and does not fit into space that is reserved.
	noise := make([]byte, 600<<10)
	rand.NewChaCha8([32]byte{}).Read(noise)
	result, err := json.Marshal(noise)
	if err != nil {
		t.Fatal(err)
	}
	begun := newTask("BEGUN001")
	var revision uint64
	wait.For(t, "a task is stored", func() bool {
		revision, err = store.Put(t.Context(), begun, 0)
		return err == nil
	})
	free := fill(t, dir)
	ended := *begun
	ended.Status, ended.Result = ferrule.TaskCompleted, result
	if _, err := store.Put(t.Context(), &ended, revision); err == nil {
		t.Error("a result is stored on a full disk")
	} else {
		t.Log(err)
	}
	refused := newTask("REFUSED1")
	refused.Args = result
	if _, err := store.Put(t.Context(), refused, 0); err == nil {
		t.Error("a task is stored on a full disk")
	}
	free()
	wait.For(t, "the result is stored", func() bool {
		_, err := store.Put(t.Context(), &ended, revision)
		return err == nil
	})
	a.stop()
	b := nodeWith(t, "a", cfg, noJournal{}, dir)
	var got *ferrule.Task
	wait.For(t, "the task is there after a restart", func() bool {
		got, _, err = b.cluster.Tasks().Get(t.Context(), begun.ID)
		return err == nil
	})
	if got.Status != ferrule.TaskCompleted || !bytes.Equal(got.Result, result) {
		t.Errorf("got %s with %d bytes", got.Status, len(got.Result))
	}
}
