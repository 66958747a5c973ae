// Package journal is the node's record of calls: an append-only file whose records are
// chained by their hashes and synced to disk.
//
//	hash₁ {"seq":1,…}
//	hash₂ {"seq":2,…}      hashₙ = SHA-256(hashₙ₋₁, record n)
//
//	Append ─▶ batch ─▶ one write and sync ─▶ Lines, for copies
//
// A durable record is on disk when Append returns; records that arrive while the disk is
// busy share the next sync. Other records are written within a second. A record becomes
// part of the chain when it is written. If that fails and the caller waits for it, Append
// returns the error. Records of what has happened are then kept, up to a limit, until they
// can be written; an intent is dropped, because its call is not made.
//
// Lines returns synced records in order, for copies of the journal. A Verifier checks a
// copy as Verify checks the file, and Holds reports whether the file still has the newest
// record of a copy.
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

// Config configures a journal.
type Config struct {
	// Sync is how long a durable record may wait for the disk. Zero syncs it before Append
	// returns. More spares an SD card, but a power cut loses the records of that time.
	Sync time.Duration
}

// DefaultConfig returns the safest configuration: each durable record is synced at once.
func DefaultConfig() Config { return Config{} }

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	if c.Sync < 0 || c.Sync > time.Minute {
		return fmt.Errorf("sync: must be always, or an interval of at most a minute, got %v", c.Sync)
	}
	return nil
}

// Limits of records that wait to be written.
const (
	lazyDelay       = time.Second // how long a record that is not durable may wait
	maxPending      = 4096        // records
	maxPendingBytes = 8 << 20     // after a failed write
	maxKeptArgs     = 2 << 10     // bytes of arguments per record while writing fails
)

// Journal appends records. It is safe for concurrent use.
type Journal struct {
	cfg  Config
	log  *slog.Logger
	path string
	info os.FileInfo // the file that was opened

	// disk is held while the file is written. Lock order: disk, then mu.
	disk    sync.Mutex
	file    storage
	size    int64 // end of the last whole record
	head    link  // the last record
	encoder encoder
	onSync  func(took time.Duration)

	mu       sync.Mutex
	next     *batch // records that are not written yet
	lost     int    // records that could not be kept
	failure  error  // of the last write, or nil
	dead     bool   // the failure is permanent
	timer    *time.Timer
	due      time.Time // when timer fires
	closed   bool
	chain    string        // the chain's name
	synced   position      // the end of what is certainly on disk
	grown    chan struct{} // closed when synced advances; nil while nobody waits
	resumeAt position      // where the last call of Lines ended
	ended    bool          // closed, and all is written
	stats    Stats
}

// position is the end of a record in the file.
type position struct {
	seq    uint64
	offset int64
}

// storage is the file of a journal.
type storage interface {
	io.WriteSeeker
	io.ReaderAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// batch is a group of records that are written together.
type batch struct {
	entries []pending
	done    bool // written, or err is set; guarded by Journal.disk
	err     error
}

// pending is a record that is not written yet.
type pending struct {
	ferrule.Entry
	awaited bool // the caller waits and gets the error
}

// link is a record's place in the chain.
type link struct {
	seq  uint64
	hash [sha256.Size]byte
}

// Open opens or creates the journal in dir. A record that a power cut left incomplete is
// removed: Append never returned for it.
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

// begin finds the end of the file and syncs it.
func (j *Journal) begin(file *os.File, dir string) (err error) {
	if j.head, j.size, err = lastRecord(file); err != nil {
		return err
	}
	if err := truncateAt(file, j.size, j.log); err != nil {
		return err
	}
	if err := file.Sync(); err != nil { // the last writer may have crashed before its sync
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	if j.info, err = file.Stat(); err != nil {
		return err
	}
	j.synced = position{j.head.seq, j.size}
	j.chain, err = readChainName(file)
	return err
}

// truncateAt makes the file end at size, and the next write start there.
func truncateAt(file *os.File, size int64, log *slog.Logger) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if end > size {
		log.Warn(fmt.Sprintf("journal: removing an incomplete record of %d bytes", end-size))
		if err := file.Truncate(size); err != nil {
			return err
		}
	}
	_, err = file.Seek(size, io.SeekStart)
	return err
}

// syncDir makes the name of a new file durable, if the system supports it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	d.Sync()
	return d.Close()
}

