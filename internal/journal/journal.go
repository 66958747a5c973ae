// Package journal is the node's record of calls: append-only files whose records are
// chained by their hashes, synced to disk, and signed.
//
//	hash₁ {"seq":1,…}
//	hash₂ {"seq":2,…}      hashₙ = SHA-256(hashₙ₋₁, record n)
//
//	Append ─▶ batch ─▶ one write ─▶ one sync ─▶ Lines, for copies
//	                                  └─ in the background ─▶ checkpoints, journal.head, segments
//
// A durable record is on disk when Append returns; records that arrive while the disk is
// busy share the next sync. A durable outcome is in the file when Append returns, so that it
// outlives the gateway, and on disk soon: with the next intent, or after a few milliseconds.
// A power cut between leaves an intent without an outcome, which says that the call may have
// run. Other records are written within a second. A record becomes part of the chain when it
// is written. If that fails and the caller waits for it, Append returns the error. Records of
// what has happened are then kept, up to a limit, until they can be written; an intent is
// dropped, because its call is not made. On a full disk, durable records other than intents
// are written into reserved space.
//
// Within a minute, or after a thousand records, a checkpoint follows: a record that signs
// the one before it, and so all records up to there, with the key of the node. The newest
// head is also signed in a file of its own. A file that is long or old enough is sealed: it
// ends with a checkpoint, moves to the directory of segments, and the next file begins with
// a checkpoint. Each segment can be verified alone.
//
// Lines returns synced records in order, for copies of the journal. A Verifier checks a
// copy as Verify checks the files, and Holds reports whether they still have the newest
// record of a copy.
package journal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FileName is the journal's file in the data directory.
const FileName = "journal.log"

// Config configures a journal.
type Config struct {
	// Sync is how long a durable record may wait for the disk. Zero syncs it before Append
	// returns, or soon after if it is an outcome. More spares an SD card, but a power cut loses
	// the records of that time.
	Sync time.Duration
	// SegmentSize and SegmentAge are when a segment is sealed; 0 is never.
	SegmentSize int64
	SegmentAge  time.Duration
	// Reserve is the disk space, in bytes, that is kept for outcomes on a full disk.
	Reserve int64
}

// DefaultConfig returns the safest configuration: each durable record is synced at once.
func DefaultConfig() Config {
	return Config{SegmentSize: 64 << 20, SegmentAge: 7 * 24 * time.Hour, Reserve: 1 << 20}
}

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	if c.Sync < 0 || c.Sync > time.Minute {
		return fmt.Errorf("sync: must be always, or an interval of at most a minute, got %v", c.Sync)
	}
	if c.SegmentSize < 1<<20 || c.SegmentSize > 1<<40 {
		return fmt.Errorf("segment_size: must be from 1 to %d MiB, got %d", 1<<20, c.SegmentSize>>20)
	}
	if c.SegmentAge < time.Hour {
		return fmt.Errorf("segment_age: must be at least an hour, got %v", c.SegmentAge)
	}
	return nil
}

// Limits of records that wait to be written.
const (
	lazyDelay       = time.Second           // how long a record that is not durable may wait
	outcomeDelay    = 10 * time.Millisecond // how long an outcome that was written may wait for the sync
	maxBatch        = 128                   // records that are written at once
	maxPending      = 4096                  // records that are kept while writing fails
	maxPendingBytes = 8 << 20               // after a failed write
	maxKeptArgs     = 2 << 10               // bytes of arguments per record while writing fails
)

