package journal

import (
	"bufio"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Before returns the lines before a record: at least one if there are any, and at most limit
// bytes of several. 0 is after the newest record. It does not change what Read returns next.
// The caller owns the result.
func (r *Reader) Before(seq uint64, limit int) (ferrule.JournalLines, error) {
	last := len(r.files.sealed)
	if seq > 0 && seq <= r.files.first && last > 0 {
		last = containing(r.files.sealed, seq-1)
	}
	for i := last; i >= 0; i-- {
		lines, err := r.fileBefore(i, seq, limit)
		if errors.Is(err, os.ErrNotExist) { // moved to an archive
			continue
		}
		if err != nil || len(lines) > 0 {
			first, to := seqRange(lines, 0)
			return ferrule.JournalLines{Chain: r.files.chain, First: first, Last: to, Lines: lines}, err
		}
	}
	return ferrule.JournalLines{Chain: r.files.chain}, nil
}

// fileBefore reads the lines before a record from a sealed segment, or from the active file
// after the last.
func (r *Reader) fileBefore(i int, seq uint64, limit int) ([]byte, error) {
	file, size, err := r.openFile(i)
	if err != nil {
		return nil, err
	}
	if file != r.files.active {
		defer file.Close()
	}
	end := size
	if seq > 0 {
		if end, err = findSeq(file, size, seq); err != nil {
			return nil, err
		}
	}
	in := bufio.NewReaderSize(nil, 4096)
	for back := int64(max(limit, 1)); ; back *= 2 {
		start := max(0, end-back)
		if start > 0 {
			if start, _, err = nextRecord(in, file, start, end); err != nil {
				return nil, err
			}
		}
		if start < end || start == 0 {
			return readLines(file, start, end, int(end-start))
		}
		if back > 2*maxLine { // damaged lines only
			return readLines(file, max(0, end-back), end, int(back))
		}
	}
}

// openFile returns a sealed segment, which must be closed, or the active file after the last.
func (r *Reader) openFile(i int) (file *os.File, size int64, err error) {
	file = r.files.active
	if i < len(r.files.sealed) {
		if file, err = os.Open(r.files.sealed[i].path); err != nil {
			return nil, 0, err
		}
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// SeqAt returns the number of the first record that is not older than t, or 0 if all are
// older.
func (r *Reader) SeqAt(t time.Time) (uint64, error) {
	in := bufio.NewReaderSize(nil, 4096)
	for i := len(r.files.sealed); i >= 0; i-- {
		file, size, err := r.openFile(i)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		seq, whole, err := seqAt(in, file, size, t)
		if file != r.files.active {
			file.Close()
		}
		if err != nil || !whole || i == 0 {
			if seq == 0 && i < len(r.files.sealed) {
				return r.firstAfter(i), err
			}
			return seq, err
		}
	}
	return 0, nil
}

// firstAfter returns the number of the first record after a sealed segment.
func (r *Reader) firstAfter(i int) uint64 {
	if i+1 < len(r.files.sealed) {
		return r.files.sealed[i+1].first
	}
	return r.files.first
}

// seqAt returns the number of the first record of a file that is not older than t, or 0. It
// reports whether all records of the file are as new.
func seqAt(in *bufio.Reader, file io.ReaderAt, size int64, t time.Time) (seq uint64, whole bool, err error) {
	offset, err := findTime(file, size, t)
	if err != nil || offset >= size {
		return 0, false, err
	}
	_, seq, err = nextRecord(in, file, offset, size)
	return seq, offset == 0, err
}