// Append adds a record. It sets Seq, and Time if that is zero, and shortens values that are
// too long. If durable, the record is on disk when Append returns nil.
func (j *Journal) Append(e ferrule.Entry, durable bool) error {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	limit(&e)
	j.mu.Lock()
	if err := j.writable(); err != nil {
		j.mu.Unlock()
		return err
	}
	b := j.next
	wait := durable && (j.cfg.Sync == 0 || j.failure != nil) // while writes fail, each caller gets its result
	if !wait && j.failure != nil && len(b.entries) >= maxPending {
		j.lost++
		err := j.failure
		j.mu.Unlock()
		return err
	}
	if n := len(e.Args); j.failure != nil && n > maxKeptArgs {
		e.Args = ferrule.AppendString(nil, fmt.Sprintf("%d bytes, omitted while the journal could not be written", n))
	}
	b.entries = append(b.entries, pending{e, wait})
	if !wait {
		delay := lazyDelay
		if durable {
			delay = j.cfg.Sync
		}
		j.flushWithin(delay)
	}
	full := len(b.entries) >= maxPending && j.failure == nil
	j.mu.Unlock()
	if wait || full {
		return j.flush(b)
	}
	return nil
}

// flushWithin schedules a flush of the pending records. It is called with mu held.
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

// Health returns nil while records reach the disk, else the reason.
func (j *Journal) Health() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.writable(); err != nil {
		return err
	}
	return j.failure
}

// Close writes the pending records and closes the file.
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

// flushLater flushes the pending records when the timer fires.
func (j *Journal) flushLater() {
	j.mu.Lock()
	j.timer = nil
	b := j.next
	j.mu.Unlock()
	j.flush(b) // logs its error
}

// flush writes and syncs a batch, unless another goroutine has done so meanwhile, which is
// the usual case for a caller that had to wait for the disk.
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
		gap := ferrule.Entry{Time: time.Now(), Phase: ferrule.JournalGap, Message: fmt.Sprintf("%d records missing: they could not be written", lost)}
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
		j.logHealth(b.err)
	}
	j.failure, j.dead = b.err, dead
	j.count(len(entries), b.err)
	switch {
	case b.err == nil:
		j.lost -= lost
		if j.synced.seq == 0 {
			j.chain = chainName(lines)
		}
		j.synced = position{head.seq, j.size}
		j.wake()
	case !dead && !j.closed:
		j.requeue(b.entries)
	}
	b.entries = nil
	return b.err
}

// logHealth logs that writing starts or stops to fail.
func (j *Journal) logHealth(err error) {
	if err != nil {
		j.log.Error("journal write failed: calls that change a device are refused until it works", "err", err)
		return
	}
	j.log.Info("journal is written again")
}

// requeue keeps records of a failed batch for the next write, within the limits. An awaited
// intent is dropped, because its call was not made. It is called with mu held.
func (j *Journal) requeue(entries []pending) {
	happened := slices.DeleteFunc(entries, func(e pending) bool { return e.awaited && e.Phase == ferrule.Intent })
	size, from := 0, len(happened)
	for ; from > 0 && len(happened)-from+len(j.next.entries) < maxPending; from-- {
		e := &happened[from-1]
		if size += len(e.Args) + len(e.Message); size > maxPendingBytes {
			break
		}
		e.awaited = false // its caller has the error
	}
	j.lost += from
	j.next.entries = append(slices.Clone(happened[from:]), j.next.entries...)
	j.flushWithin(lazyDelay)
}

// write appends data to the file and syncs it. After a failed write the file is rolled back.
// A failed sync is permanent: it is unknown what is on disk, and a later sync that succeeds
// does not change that.
func (j *Journal) write(data []byte) (dead bool, err error) {
	if _, err := j.file.Write(data); err != nil {
		return j.rollBack() != nil, err
	}
	start := time.Now()
	if err := j.file.Sync(); err != nil {
		return true, err
	}
	j.onSync(time.Since(start))
	j.size += int64(len(data))
	return false, nil
}

func (j *Journal) rollBack() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}
