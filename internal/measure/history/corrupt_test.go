package history

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// breaking is a source that fails once, after its readings.
type breaking struct {
	*stream
	err   error
	broke func() // called then; nil after
}

func (b *breaking) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	return b.stream.Readings(ctx, after, func(r ferrule.StoredReading) error {
		if err := fn(r); err != nil || r.Remaining > 0 || b.broke == nil {
			return err
		}
		b.broke()
		b.broke = nil
		return b.err
	})
}

// corruption returns the error of SQLite for a file that is not a database.
func corruption(t *testing.T) error {
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, []byte(strings.Repeat("not an SQLite file ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Store{path: path}
	defer s.Close()
	err := s.open()
	if !isCorrupt(err) {
		t.Fatalf("the error does not count as corruption: %v", err)
	}
	return err
}

// TestCorruptWhileRunning checks that a file that becomes corrupt is moved aside while
// others read it, and that a new file is retried until it can be created.
func TestCorruptWhileRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	wal := path + "-wal" // blocked by a folder
	source := &breaking{newStream(), corruption(t), func() {
		os.Remove(wal)
		if err := os.MkdirAll(filepath.Join(wal, "blocker"), 0o700); err != nil {
			t.Error(err)
		}
	}}
	source.add(reading("robot", "light", 0, time.Second, 1, 2, 3))
	s, err := Open(path, testConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, s, source)
	points := func() int {
		series, err := o.Series(t.Context(), ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(time.Minute)})
		if err != nil || len(series) == 0 {
			return 0
		}
		return len(series[0].Points)
	}
	o.wait("the file moved aside", func() bool {
		points()
		aside, _ := filepath.Glob(path + ".broken-*")
		return len(aside) == 1 && o.Stats().Stopped != ""
	})
	if err := os.RemoveAll(wal); err != nil {
		t.Fatal(err)
	}
	o.wait("a new file with the readings of the stream", func() bool { return points() == 3 && o.Stats().Stopped == "" })
}
