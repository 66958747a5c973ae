package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Entries parses lines. It yields each record, or the error of a damaged line.
func Entries(lines []byte) iter.Seq2[ferrule.Entry, error] {
	return func(yield func(ferrule.Entry, error) bool) {
		for line := range bytes.Lines(lines) {
			_, _, e, err := parseLine(bytes.TrimSuffix(line, []byte("\n")))
			if !yield(e, err) {
				return
			}
		}
	}
}

// pollInterval is how often a following Reader checks for new records.
const pollInterval = 200 * time.Millisecond

// Reader reads the journal of a directory, also while another process writes it. It leaves
// an incomplete record for later.
type Reader struct {
	dir      string
	files    chainFiles
	next     int // index of the sealed segment to read after file
	file     *os.File
	position position // how far it has read, in file
}

// OpenReader opens the journal in dir at its first record.
func OpenReader(dir string) (*Reader, error) {
	files, err := openChain(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, files: files}
	if err := r.open(0); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Chain returns the chain's name, or "" while the journal is empty.
func (r *Reader) Chain() string { return r.files.chain }

// open continues at the start of a sealed segment, or of the active file after the last. It
// leaves out segments that were moved to an archive.
func (r *Reader) open(i int) error {
	r.closeSealed()
	r.position.offset = 0
	for ; i < len(r.files.sealed); i++ {
		file, err := os.Open(r.files.sealed[i].path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		r.file, r.next = file, i+1
		return err
	}
	r.file, r.next = r.files.active, len(r.files.sealed)+1
	return nil
}

func (r *Reader) closeSealed() {
	if r.file != nil && r.file != r.files.active {
		r.file.Close()
	}
	r.file = nil
}

// isActive reports whether all sealed segments were read.
func (r *Reader) isActive() bool { return r.file == r.files.active }

// size returns the size of the present file.
func (r *Reader) size() (int64, error) {
	info, err := r.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Skip skips the records up to a number.
func (r *Reader) Skip(to uint64) error {
	i := len(r.files.sealed)
	if to+1 < r.files.first {
		i = containing(r.files.sealed, to+1)
	}
	if err := r.open(i); err != nil {
		return err
	}
	size, err := r.size()
	if err != nil {
		return err
	}
	offset, err := findSeq(r.file, size, to+1)
	if err == nil {
		r.position = position{to, offset}
	}
	return err
}

// SkipTo skips the records that are older than t, and at least everything but the last
// limit bytes.
func (r *Reader) SkipTo(t time.Time, limit int64) error {
	for i := len(r.files.sealed); ; i-- {
		if err := r.open(i); err != nil {
			return err
		}
		size, err := r.size()
		if err != nil {
			return err
		}
		offset, err := findTime(r.file, size, t)
		if last := size - limit; err == nil && last > offset {
			offset, _, err = nextRecord(bufio.NewReaderSize(nil, 4096), r.file, last, size)
		}
		if err != nil || offset > 0 || i == 0 {
			r.position = position{0, offset}
			return err
		}
		limit -= size // and the segment before it may have some
	}
}

// Read calls fn with the unread lines until there are no more. If follow is set, it goes on
// with new lines, and with a new file after the old one was moved away, until ctx ends; then
// it returns nil.
func (r *Reader) Read(ctx context.Context, follow bool, fn func(ferrule.JournalLines) error) error {
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		if err := ctx.Err(); err != nil && follow {
			return nil
		} else if err != nil {
			return err
		}
		moved := follow && r.isActive() && r.moved() // checked before the rest is read
		found, err := r.readNext(fn)
		switch {
		case err != nil:
			return err
		case found:
			wait = 0
		case moved:
			r.reopen()
			wait = 0
		case !follow:
			return nil
		default:
			wait = pollInterval
		}
	}
}

// Close closes the files.
func (r *Reader) Close() error {
	r.closeSealed()
	return r.files.active.Close()
}

// readNext calls fn with the next lines, if there are any.
func (r *Reader) readNext(fn func(ferrule.JournalLines) error) (found bool, err error) {
	size, err := r.size()
	if err != nil {
		return false, err
	}
	if size < r.position.offset {
		return false, r.rewind()
	}
	lines, err := readLines(r.file, r.position.offset, size, ferrule.MaxJournalLines)
	switch {
	case err != nil:
		return false, err
	case len(lines) == 0 && r.isActive():
		return false, nil
	case len(lines) == 0:
		if err := r.open(r.next); err != nil {
			return false, err
		}
		return r.readNext(fn)
	}
	if r.files.chain == "" {
		r.files.chain, _ = chainStart(lines)
	}
	first, last := seqRange(lines, r.position.seq)
	r.position = position{last, r.position.offset + int64(len(lines))}
	return true, fn(ferrule.JournalLines{Chain: r.files.chain, First: first, Last: last, Lines: lines})
}

// rewind moves to the end of a file that became shorter: the journal rolls back a write that
// failed on a full disk.
func (r *Reader) rewind() error {
	head, size, err := lastRecord(r.file)
	r.position = position{head.seq, size}
	return err
}

// moved reports whether another file has replaced the active one.
func (r *Reader) moved() bool {
	now, err := os.Stat(r.files.active.Name())
	if err != nil {
		return false
	}
	was, err := r.files.active.Stat()
	return err == nil && !os.SameFile(was, now)
}

// reopen continues with the files that follow, if there are any: those of the same chain if
// the active file was sealed, or else a new chain.
func (r *Reader) reopen() {
	next, err := OpenReader(r.dir)
	if err != nil {
		return
	}
	if next.files.chain == r.files.chain {
		i := slices.IndexFunc(next.files.sealed, func(s segment) bool { return s.first > r.position.seq })
		if i < 0 {
			i = len(next.files.sealed)
		}
		if err := next.open(i); err != nil {
			next.Close()
			return
		}
		next.position.seq = r.position.seq
	}
	r.Close()
	*r = *next
}
