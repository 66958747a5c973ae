// Package journal is the node's own record of calls: a file that only grows,
// whose records are chained by their hashes and synced to disk.
//
//	hash₁ {"seq":1,…}
//	hash₂ {"seq":2,…}      hashₙ = SHA-256(hashₙ₋₁, record n)
//
// A record that must be durable is on disk when Append returns; records that
// come while the disk is busy share its next sync. Others are written within a
// second, and until then cost no more than the memory that they take. A record
// becomes part of the chain when it is written; if it cannot be, and somebody
// waits for it, Append says so. What has happened is then kept, within bounds,
// until it can be written; what was only intended has not happened.
//
// Whoever copies the journal elsewhere takes Lines: what is synced, and in order.
// A Verifier checks a copy as Verify does the file, and Holds tells whether the
// file still has what the copy has.
package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FileName is the journal's file in the data directory.
const FileName = "journal.log"

// Config tells how careful a journal is.
type Config struct {
	// Sync is how long a durable record may wait for the disk. Zero syncs it
	// before Append returns; more spares an SD card, and loses what was
	// recorded in that time when power fails.
	Sync time.Duration
}

// DefaultConfig is the careful one.
func DefaultConfig() Config { return Config{} }

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if c.Sync < 0 || c.Sync > time.Minute {
		return fmt.Errorf("sync: want always, or an interval of at most a minute, got %v", c.Sync)
	}
	return nil
}

// lazy is how long a record that need not be durable may wait, and backlog how
// many of them may.
const (
	lazy        = time.Second
	backlog     = 4096
	maxWaiting  = 8 << 20 // bytes of what is kept of a batch that could not be written
	maxKeptArgs = 2 << 10 // bytes of arguments, while the disk is full
)

// Journal appends records. It is safe for use by many goroutines.
type Journal struct {
	cfg  Config
	log  *slog.Logger
	path string
	made os.FileInfo // the file that was opened

	// disk is held while the file is written. It is taken before mu.
	disk    sync.Mutex
	file    storage
	size    int64 // bytes of the file that hold whole records
	head    mark  // the newest of them
	encoder encoder
	onSync  func(took time.Duration)

	mu      sync.Mutex
	next    *batch // records that are not yet written
	lost    int    // how many could not be kept
	failure error  // why the last write failed, if it did
	dead    bool   // it failed in a way that cannot be mended
	timer   *time.Timer
	due     time.Time // when timer fires
	closed  bool
	chain   string        // what it is known by
	synced  place         // the end of what is on disk for certain
	grown   chan struct{} // closed when there is more of that; nil while nobody waits
	left    place         // where Lines left off
	ended   bool          // closed, and there will be no more
	stats   Stats
}

// place is the end of a record in the file.
type place struct {
	seq    uint64
	offset int64
}

// storage is what a journal does with its file.
type storage interface {
	io.WriteSeeker
	io.ReaderAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// batch is records that are written together.
type batch struct {
	entries []pending
	done    bool // they were written, or err tells why not; guarded by Journal.disk
	err     error
}

// pending is a record that is not yet written.
type pending struct {
	ferrule.Entry
	awaited bool // whoever appended it waits, and is told if it cannot be written
}

// mark is a place in the chain.
type mark struct {
	seq  uint64
	hash [sha256.Size]byte
}

// Open opens the journal in dir, or begins one. A record that was cut off when
// power failed is removed: nobody was told that it had been written.
func Open(dir string, cfg Config, log *slog.Logger) (*Journal, error) {
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening journal: %w", err)
	}
	j := &Journal{cfg: cfg, log: log, path: path, file: file, next: &batch{}, onSync: func(time.Duration) {}}
	if err := j.begin(file, dir); err != nil {
		file.Close()
		return nil, fmt.Errorf("opening journal: %w", err)
	}
	return j, nil
}

// begin finds out where the file ends, and makes that certain.
func (j *Journal) begin(file *os.File, dir string) (err error) {
	if j.head, j.size, err = lastRecord(file); err != nil {
		return err
	}
	if err := cutAt(file, j.size, j.log); err != nil {
		return err
	}
	if err := file.Sync(); err != nil { // whoever wrote it may not have come to it
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	if j.made, err = file.Stat(); err != nil {
		return err
	}
	j.synced = place{j.head.seq, j.size}
	j.chain, err = chainAt(file)
	return err
}

// cutAt makes the file end at size, and the next write begin there.
func cutAt(file *os.File, size int64, log *slog.Logger) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if end > size {
		log.Warn(fmt.Sprintf("journal: removing a record that was cut off after %d bytes", end-size))
		if err := file.Truncate(size); err != nil {
			return err
		}
	}
	_, err = file.Seek(size, io.SeekStart)
	return err
}

// syncDir makes a new file's name durable. Not every system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	d.Sync()
	return d.Close()
}

