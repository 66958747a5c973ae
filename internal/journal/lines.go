package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ErrBehind is returned by Lines if a copy has records that the journal has not:
// its end was cut off.
var ErrBehind = errors.New("the journal is behind its copy")

// Chain is what the journal is known by: the first 16 digits of the hash of its
// first record. It is empty while there is none. A file that its owner moved away
// ends a chain, and the next file begins another.
func (j *Journal) Chain() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.chain
}

// Lines waits until records after the one with the given number are on disk, and
// returns the next of them: one at least, and together at most as many bytes as
// are given, unless one alone is longer. They are the caller's. What is not synced
// is never returned.
//
// If the newest record has a lower number than the given one, the error is
// ErrBehind. When the journal is closed, and all was returned, it is os.ErrClosed.
func (j *Journal) Lines(ctx context.Context, after uint64, most int) (ferrule.JournalLines, error) {
	for {
		synced, grown := j.await(after)
		switch {
		case after > synced.seq:
			return ferrule.JournalLines{}, fmt.Errorf("%w: the copy has record %d, and the newest here is %d", ErrBehind, after, synced.seq)
		case after < synced.seq:
			return j.linesUpTo(synced.offset, after, most)
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

// await tells where the journal ends, and, if that is after the given record, what
// is closed when there is more. This is nil if there will be no more.
func (j *Journal) await(after uint64) (place, <-chan struct{}) {
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

// wake tells those who wait that there is more. It is called with mu held.
func (j *Journal) wake() {
	if j.grown != nil {
		close(j.grown)
		j.grown = nil
	}
}

// linesUpTo reads lines after a record, before the given end. It holds no lock
// meanwhile: what is before the end stays as it is.
func (j *Journal) linesUpTo(end int64, after uint64, most int) (ferrule.JournalLines, error) {
	j.mu.Lock()
	chain, left := j.chain, j.left
	j.mu.Unlock()
	var lines []byte
	err := j.reading(func(file io.ReaderAt) (err error) {
		if left.seq != after || left.offset == 0 {
			if left.offset, err = find(file, end, after+1); err != nil {
				return err
			}
		}
		lines, err = readLines(file, left.offset, end, most)
		return err
	})
	if err == nil && len(lines) == 0 {
		err = fmt.Errorf("its file was cut at byte %d: %w", left.offset, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return ferrule.JournalLines{}, fmt.Errorf("journal: %w", err)
	}
	first, last := span(lines, after)
	j.mu.Lock()
	defer j.mu.Unlock()
	last = min(last, j.synced.seq) // a number that was tampered with leads nowhere
	j.left = place{last, left.offset + int64(len(lines))}
	return ferrule.JournalLines{Chain: chain, First: first, Last: last, Lines: lines}, nil
}

// reading reads the file, even if it is closed meanwhile.
func (j *Journal) reading(fn func(io.ReaderAt) error) error {
	err := fn(j.file)
	if !errors.Is(err, os.ErrClosed) {
		return err
	}
	file, err := os.Open(j.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if now, err := file.Stat(); err != nil || !os.SameFile(now, j.made) {
		return fmt.Errorf("%s was moved away: %w", j.path, os.ErrClosed)
	}
	return fn(file)
}

// Holds tells whether the journal has a record with this number and this hash.
func (j *Journal) Holds(seq uint64, hash string) (has bool, err error) {
	j.mu.Lock()
	end := j.synced.offset
	j.mu.Unlock()
	err = j.reading(func(file io.ReaderAt) error {
		has, err = holds(file, end, seq, hash)
		return err
	})
	return has, err
}
