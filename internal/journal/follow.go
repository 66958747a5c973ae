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

// Entries takes lines apart: records, and why a line is none.
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

// poll is how often a Reader that follows looks for more.
const poll = 200 * time.Millisecond

// Reader reads the journal of a directory, which a gateway of another process may
// be writing. A record that is not whole, because it is being written, is left for
// later.
type Reader struct {
	dir   string
	file  *os.File
	chain string
	at    place // what was read
}

// OpenReader opens the journal in dir to read it from its first record on.
func OpenReader(dir string) (*Reader, error) {
	file, err := open(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, file: file}
	if r.chain, err = chainAt(file); err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

// Chain is what the journal is known by; empty while it has no record.
func (r *Reader) Chain() string { return r.chain }

// Skip leaves out the records up to a number.
func (r *Reader) Skip(to uint64) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	offset, err := find(r.file, info.Size(), to+1)
	if err == nil {
		r.at = place{to, offset}
	}
	return err
}

// SkipTo leaves out the records that are older than a time, and all but the last bytes of
// the file, so many at most.
func (r *Reader) SkipTo(t time.Time, most int64) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	offset, err := findTime(r.file, info.Size(), t)
	if last := info.Size() - most; err == nil && last > offset {
		offset, _, err = nextRecord(bufio.NewReaderSize(nil, 4096), r.file, last, info.Size())
	}
	r.at = place{0, offset}
	return err
}

// Read calls fn with the lines that were not read yet, until there are no more. If
// follow is set it goes on with what comes, and with a file that takes the place of
// one that was moved away, until ctx ends; it then returns nil.
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
		moved := follow && r.moved() // before all of it was read
		found, err := r.readOn(fn)
		switch {
		case err != nil:
			return err
		case found:
			wait = 0
		case moved:
			r.anew()
			wait = 0
		case !follow:
			return nil
		default:
			wait = poll
		}
	}
}

// Close lets go of the file.
func (r *Reader) Close() error { return r.file.Close() }

// readOn calls fn with the next lines, if there are any.
func (r *Reader) readOn(fn func(ferrule.JournalLines) error) (found bool, err error) {
	info, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() < r.at.offset {
		return false, r.backUp()
	}
	lines, err := readLines(r.file, r.at.offset, info.Size(), ferrule.MaxJournalLines)
	if err != nil || len(lines) == 0 {
		return false, err
	}
	if r.at.offset == 0 {
		r.chain = chainName(lines)
	}
	first, last := span(lines, r.at.seq)
	r.at = place{last, r.at.offset + int64(len(lines))}
	return true, fn(ferrule.JournalLines{Chain: r.chain, First: first, Last: last, Lines: lines})
}

// backUp goes to the end of a file that became shorter: what a full disk did not
// take whole is taken back.
func (r *Reader) backUp() error {
	head, size, err := lastRecord(r.file)
	r.at = place{head.seq, size}
	return err
}

// moved tells whether another file has taken the place of this one.
func (r *Reader) moved() bool {
	now, err := os.Stat(r.file.Name())
	if err != nil {
		return false
	}
	was, err := r.file.Stat()
	return err == nil && !os.SameFile(was, now)
}

// anew goes on with the file that is there now, if it is still there.
func (r *Reader) anew() {
	next, err := OpenReader(r.dir)
	if err != nil {
		return
	}
	r.file.Close()
	*r = *next
}
