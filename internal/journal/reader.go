package journal

import (
	"bufio"
	"bytes"
	"context"
	"iter"
	"os"
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
	file     *os.File
	chain    string
	position position // how far it has read
}

// OpenReader opens the journal in dir at its first record.
func OpenReader(dir string) (*Reader, error) {
	file, err := open(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, file: file}
	if r.chain, err = readChainName(file); err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

// Chain returns the chain's name, or "" while the journal is empty.
func (r *Reader) Chain() string { return r.chain }

// Skip skips the records up to a number.
func (r *Reader) Skip(to uint64) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	offset, err := findSeq(r.file, info.Size(), to+1)
	if err == nil {
		r.position = position{to, offset}
	}
	return err
}

// SkipTo skips the records that are older than t, and at least everything but the last
// limit bytes.
func (r *Reader) SkipTo(t time.Time, limit int64) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	offset, err := findTime(r.file, info.Size(), t)
	if last := info.Size() - limit; err == nil && last > offset {
		offset, _, err = nextRecord(bufio.NewReaderSize(nil, 4096), r.file, last, info.Size())
	}
	r.position = position{0, offset}
	return err
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
		moved := follow && r.moved() // checked before the rest is read
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

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// readNext calls fn with the next lines, if there are any.
func (r *Reader) readNext(fn func(ferrule.JournalLines) error) (found bool, err error) {
	info, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() < r.position.offset {
		return false, r.rewind()
	}
	lines, err := readLines(r.file, r.position.offset, info.Size(), ferrule.MaxJournalLines)
	if err != nil || len(lines) == 0 {
		return false, err
	}
	if r.position.offset == 0 {
		r.chain = chainName(lines)
	}
	first, last := seqRange(lines, r.position.seq)
	r.position = position{last, r.position.offset + int64(len(lines))}
	return true, fn(ferrule.JournalLines{Chain: r.chain, First: first, Last: last, Lines: lines})
}

// rewind moves to the end of a file that became shorter: the journal rolls back a write that
// failed on a full disk.
func (r *Reader) rewind() error {
	head, size, err := lastRecord(r.file)
	r.position = position{head.seq, size}
	return err
}

// moved reports whether another file has replaced this one.
func (r *Reader) moved() bool {
	now, err := os.Stat(r.file.Name())
	if err != nil {
		return false
	}
	was, err := r.file.Stat()
	return err == nil && !os.SameFile(was, now)
}

// reopen switches to the new file, if it exists.
func (r *Reader) reopen() {
	next, err := OpenReader(r.dir)
	if err != nil {
		return
	}
	r.file.Close()
	*r = *next
}