// Append adds a record, and sets its Seq and, if it has none, its Time. What is
// too long for a record is cut. If it is to be durable, it is on disk when
// Append returns nil.
func (j *Journal) Append(e ferrule.Entry, durable bool) error {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	bound(&e)
	j.mu.Lock()
	if err := j.writable(); err != nil {
		j.mu.Unlock()
		return err
	}
	b := j.next
	wait := durable && (j.cfg.Sync == 0 || j.failure != nil) // on a full disk everyone waits for the truth
	if !wait && j.failure != nil && len(b.entries) >= backlog {
		j.lost++
		err := j.failure
		j.mu.Unlock()
		return err
	}
	if n := len(e.Args); j.failure != nil && n > maxKeptArgs {
		e.Args = ferrule.AppendString(nil, fmt.Sprintf("%d bytes, left out while the disk was full", n))
	}
	b.entries = append(b.entries, pending{e, wait})
	if !wait {
		delay := lazy
		if durable {
			delay = j.cfg.Sync
		}
		j.flushWithin(delay)
	}
	full := len(b.entries) >= backlog && j.failure == nil
	j.mu.Unlock()
	if wait || full {
		return j.flush(b)
	}
	return nil
}

// flushWithin sees to it that what is pending is written in time. It is called
// with mu held.
func (j *Journal) flushWithin(delay time.Duration) {
	due := time.Now().Add(delay)
	switch {
	case j.timer == nil:
		j.timer, j.due = time.AfterFunc(delay, j.flushLater), due
	case due.Before(j.due):
		j.timer.Reset(delay)
		j.due = due
	}
}

func (j *Journal) writable() error {
	switch {
	case j.closed:
		return errors.New("journal: closed")
	case j.dead:
		return j.failure
	}
	return nil
}

// Health is nil while records reach the disk.
func (j *Journal) Health() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.writable(); err != nil {
		return err
	}
	return j.failure
}

// Close writes what is pending and closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	if j.timer != nil {
		j.timer.Stop()
	}
	b := j.next
	j.mu.Unlock()
	err := j.flush(b)
	j.disk.Lock()
	defer j.disk.Unlock()
	j.mu.Lock()
	j.ended = true
	j.wake()
	j.mu.Unlock()
	return errors.Join(err, j.file.Close())
}

// flushLater writes the records that nobody waits for.
func (j *Journal) flushLater() {
	j.mu.Lock()
	j.timer = nil
	b := j.next
	j.mu.Unlock()
	j.flush(b) // it logs what is wrong
}

// flush brings a batch to disk, unless somebody else has: whoever waits for the
// disk meanwhile will mostly find their record there.
func (j *Journal) flush(b *batch) error {
	j.disk.Lock()
	defer j.disk.Unlock()
	if b.done {
		return b.err
	}
	j.mu.Lock()
	j.next = &batch{entries: make([]pending, 0, len(b.entries))} // b is complete
	dead, failure, lost := j.dead, j.failure, j.lost
	j.mu.Unlock()
	b.done = true
	entries := b.entries
	if lost > 0 {
		gap := ferrule.Entry{Time: time.Now(), Phase: ferrule.JournalGap, Message: fmt.Sprintf("%d records are missing: the disk did not take them", lost)}
		entries = slices.Concat([]pending{{gap, false}}, entries)
	}
	switch {
	case len(entries) == 0:
		return nil
	case dead:
		b.err = failure
		return failure
	}

	lines, head := j.encoder.encode(entries, j.head)
	if dead, b.err = j.write(lines); b.err == nil {
		j.head = head
	} else {
		b.err = fmt.Errorf("journal: %w", b.err)
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	if was := j.failure; (was == nil) != (b.err == nil) {
		j.tell(b.err)
	}
	j.failure, j.dead = b.err, dead
	j.count(len(entries), b.err)
	switch {
	case b.err == nil:
		j.lost -= lost
		if j.synced.seq == 0 {
			j.chain = chainName(lines)
		}
		j.synced = place{head.seq, j.size}
		j.wake()
	case !dead && !j.closed:
		j.keep(b.entries)
	}
	b.entries = nil
	return b.err
}

// tell logs that records begin or cease to reach the disk.
func (j *Journal) tell(err error) {
	if err != nil {
		j.log.Error("the journal cannot be written, so nothing may be changed", "err", err)
		return
	}
	j.log.Info("the journal can be written again")
}

// keep has what happened written later, before what comes next. A call whose
// intent was awaited was not made. It is called with mu held.
func (j *Journal) keep(entries []pending) {
	happened := slices.DeleteFunc(entries, func(e pending) bool { return e.awaited && e.Phase == ferrule.Intent })
	size, from := 0, len(happened)
	for ; from > 0 && len(happened)-from+len(j.next.entries) < backlog; from-- {
		e := &happened[from-1]
		if size += len(e.Args) + len(e.Message); size > maxWaiting {
			break
		}
		e.awaited = false // it has been told of
	}
	j.lost += from
	j.next.entries = append(slices.Clone(happened[from:]), j.next.entries...)
	j.flushWithin(lazy)
}

// write appends data to the file and syncs it. After an error the file is as it
// was, or dead: a sync that failed says nothing about what is on disk, and a
// second one that succeeds does not either.
func (j *Journal) write(data []byte) (dead bool, err error) {
	if _, err := j.file.Write(data); err != nil {
		return j.undo() != nil, err
	}
	start := time.Now()
	if err := j.file.Sync(); err != nil {
		return true, err
	}
	j.onSync(time.Since(start))
	j.size += int64(len(data))
	return false, nil
}

func (j *Journal) undo() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}
