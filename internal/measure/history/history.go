// Package history stores measurements in an SQLite file. It follows the stream of readings
// of its node.
//
//	cluster ──Readings──▶ batch ──one transaction──▶ raw       each sample
//	                                                 minute    once the minute is over
//	                                                 hour      once the hour is over
//	                                                 gap       where samples may be missing
//	                                                 position  how far the stream was read
//
// The rows and the position are written in one transaction, so each reading is recorded
// exactly once. Samples are stored in the order of writing, batch by batch: adding some
// touches few pages, which spares an SD card, and dropping the oldest touches only theirs.
// A minute is computed from its samples when it is over, and again if a sample comes late.
// Hours are computed from their minutes. Users query the views in schema.go.
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

	write  *sql.DB // one connection, used by Run only
	usable bool    // the file is open and has its tables

	ready chan struct{}     // closed when Run has read the readings that existed at the start
	flush chan flushRequest // asks Run to write what is waiting

	renames chan renameRequest // asks Run to rename a device

	mu        sync.Mutex
	read      *sql.DB
	tracks    map[signal]*track
	perDevice map[string]int // number of signals
	renamed   map[string]newName
	stats     Stats
}

// flushRequest asks for the waiting samples of a signal to be written; of all signals if
// it is zero.
type flushRequest struct {
	signal signal
	done   chan struct{}
}

type signal struct{ device, name string }

// track is the state of one signal.
type track struct {
	signal      signal
	id          int64 // 0 until it is in the file
	unit        string
	state       bool // its values are states
	unitChanged bool // unit and state are not in the file yet
	latest      ferrule.Sample
	// open is the minute of the last sample, which is not computed yet, in minutes since
	// 1970. If done, all minutes are computed, and it is the first minute of the next hour.
	open int64
	done bool
}

// nextHour returns the first minute of the hour after the open one.
func (t *track) nextHour() int64 { return (t.open/minutesPerHour + 1) * minutesPerHour }

// Stats are the figures of a store.
type Stats struct {
	Signals int    `json:"signals"`
	Samples uint64 `json:"samples"` // written since Open
	Refused uint64 `json:"refused"` // samples of signals above the limit
	Bytes   int64  `json:"bytes"`   // size of the file
	Behind  uint64 `json:"behind"`  // readings in the stream that are not read yet
	// Stopped is why nothing is recorded at present, or "".
	Stopped string `json:"stopped,omitempty"`
}

// Open opens or creates a history file. A corrupt file is moved aside. The store must be
// closed.
func Open(path string, cfg Config, log *slog.Logger) (*Store, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, path: path, log: log, ready: make(chan struct{}), flush: make(chan flushRequest), renames: make(chan renameRequest)}
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
	// SQLite would create the file, and those beside it, readable for other users.
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	file.Close()
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

// readers is how many queries may run at the same time.
const readers = 4

// address returns the URI of the file.
func address(path string, readOnly bool) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") && filepath.VolumeName(path) != "" {
		path = "/" + path
	}
	pragmas := []string{"busy_timeout(5000)", "cache_size(-4096)", "temp_store(2)"}
	if readOnly {
		pragmas = append(pragmas, "query_only(1)")
	} else {
		// Writes that a power cut loses are read from the stream again.
		pragmas = append(pragmas, "auto_vacuum(2)", "journal_mode(wal)", "synchronous(1)", "journal_size_limit(16777216)")
	}
	query := url.Values{"_pragma": pragmas}
	if readOnly {
		query.Set("mode", "ro")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
}

// isCorrupt reports whether an error means that the file is not an intact SQLite file.
func isCorrupt(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_NOTADB || e.Code()&0xff == sqlite3.SQLITE_CORRUPT)
}

// moveAside renames a corrupt file. A new one starts with what the stream still has.
func (s *Store) moveAside(cause error) error {
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
	s.log.Error("history file is corrupt: moved to "+filepath.Base(aside)+", starting a new one", "err", cause)
	return nil
}

// Stats returns the current figures. It is safe for concurrent use.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Signals = len(s.tracks)
	return out
}

// Path returns the path of the file.
func (s *Store) Path() string { return s.path }

// Close closes the file. Run must have ended.
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

// reader returns the database for queries.
func (s *Store) reader() *sql.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}
