package journal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// watched is a file that counts syncs and can fail them.
type watched struct {
	*os.File
	mu     sync.Mutex
	synced int64 // size of the file at the last sync
	syncs  int
	fail   error
}

func (w *watched) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return w.fail
	}
	w.syncs++
	w.synced, _ = w.Seek(0, io.SeekCurrent)
	return w.File.Sync()
}

// state returns what was synced, and how often.
func (w *watched) state() (size int64, syncs int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced, w.syncs
}

func watch(t *testing.T) (*Journal, *watched, string) {
	t.Helper()
	dir := t.TempDir()
	j, err := Open(dir, DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	w := &watched{File: j.file.(*os.File)}
	j.file = w
	return j, w, dir
}

// TestDurableIsSynced checks that a record is synced when Append returns, and that
// concurrent records share a sync.
func TestDurableIsSynced(t *testing.T) {
	j, w, dir := watch(t)
	for i := range 5 {
		if err := j.Append(ferrule.Entry{Call: "one"}, true); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, FileName))
		if err != nil || w.synced != info.Size() || w.syncs != i+1 {
			t.Fatalf("%d of %d bytes synced after %d syncs, %v", w.synced, info.Size(), w.syncs, err)
		}
	}
	j.disk.Lock() // twenty records arrive while the disk is busy
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := j.Append(ferrule.Entry{Call: "many"}, true); err != nil {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < 20; {
		j.mu.Lock()
		waiting = len(j.next.entries)
		j.mu.Unlock()
	}
	j.disk.Unlock()
	wg.Wait()
	if w.syncs != 6 {
		t.Errorf("%d syncs for twenty concurrent records", w.syncs-5)
	}
}

// TestOutcomes checks that an outcome is in the file when Append returns, that its caller does
// not wait for the disk, and that it is synced soon: with the next intent or by itself.
func TestOutcomes(t *testing.T) {
	j, w, dir := watch(t)
	const calls = 10
	for i := range calls {
		if err := j.Append(ferrule.Entry{Phase: ferrule.Intent, Call: strconv.Itoa(i)}, true); err != nil {
			t.Fatal(err)
		}
		synced, syncs := w.state()
		j.syncing.Lock() // the disk is busy
		if err := j.Append(ferrule.Entry{Phase: ferrule.Outcome, Call: strconv.Itoa(i)}, true); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, FileName))
		if at, n := w.state(); err != nil || info.Size() <= synced || at != synced || n != syncs {
			t.Fatalf("%d bytes in the file, %d synced by %d syncs, before %d by %d, %v", info.Size(), at, n, synced, syncs, err)
		}
		j.syncing.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	if _, err := j.Lines(ctx, 2*calls-1, 1<<20); err != nil { // the last outcome
		t.Errorf("the last outcome was not synced by itself: %v", err)
	}
}

// TestFailedSync checks that nothing is written after a failed sync.
func TestFailedSync(t *testing.T) {
	j, w, dir := watch(t)
	if err := j.Append(ferrule.Entry{Call: "before"}, true); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is gone")
	w.fail = broken
	if err := j.Append(ferrule.Entry{Call: "lost"}, true); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	w.fail = nil
	j.flushLater() // as the timer does
	for _, durable := range []bool{true, false} {
		if err := j.Append(ferrule.Entry{Call: "after"}, durable); !errors.Is(err, broken) || j.Health() == nil {
			t.Errorf("got %v, health is %v", err, j.Health())
		}
	}
	j.Close()
	report, err := Verify(dir)
	if err != nil || len(report.Findings) > 0 || report.Records > 2 {
		t.Errorf("%+v, %v", report, err)
	}
}

// full is a file that can fail writes, as on a full disk.
type full struct {
	*os.File
	mu    sync.Mutex
	so    bool
	tried int
}

func (f *full) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.so {
		f.tried++
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

func (f *full) tries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tried
}

func (f *full) set(so bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.so = so
}

// fill opens a journal on a full disk.
func fill(t *testing.T, dir string, cfg Config) (*Journal, *full) {
	t.Helper()
	j, err := Open(dir, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := &full{File: j.file.(*os.File), so: true}
	j.file = f
	return j, f
}

// TestKeptOutcomes checks that outcomes wait while the disk is full, that intents, whose
// calls were not made, are dropped, and that lost records are counted.
func TestKeptOutcomes(t *testing.T) {
	for _, test := range []struct {
		outcomes int
		want     string
	}{
		{3, "outcome 0, outcome 1, outcome 2, intent later"},
		{maxPending + 3, "gap 3 records missing: they could not be written, outcome 0, … outcome 4094, outcome 4095, intent later"},
	} {
		dir := t.TempDir()
		j, f := fill(t, dir, DefaultConfig())
		if err := j.Append(ferrule.Entry{Phase: ferrule.Intent, Call: "never"}, true); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		for i := range test.outcomes {
			j.Append(ferrule.Entry{Phase: ferrule.Outcome, Call: strconv.Itoa(i)}, false)
		}
		if err := j.Append(ferrule.Entry{Phase: ferrule.Intent, Call: "nor this"}, true); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		f.set(false)
		j.flushLater()
		if err := j.Append(ferrule.Entry{Phase: ferrule.Intent, Call: "later"}, true); err != nil {
			t.Fatal(err)
		}
		j.Close()
		var got []string
		if err := Read(dir, func(e ferrule.Entry) error {
			got = append(got, string(e.Phase)+" "+e.Call+e.Message)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := len(got); n > 10 {
			got = append(got[:2], append([]string{"… " + got[n-3]}, got[n-2:]...)...)
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
		if report, err := Verify(dir); err != nil || len(report.Findings) > 0 {
			t.Errorf("%+v, %v", report, err)
		}
	}
}

// TestFullDiskCost checks the writes and the memory on a full disk, and that the lost
// records are reported even if no record follows.
func TestFullDiskCost(t *testing.T) {
	dir := t.TempDir()
	j, f := fill(t, dir, DefaultConfig())
	j.Append(ferrule.Entry{Phase: ferrule.Intent}, true)
	args := []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
	for range maxPending + 500 {
		j.Append(ferrule.Entry{Phase: ferrule.Outcome, Args: args}, false)
	}
	size := 0
	j.mu.Lock()
	for _, e := range j.next.entries {
		size += len(e.Args)
	}
	j.mu.Unlock()
	if n := f.tries(); n > 10 || size > 1<<20 {
		t.Errorf("%d writes, %d bytes in memory", n, size)
	}
	f.set(false)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	gaps := 0
	err := Read(dir, func(e ferrule.Entry) error {
		if e.Phase == ferrule.JournalGap && strings.HasPrefix(e.Message, "500 records missing") {
			gaps++
		}
		return nil
	})
	if err != nil || gaps != 1 {
		t.Errorf("%d gaps, %v", gaps, err)
	}
}

// TestDelayedIntents checks that an intent without a waiting caller is kept, because its
// call may have been made.
func TestDelayedIntents(t *testing.T) {
	dir := t.TempDir()
	j, f := fill(t, dir, Config{Sync: time.Minute})
	if err := j.Append(ferrule.Entry{Phase: ferrule.Intent, Call: "made"}, true); err != nil {
		t.Fatal(err)
	}
	j.flushLater()
	f.set(false)
	j.Close()
	var got []string
	if err := Read(dir, func(e ferrule.Entry) error {
		got = append(got, string(e.Phase)+" "+e.Call)
		return nil
	}); err != nil || strings.Join(got, ", ") != "intent made" {
		t.Errorf("got %q, %v", got, err)
	}
}