// Journal appends records. It is safe for concurrent use.
type Journal struct {
	cfg  Config
	log  *slog.Logger
	dir  string
	path string

	// signing is held while the journal is signed or sealed. Lock order: signing, syncing, disk,
	// then mu.
	signing       sync.Mutex
	signingFailed bool

	// syncing is held while the file is synced. Records may be written meanwhile.
	syncing sync.Mutex
	onSync  func(took time.Duration)

	// disk is held while the file is written.
	disk    sync.Mutex
	file    storage   // also guarded by mu, for Lines
	size    int64     // end of the last whole record
	head    link      // the last record
	began   time.Time // when the file was started
	encoder encoder
	reserve *reserve
	key     ed25519.PrivateKey // nil until it could be created

	mu          sync.Mutex
	next        *batch    // records that are not written yet
	spare       []pending // room of a batch that was written, for the next but one
	lost        int       // records that could not be kept
	failure     error     // of the last write, or nil
	dead        bool      // the failure is permanent
	timer       *time.Timer
	due         time.Time // when timer fires
	closed      bool
	info        os.FileInfo   // of file
	chain       string        // the chain's name
	sealed      []segment     // of the chain
	sealedBytes int64         // their size
	first       uint64        // number of the first record in file
	synced      position      // the end of what is certainly on disk
	syncedHead  link          // its last record
	unsigned    int           // records written since the last checkpoint
	overdue     bool          // a checkpoint is to follow soon
	signer      *time.Timer   // of the next checkpoint; nil if all is signed
	headSigned  bool          // the head file is of this chain, or will be soon
	grown       chan struct{} // closed when synced advances; nil while nobody waits
	resumeAt    resume        // where the last call of Lines ended
	ended       bool          // closed, and all is written
	stats       Stats
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

// resume is where Lines continues: a position in the file whose first record is given.
type resume struct {
	first uint64
	position
}

// batch is a group of records that are written together.
type batch struct {
	entries []pending
	done    bool   // written, or err is set; guarded by Journal.disk
	end     uint64 // number of the last record that was written then
	err     error
	refused error // of intents whose callers wait
}

// pending is a record that is not written yet.
type pending struct {
	ferrule.Entry
	awaited bool // the caller waits and gets the error
	durable bool
}

// refusable reports whether the call of an intent is not made if it cannot be written.
func (p *pending) refusable() bool { return p.awaited && p.Phase == ferrule.Intent }

// link is a record's place in the chain.
type link struct {
	seq  uint64
	hash [sha256.Size]byte
}

// Open opens or creates the journal in dir. A record that a power cut left incomplete is
// removed: a call was not made before it was complete.
func Open(dir string, cfg Config, log *slog.Logger) (*Journal, error) {
	if err := finishRotation(dir); err != nil {
		return nil, fmt.Errorf("opening journal: %w", err)
	}
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening journal: %w", err)
	}
	j := &Journal{
		cfg: cfg, log: log, dir: dir, path: path, file: file, next: &batch{}, onSync: func(time.Duration) {},
		reserve: openReserve(dir, cfg.Reserve),
	}
	if err := j.begin(file, dir); err != nil {
		file.Close()
		return nil, fmt.Errorf("opening journal: %w", err)
	}
	if err := j.prepare(); err != nil {
		j.Close()
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
	j.synced, j.syncedHead = position{j.head.seq, j.size}, j.head
	if j.chain, j.first, err = readStart(file); err != nil {
		return err
	}
	if j.began, err = timeAt(file, 0); err != nil {
		return err
	}
	if j.began.IsZero() {
		j.began = time.Now()
	}
	if j.sealed, err = sealedSegments(dir, j.chain, j.first); err != nil {
		return err
	}
	if j.overdue, err = j.isOverdue(file); err != nil {
		return err
	}
	for _, s := range j.sealed {
		if info, err := os.Stat(s.path); err == nil {
			j.sealedBytes += info.Size()
		}
	}
	return nil
}

// isOverdue reports whether the last record is not a checkpoint: a gateway may never run for
// a whole minute.
func (j *Journal) isOverdue(file *os.File) (bool, error) {
	start, err := findSeq(file, j.size, j.head.seq)
	if err != nil {
		return false, err
	}
	line, err := readLines(file, start, j.size, 1)
	if err != nil || len(line) == 0 {
		return false, err
	}
	_, _, e, err := parseLine(bytes.TrimSuffix(line, []byte("\n")))
	return err == nil && e.Phase != ferrule.JournalCheckpoint, nil
}

// prepare opens what the journal can do without for a while: the key and the reserve.
func (j *Journal) prepare() (err error) {
	if err := j.reserve.fill(); err != nil {
		j.log.Warn("journal: no space could be reserved: on a full disk, outcomes may be lost", "err", err)
		j.reserve.size = j.reserve.have // until the next start
	}
	_, missing := os.Stat(filepath.Join(j.dir, KeyFile))
	if j.key, err = makeKey(j.dir); isFull(err) {
		j.log.Error("journal not signed: the key cannot be created", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	return j.compareHead(missing == nil)
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
// too long. If durable, the record is on disk when Append returns nil; an outcome is in the
// file, and on disk soon.
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
	b.entries = append(b.entries, pending{e, wait, durable})
	full := len(b.entries) >= maxBatch && j.failure == nil
	syncNow := wait && e.Phase != ferrule.Outcome
	switch {
	case syncNow:
	case wait:
		j.flushWithin(outcomeDelay)
	case durable:
		j.flushWithin(j.cfg.Sync)
	default:
		j.flushWithin(lazyDelay)
	}
	j.mu.Unlock()
	if !wait && !full {
		return nil
	}
	err, refused := j.put(b)
	if syncNow && err == nil {
		err = j.sync(b.end)
	}
	if wait && e.Phase == ferrule.Intent && refused != nil {
		return refused
	}
	return err
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

// Close writes the pending records, signs the last one, and closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	for _, timer := range []*time.Timer{j.timer, j.signer} {
		if timer != nil {
			timer.Stop()
		}
	}
	b := j.next
	j.mu.Unlock()
	j.signing.Lock()
	defer j.signing.Unlock()
	err := j.flush(b)
	if err == nil {
		j.logSigning(j.signHead())
	}
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.disk.Lock()
	defer j.disk.Unlock()
	j.mu.Lock()
	j.ended = true
	j.wake()
	j.mu.Unlock()
	return errors.Join(err, j.file.Close())
}

// flushLater writes and syncs the pending records when the timer fires.
func (j *Journal) flushLater() {
	j.mu.Lock()
	j.timer = nil
	b := j.next
	j.mu.Unlock()
	j.flush(b) // logs its error
}
