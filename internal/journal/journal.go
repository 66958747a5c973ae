// Package journal is the node's record of calls: append-only files whose records are
// chained by their hashes, synced to disk, and signed.
//
//	hash₁ {"seq":1,…}
//	hash₂ {"seq":2,…}      hashₙ = SHA-256(hashₙ₋₁, record n)
//
//	Append ─▶ batch ─▶ one write and sync ─▶ Lines, for copies
//	                          └─ in the background ─▶ checkpoints, journal.head, segments
//
// A durable record is on disk when Append returns; records that arrive while the disk is
// busy share the next sync. Other records are written within a second. A record becomes
// part of the chain when it is written. If that fails and the caller waits for it, Append
// returns the error. Records of what has happened are then kept, up to a limit, until they
// can be written; an intent is dropped, because its call is not made. On a full disk,
// durable records other than intents are written into reserved space.
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
	"slices"
	"sync"
	"syscall"
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
	lazyDelay       = time.Second // how long a record that is not durable may wait
	maxPending      = 4096        // records
	maxPendingBytes = 8 << 20     // after a failed write
	maxKeptArgs     = 2 << 10     // bytes of arguments per record while writing fails
)

// Journal appends records. It is safe for concurrent use.
type Journal struct {
	cfg  Config
	log  *slog.Logger
	dir  string
	path string

	// signing is held while the journal is signed or sealed. Lock order: signing, disk, then mu.
	signing       sync.Mutex
	signingFailed bool

	// disk is held while the file is written.
	disk     sync.Mutex
	file     storage   // also guarded by mu, for Lines
	size     int64     // end of the last whole record
	head     link      // the last record
	began    time.Time // when the file was started
	unsynced bool      // a checkpoint was written and not synced
	encoder  encoder
	reserve  *reserve
	key      ed25519.PrivateKey // nil until it could be created
	onSync   func(took time.Duration)

	mu          sync.Mutex
	next        *batch // records that are not written yet
	lost        int    // records that could not be kept
	failure     error  // of the last write, or nil
	dead        bool   // the failure is permanent
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
	unsigned    int           // records synced since the last checkpoint
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
	done    bool // written, or err is set; guarded by Journal.disk
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
// removed: Append never returned for it.
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
	b.entries = append(b.entries, pending{e, wait, durable})
	if !wait {
		delay := lazyDelay
		if durable {
			delay = j.cfg.Sync
		}
		j.flushWithin(delay)
	}
	full := len(b.entries) >= maxPending && j.failure == nil
	j.mu.Unlock()
	if !wait && !full {
		return nil
	}
	err := j.flush(b)
	if wait && e.Phase == ferrule.Intent {
		return b.refused
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
	switch {
	case len(entries) == 0 && lost == 0 && !j.unsynced && (dead || failure == nil || !j.reserve.low()):
		return nil
	case dead:
		b.err, b.refused = failure, failure
		return failure
	}
	left := entries // what is not written
	written := 0
	if failure = errReserve; !j.reserve.low() || j.reserve.fill() == nil {
		if lost > 0 {
			gap := ferrule.Entry{Time: time.Now(), Phase: ferrule.JournalGap, Message: fmt.Sprintf("%d records missing: they could not be written", lost)}
			entries = slices.Concat([]pending{{Entry: gap}}, entries)
		}
		if dead, failure = j.put(entries); failure == nil {
			written, left = len(entries), nil
		}
	}
	b.err, b.refused = failure, failure
	if isFull(failure) && !dead {
		urgent, rest := forReserve(left)
		if len(urgent) > 0 {
			if dead, b.err = j.putReserved(urgent); b.err == nil {
				written, left = len(urgent), rest
			}
		}
	}

	j.advance()
	j.mu.Lock()
	defer j.mu.Unlock()
	if was := j.failure; (was == nil) != (failure == nil) {
		j.logHealth(failure)
	}
	j.failure, j.dead = failure, dead
	j.count(written, failure)
	j.checkpointSoon(written)
	if failure == nil {
		j.lost -= lost
	} else if !dead && !j.closed {
		j.requeue(left)
	}
	b.entries = nil
	return b.err
}

// errReserve is the error of records that must not use the reserve.
var errReserve = fmt.Errorf("journal: %w", syscall.ENOSPC)

// put writes records at the end of the chain. It is called with disk held.
func (j *Journal) put(entries []pending) (dead bool, err error) {
	lines, head := j.encoder.encode(entries, j.head)
	if dead, err = j.write(lines); err != nil {
		return dead, fmt.Errorf("journal: %w", err)
	}
	if j.head.seq == 0 && head.seq > 0 {
		j.mu.Lock()
		j.chain = chainName(lines)
		j.mu.Unlock()
	}
	j.head = head
	return false, nil
}

// putReserved writes records on a full disk, and frees reserved space as needed.
func (j *Journal) putReserved(entries []pending) (dead bool, err error) {
	for {
		if dead, err = j.put(entries); dead || !isFull(err) || !j.reserve.release() {
			return dead, err
		}
	}
}

// forReserve splits records into those that may use the reserve and the others: durable
// records of what has happened, and not what can be refused or is only of interest.
func forReserve(entries []pending) (urgent, rest []pending) {
	for _, e := range entries {
		if e.durable && !e.refusable() {
			urgent = append(urgent, e)
		} else {
			rest = append(rest, e)
		}
	}
	return urgent, rest
}

// advance lets Lines return what was written and synced. It is called with disk held.
func (j *Journal) advance() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.unsynced || j.synced == (position{j.head.seq, j.size}) {
		return
	}
	j.synced, j.syncedHead = position{j.head.seq, j.size}, j.head
	j.wake()
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
	happened := slices.DeleteFunc(entries, func(e pending) bool { return e.refusable() })
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
	j.unsynced = false
	return false, nil
}

func (j *Journal) rollBack() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}
