package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrBehind is returned by Lines if a copy has records that the journal does not have,
// because its end was cut off.
var ErrBehind = errors.New("the journal is behind its copy")

// Chain returns the chain's name: the first 16 digits of its first record's hash, or "" if
// it is empty. When the file is moved away, the next file starts another chain.
func (j *Journal) Chain() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.chain
}

// Lines waits until there are synced records after a given one, and returns the next of
// them: at least one, and at most limit bytes unless the first alone is longer. The caller
// owns the result.
//
// It returns ErrBehind if the given number is higher than that of the newest record, and
// os.ErrClosed if the journal is closed and everything was returned.
func (j *Journal) Lines(ctx context.Context, after uint64, limit int) (ferrule.JournalLines, error) {
	for {
		synced, grown := j.await(after)
		switch {
		case after > synced.seq:
			return ferrule.JournalLines{}, fmt.Errorf("%w: the copy has record %d, the newest here is %d", ErrBehind, after, synced.seq)
		case after < synced.seq:
			return j.linesBefore(synced.offset, after, limit)
		case grown == nil:
			return ferrule.JournalLines{}, fmt.Errorf("journal: %w", os.ErrClosed)
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ferrule.JournalLines{}, ctx.Err()
		}
	}
}

// await returns the end of the journal. If that is the given record, it also returns a
// channel that is closed when there is more, or nil if the journal has ended.
func (j *Journal) await(after uint64) (position, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if after != j.synced.seq || j.ended {
		return j.synced, nil
	}
	if j.grown == nil {
		j.grown = make(chan struct{})
	}
	return j.synced, j.grown
}

// wake wakes the callers of Lines. It is called with mu held.
func (j *Journal) wake() {
	if j.grown != nil {
		close(j.grown)
		j.grown = nil
	}
}

// linesBefore reads lines after a record and before end. It needs no lock, because nothing
// before end changes.
func (j *Journal) linesBefore(end int64, after uint64, limit int) (ferrule.JournalLines, error) {
	j.mu.Lock()
	chain, from := j.chain, j.resumeAt
	j.mu.Unlock()
	var lines []byte
	err := j.withFile(func(file io.ReaderAt) (err error) {
		if from.seq != after || from.offset == 0 {
			if from.offset, err = findSeq(file, end, after+1); err != nil {
				return err
			}
		}
		lines, err = readLines(file, from.offset, end, limit)
		return err
	})
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("file was truncated at byte %d: %w", from.offset, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return ferrule.JournalLines{}, fmt.Errorf("journal: %w", err)
	}
	first, last := seqRange(lines, after)
	j.mu.Lock()
	defer j.mu.Unlock()
	last = min(last, j.synced.seq) // a number may have been tampered with
	j.resumeAt = position{last, from.offset + int64(len(lines))}
	return ferrule.JournalLines{Chain: chain, First: first, Last: last, Lines: lines}, nil
}

// withFile calls fn with the file, and again with a newly opened one if it was closed.
func (j *Journal) withFile(fn func(io.ReaderAt) error) error {
	err := fn(j.file)
	if !errors.Is(err, os.ErrClosed) {
		return err
	}
	file, err := os.Open(j.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if now, err := file.Stat(); err != nil || !os.SameFile(now, j.info) {
		return fmt.Errorf("%s was moved away: %w", j.path, os.ErrClosed)
	}
	return fn(file)
}

// Holds reports whether the journal has a record with this number and hash.
func (j *Journal) Holds(seq uint64, hash string) (has bool, err error) {
	j.mu.Lock()
	end := j.synced.offset
	j.mu.Unlock()
	err = j.withFile(func(file io.ReaderAt) error {
		has, err = holds(file, end, seq, hash)
		return err
	})
	return has, err
}
