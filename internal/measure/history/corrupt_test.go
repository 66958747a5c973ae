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

// breaking is a source that breaks off once, with an error, after what there is.
type breaking struct {
	*tape
	err   error
	broke func() // is called then, and nil after
}

func (b *breaking) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	return b.tape.Readings(ctx, after, func(r ferrule.StoredReading) error {
		if err := fn(r); err != nil || r.Remaining > 0 || b.broke == nil {
			return err
		}
		b.broke()
		b.broke = nil
		return b.err
	})
}

// unreadable is what SQLite says of a file that is none of its own.
func unreadable(t *testing.T) error {
	path := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(path, []byte(strings.Repeat("no file of SQLite ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Store{path: path}
	defer s.Close()
	err := s.open()
	if !isCorrupt(err) {
		t.Fatalf("it is readable: %v", err)
	}
	return err
}

// A file that turns out to be broken while it is written is moved aside, whoever asks for
// what is in it; and if another cannot be begun at once, it is later.
func TestBreaks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	wal := path + "-wal" // where something is in the way
	source := &breaking{newTape(), unreadable(t), func() {
		os.Remove(wal)
		if err := os.MkdirAll(filepath.Join(wal, "in the way"), 0o700); err != nil {
			t.Error(err)
		}
	}}
	source.add(reading("robot", "light", 0, time.Second, 1, 2, 3))
	s, err := Open(path, testConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, s, source)
	ask := func() int {
		curves, err := o.Past(t.Context(), ferrule.HistoryQuery{Device: "robot", From: epoch, To: epoch.Add(time.Minute)})
		if err != nil || len(curves) == 0 {
			return 0
		}
		return len(curves[0].Points)
	}
	o.wait("it is moved aside", func() bool {
		ask()
		aside, _ := filepath.Glob(path + ".broken-*")
		return len(aside) == 1 && o.Stats().Stopped != ""
	})
	if err := os.RemoveAll(wal); err != nil {
		t.Fatal(err)
	}
	o.wait("another has all that the stream has", func() bool { return ask() == 3 && o.Stats().Stopped == "" })
}
