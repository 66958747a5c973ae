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
			return j.linesAfter(after, limit)
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

// linesAfter reads lines after a record and before the synced end. It needs no lock while
// it reads, because nothing before the end changes.
func (j *Journal) linesAfter(after uint64, limit int) (ferrule.JournalLines, error) {
	j.mu.Lock()
	chain, from, sealed, active, end := j.chain, j.resumeAt, j.sealed, j.first, j.synced.offset
	j.mu.Unlock()
	var lines []byte
	var err error
	if after+1 < active {
		for i := containing(sealed, after+1); i < len(sealed) && len(lines) == 0; i++ {
			lines, err = sealedLines(sealed[i], &from, after, limit)
			if errors.Is(err, os.ErrNotExist) { // moved to an archive
				err = nil
			}
			if err != nil {
				return ferrule.JournalLines{}, fmt.Errorf("journal: %w", err)
			}
		}
	}
	if len(lines) == 0 {
		err = j.withFile(active, func(file io.ReaderAt) (err error) {
			lines, err = from.read(file, active, end, after, limit)
			return err
		})
	}
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
	from.seq, from.offset = last, from.offset+int64(len(lines))
	j.resumeAt = from
	return ferrule.JournalLines{Chain: chain, First: first, Last: last, Lines: lines}, nil
}

// sealedLines reads lines of a sealed segment.
func sealedLines(s segment, from *resume, after uint64, limit int) ([]byte, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return from.read(file, s.first, info.Size(), after, limit)
}

// read reads lines after a record from the file whose first record is given. It searches
// only if it does not know the place.
func (r *resume) read(file io.ReaderAt, first uint64, end int64, after uint64, limit int) (lines []byte, err error) {
	if r.first != first || r.seq != after || r.offset == 0 {
		r.first = first
		if r.offset, err = findSeq(file, end, after+1); err != nil {
			return nil, err
		}
	}
	return readLines(file, r.offset, end, limit)
}

// withFile calls fn with the active file whose first record is given, and again with a newly
// opened one if it was closed or sealed meanwhile.
func (j *Journal) withFile(first uint64, fn func(io.ReaderAt) error) error {
	j.mu.Lock()
	file, info, same := j.file, j.info, j.first == first
	j.mu.Unlock()
	err := os.ErrClosed
	if same {
		err = fn(file)
	}
	if !errors.Is(err, os.ErrClosed) {
		return err
	}
	path := j.path
	if !same {
		path = segmentPath(j.dir, j.Chain(), first)
	}
	again, err := os.Open(path)
	if err != nil {
		return err
	}
	defer again.Close()
	if now, err := again.Stat(); same && (err != nil || !os.SameFile(now, info)) {
		return fmt.Errorf("%s was moved away: %w", path, os.ErrClosed)
	}
	return fn(again)
}

// Holds reports whether the journal has a record with this number and hash. A record that
// was moved to an archive cannot be compared and counts as held.
func (j *Journal) Holds(seq uint64, hash string) (has bool, err error) {
	j.mu.Lock()
	first, end, sealed := j.first, j.synced.offset, j.sealed
	j.mu.Unlock()
	if seq < first && first > 1 {
		if len(sealed) == 0 || seq < sealed[0].first {
			return true, nil
		}
		if has, err = sealedHolds(sealed, seq, hash); errors.Is(err, os.ErrNotExist) {
			return true, nil
		}
		return has, err
	}
	err = j.withFile(first, func(file io.ReaderAt) error {
		has, err = holds(file, end, seq, hash)
		return err
	})
	return has, err
}

// sealedHolds reports whether the sealed segments have a record.
func sealedHolds(sealed []segment, seq uint64, hash string) (bool, error) {
	file, err := os.Open(sealed[containing(sealed, seq)].path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	return holds(file, info.Size(), seq, hash)
}
