package history

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestRetention checks that samples are deleted first, then minutes, then hours, and then
// the signal.
func TestRetention(t *testing.T) {
	source := newStream()
	cfg := testConfig()
	o := open(t, filepath.Join(t.TempDir(), "history.db"), cfg, source)
	for at := time.Duration(0); at < 5*time.Hour; at += 10 * time.Second {
		source.add(reading("robot", "light", at, time.Second, 1))
	}
	second := reading("robot", "light", 6*time.Hour, time.Second, 1)
	second.Batches[0].Gaps = []ferrule.Gap{{From: epoch.Add(5 * time.Hour), To: epoch.Add(6 * time.Hour), Reason: ferrule.Silent}}
	source.add(second)
	o.wait("all samples", func() bool { return o.Stats().Samples == 1801 })
	o.settle()
	o.stop()
	s := &Store{}
	var err error
	if s, err = Open(o.path, cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := &running{Store: s, t: t}
	now := epoch.Add(6*time.Hour + time.Minute)
	for _, step := range []struct {
		raw, minutes, hours   time.Duration
		keeps                 string
		samples, mins, hourly float64
	}{
		{6 * time.Hour, maxKept, maxKept, "some samples", 1801 - 6, 301, 6},
		{time.Hour, 3 * time.Hour, maxKept, "some minutes", 1, 120, 6},
		{time.Hour, time.Hour, 2 * time.Hour, "some hours", 1, 1, 2},
	} {
		s.cfg.Raw, s.cfg.Minutes, s.cfg.Hours = step.raw, step.minutes, step.hours
		for range 3 {
			if err := s.cleanUp(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
		raw, mins, hourly := at.number("SELECT count(*) FROM samples"), at.number("SELECT count(*) FROM minutes"), at.number("SELECT count(*) FROM hours")
		if raw < step.samples || raw > step.samples+62 || mins != step.mins || hourly != step.hourly {
			t.Errorf("%s: %v samples, %v minutes, %v hours, want about %v, %v, %v", step.keeps, raw, mins, hourly, step.samples, step.mins, step.hourly)
		}
	}
	s.cfg.Hours = time.Hour
	for range 3 {
		if err := s.cleanUp(t.Context(), now.Add(10*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"signal", "raw", "batch", "minute", "hour", "gap"} {
		if n := at.number("SELECT count(*) FROM " + table); n != 0 {
			t.Errorf("%v rows left in %s", n, table)
		}
	}
	if n := s.Stats().Signals; n != 0 {
		t.Errorf("%d signals left", n)
	}
}

// TestSize checks the size limit, that the newest samples are kept, and the size of a row
// that docs/reference/history.md states.
func TestSize(t *testing.T) {
	source := newStream()
	s, err := Open(filepath.Join(t.TempDir(), "history.db"), testConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const size = minSize / 8 // the race detector slows SQLite thirty times
	s.cfg.Size = size
	o := run(t, s, source)
	const signals, each = 50, 120
	written := uint64(0)
	values := make([]float64, each)
	for at := time.Duration(0); written < 120_000; at += each * 500 * time.Millisecond {
		for i := range signals {
			for j := range values {
				values[j] = float64((i*7919+j*104729)%4096) / 10
			}
			source.add(reading("robot", fmt.Sprint("s", i), at, 500*time.Millisecond, values...))
			written += each
		}
		if written == signals*each*5 { // nothing was deleted yet
			o.wait("the first samples", func() bool { return o.Stats().Samples == written })
			o.settle()
			used, _, err := o.size(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			bytes := float64(used) / float64(written)
			t.Logf("%.1f bytes per sample", bytes)
			if bytes > 40 {
				t.Errorf("%.1f bytes per sample, limit is 40", bytes)
			}
		}
	}
	o.wait("all samples", func() bool { return o.Stats().Samples == written })
	o.settle()
	info, err := os.Stat(o.path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > size {
		t.Errorf("the file has %d bytes, limit is %d", info.Size(), size)
	}
	kept, last := o.number("SELECT count(*) FROM raw"), o.number("SELECT max(time) FROM samples")
	want := float64(epoch.Add(time.Duration(written/signals)*500*time.Millisecond-500*time.Millisecond).UnixMicro()) / 1e6
	if kept < 25_000 || last != want {
		t.Errorf("%v samples kept, the last at %f, want %f", kept, last, want)
	}
	t.Logf("%d bytes; %v of %d samples kept, %v minutes", info.Size(), kept, written, o.number("SELECT count(*) FROM minute"))
}

// TestCorrupt checks that a corrupt file is moved aside.
func TestCorrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	if err := os.WriteFile(path, []byte("not an SQLite file, and long enough to be recognized as such: "+string(make([]byte, 4096))), 0o600); err != nil {
		t.Fatal(err)
	}
	source := newStream()
	source.add(reading("robot", "light", 0, time.Second, 1))
	o := open(t, path, testConfig(), source)
	o.wait("the sample", func() bool { return o.Stats().Samples == 1 })
	if aside, _ := filepath.Glob(path + ".broken-*"); len(aside) != 1 {
		t.Errorf("moved aside: %v", aside)
	}
}

// TestNewer checks that a file of a newer version is left alone.
func TestNewer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	o := open(t, path, testConfig(), newStream())
	o.settle()
	if _, err := o.write.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	o.stop()
	if _, err := Open(path, testConfig(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("opened a file of a newer version")
	}
}
