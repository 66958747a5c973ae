// Package history keeps what was measured: a file of SQLite, which follows the stream of
// readings of its node.
//
//	bus ──Readings──▶ batch, a moment long ──one transaction──▶ raw      each sample
//	                                                            minute   once its minute is over
//	                                                            hour     once its hour is over
//	                                                            gap      where some may be missing
//	                                                            place    how far the stream was read
//
// Place and rows are one transaction, so it goes on exactly where it stopped. Samples stand
// in the order in which they were written, batch by batch: to add some touches few pages,
// which spares an SD card, and to drop the oldest touches only theirs. A minute is counted
// from its samples when it is over, and anew if one comes late; so is an hour from its
// minutes. The views in schema.go are what others may read.
package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Store is the history of one node.
type Store struct {
	cfg  Config
	path string
	log  *slog.Logger

	write  *sql.DB // one connection; Run's alone
	usable bool    // the file is open, and has its tables

	ready chan struct{}     // closed when all was read that there was at first
	flush chan flushRequest // asks for what waits to be written

	mu        sync.Mutex
	read      *sql.DB
	tracks    map[signal]*track
	perDevice map[string]int // how many signals of each device there are
	stats     Stats
}

// wish is that what waits of a signal is written, or all of it if none is named.
type flushRequest struct {
	signal signal
	done   chan struct{}
}

// signal names one signal.
type signal struct{ device, name string }

// track is what is known of one signal.
type track struct {
	signal      signal
	id          int64 // 0 until it was written
	unit        string
	unitChanged bool // the unit is another than was written
	// latest is its last sample.
	latest ferrule.Sample
	// open is the minute that its last sample is in, which is not counted yet; in
	// minutes since 1970. If done, all are counted: it is the first of the next hour.
	open int64
	done bool
}

// nextHour is the minute with which the hour after the open one begins.
func (t *track) nextHour() int64 { return (t.open/minutesPerHour + 1) * minutesPerHour }

// Stats is what can be told about a store.
type Stats struct {
	Signals int    `json:"signals"`
	Samples uint64 `json:"samples"` // written since it was opened
	Refused uint64 `json:"refused"` // of more signals than are kept
	Bytes   int64  `json:"bytes"`   // in the file
	Behind  uint64 `json:"behind"`  // readings that wait to be read
	// Stopped is why nothing is recorded; empty if it is.
	Stopped string `json:"stopped,omitempty"`
}

// Open opens the history in a file, which it makes if there is none. One that cannot be
// read is moved aside. It must be closed.
func Open(path string, cfg Config, log *slog.Logger) (*Store, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, path: path, log: log, ready: make(chan struct{}), flush: make(chan flushRequest)}
	err := s.open()
	if isCorrupt(err) {
		if err := s.moveAside(err); err != nil {
			return nil, err
		}
		err = s.open()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("history: %w", err)
	}
	return s, nil
}

func (s *Store) open() error {
	ctx := context.Background()
	write, err := sql.Open("sqlite", address(s.path, false))
	if err != nil {
		return err
	}
	write.SetMaxOpenConns(1)
	s.write = write
	read, err := sql.Open("sqlite", address(s.path, true))
	if err != nil {
		return err
	}
	read.SetMaxOpenConns(readers)
	s.mu.Lock()
	s.read = read
	s.mu.Unlock()
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if err := s.loadTracks(ctx); err != nil {
		return err
	}
	s.usable = true
	return nil
}

// readers is how many questions are answered at once.
const readers = 4

// address is the file as SQLite wants it named.
func address(path string, readOnly bool) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") && filepath.VolumeName(path) != "" {
		path = "/" + path
	}
	pragmas := []string{"busy_timeout(5000)", "cache_size(-4096)", "temp_store(2)"}
	if readOnly {
		pragmas = append(pragmas, "query_only(1)")
	} else {
		// What a power cut takes is read from the stream again.
		pragmas = append(pragmas, "auto_vacuum(2)", "journal_mode(wal)", "synchronous(1)", "journal_size_limit(16777216)")
	}
	query := url.Values{"_pragma": pragmas}
	if readOnly {
		query.Set("mode", "ro")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
}

// broken tells whether a file is not, or no longer, one of SQLite.
func isCorrupt(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_NOTADB || e.Code()&0xff == sqlite3.SQLITE_CORRUPT)
}

// moveAside lets another file begin. What the stream still has is written to it.
func (s *Store) moveAside(why error) error {
	s.closeFiles()
	aside := s.path + ".broken-" + time.Now().Format("20060102-150405")
	if err := os.Rename(s.path, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("history: %w", err)
	}
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(s.path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("history: %w", err)
		}
	}
	s.log.Error("the history cannot be read; it was moved aside, and begins anew with "+filepath.Base(s.path), "err", why)
	return nil
}

// Stats may be asked for at any time.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Signals = len(s.tracks)
	return out
}

// Path is the file.
func (s *Store) Path() string { return s.path }

// Close lets go of the file. Run has ended before.
func (s *Store) Close() error { return s.closeFiles() }

func (s *Store) closeFiles() error {
	s.usable = false
	var errs []error
	for _, db := range []*sql.DB{s.reader(), s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// reader is the file, for questions.
func (s *Store) reader() *sql.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}
