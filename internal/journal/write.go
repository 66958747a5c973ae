package journal

import (
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// flush writes and syncs a batch. It also syncs what was written before if the batch cannot be
// written, for example outcomes on a full disk.
func (j *Journal) flush(b *batch) error {
	err, _ := j.put(b)
	if failed := j.sync(b.end); err == nil {
		err = failed
	}
	return err
}

// put writes a batch, unless another goroutine has done so meanwhile, which is the usual case
// for a caller that had to wait for the disk. It also returns why intents are refused.
func (j *Journal) put(b *batch) (err, refused error) {
	j.disk.Lock()
	defer j.disk.Unlock()
	if b.done {
		return b.err, b.refused
	}
	j.mu.Lock()
	j.next, j.spare = &batch{entries: j.spare}, nil // b is complete
	dead, failure, lost := j.dead, j.failure, j.lost
	j.mu.Unlock()
	b.done, b.end = true, j.head.seq
	entries := b.entries
	switch {
	case len(entries) == 0 && lost == 0 && (dead || failure == nil || !j.reserve.low()):
		return nil, nil
	case dead:
		b.err, b.refused = failure, failure
		return failure, failure
	}
	left := entries // what is not written
	written := 0
	if failure = errReserve; !j.reserve.low() || j.reserve.fill() == nil {
		if lost > 0 {
			gap := ferrule.Entry{Time: time.Now(), Phase: ferrule.JournalGap, Message: fmt.Sprintf("%d records missing: they could not be written", lost)}
			entries = slices.Concat([]pending{{Entry: gap}}, entries)
		}
		if dead, failure = j.extend(entries); failure == nil {
			written, left = len(entries), nil
		}
	}
	b.err, b.refused = failure, failure
	if isFull(failure) && !dead {
		urgent, rest := forReserve(left)
		if len(urgent) > 0 {
			if dead, b.err = j.extendReserved(urgent); b.err == nil {
				written, left = len(urgent), rest
			}
		}
	}
	b.end = j.head.seq

	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.dead { // a sync may have failed meanwhile
		if was := j.failure; (was == nil) != (failure == nil) {
			j.logHealth(failure)
		}
		j.failure, j.dead = failure, dead
	}
	j.count(written, failure)
	j.checkpointSoon(written)
	if failure == nil {
		j.lost -= lost
		if cap(b.entries) <= 2*maxBatch {
			clear(b.entries)
			j.spare = b.entries[:0]
		}
	} else if !dead && !j.closed {
		j.requeue(left)
	}
	b.entries = nil
	return b.err, b.refused
}

// sync syncs the file up to a record, unless another goroutine has done so meanwhile.
func (j *Journal) sync(seq uint64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.mu.Lock()
	synced, dead, failure := j.synced.seq >= seq, j.dead, j.failure
	j.mu.Unlock()
	switch {
	case synced:
		return nil
	case dead:
		return failure
	}
	j.disk.Lock()
	file, head, end := j.file, j.head, position{j.head.seq, j.size}
	j.disk.Unlock()
	return j.syncFile(file, head, end)
}

// syncFile syncs what was written, up to the given end, and lets Lines return it. A failure is
// permanent: it is unknown what is on disk, and a later sync that succeeds does not change that.
// It is called with syncing held.
func (j *Journal) syncFile(file storage, head link, end position) error {
	start := time.Now()
	err := file.Sync()
	if err == nil {
		j.onSync(time.Since(start))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("journal: %w", err)
		if !j.dead {
			j.logHealth(err)
		}
		j.failure, j.dead = err, true
		j.count(0, err)
		return err
	}
	j.synced, j.syncedHead = end, head
	j.wake()
	return nil
}

// errReserve is the error of records that must not use the reserve.
var errReserve = fmt.Errorf("journal: %w", syscall.ENOSPC)

// extend writes records at the end of the chain. It is called with disk held.
func (j *Journal) extend(entries []pending) (dead bool, err error) {
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

// extendReserved writes records on a full disk, and frees reserved space as needed.
func (j *Journal) extendReserved(entries []pending) (dead bool, err error) {
	for {
		if dead, err = j.extend(entries); dead || !isFull(err) || !j.reserve.release() {
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

// write appends data to the file. After a failed write the file is rolled back.
func (j *Journal) write(data []byte) (dead bool, err error) {
	if _, err := j.file.Write(data); err != nil {
		return j.rollBack() != nil, err
	}
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
