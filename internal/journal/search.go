package journal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// chainLen is the length of a chain's name.
const chainLen = 16

// chainName returns the name of the chain that begins with these lines.
func chainName(lines []byte) string {
	name := lines[:min(len(lines), chainLen)]
	if isChainName(string(name)) {
		return string(name)
	}
	sum := sha256.Sum256(name) // the first hash is damaged, but the chain needs a name
	return hex.EncodeToString(sum[:])[:chainLen]
}

// isChainName reports whether a text can be the name of a chain. Files are named after it.
func isChainName(name string) bool {
	return len(name) == chainLen && strings.Trim(name, "0123456789abcdef") == ""
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

// seqOf returns the number of the record in a line. The start of the line is sufficient.
func seqOf(line []byte) (uint64, bool) {
	if len(line) < hashLen {
		return 0, false
	}
	digits, ok := bytes.CutPrefix(line[hashLen:], []byte(`{"seq":`))
	end := bytes.IndexByte(digits, ',')
	if !ok || end < 0 {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(digits[:end]), 10, 64)
	return seq, err == nil
}

// seqRange returns the first and last number of the records in lines, which follow the
// record after. A damaged line counts as one record.
func seqRange(lines []byte, after uint64) (first, last uint64) {
	last = after
	for line := range bytes.Lines(lines) {
		seq, ok := seqOf(line)
		if !ok {
			seq = last + 1
		}
		if first == 0 {
			first = seq
		}
		last = max(last, seq)
	}
	return first, last
}

// findSeq returns the offset of the first record whose number is at least seq, or end.
func findSeq(file io.ReaderAt, end int64, seq uint64) (int64, error) {
	return search(file, end, func(_ int64, found uint64) (bool, error) { return found < seq, nil })
}

// findTime returns the offset of the first record that is not older than t, or end. If the
// clock was set back, several records qualify.
func findTime(file io.ReaderAt, end int64, t time.Time) (int64, error) {
	return search(file, end, func(start int64, _ uint64) (bool, error) {
		at, err := timeAt(file, start)
		return at.Before(t), err
	})
}

// search finds the first record for which before is false, by bisection.
func search(file io.ReaderAt, end int64, before func(start int64, seq uint64) (bool, error)) (int64, error) {
	low, high := int64(0), end // the record begins in this range
	in := bufio.NewReaderSize(nil, 4096)
	for low < high {
		middle := low + (high-low)/2
		start, found, err := nextRecord(in, file, middle, end)
		if err != nil {
			return 0, err
		}
		early := false
		if start < end {
			if early, err = before(start, found); err != nil {
				return 0, err
			}
		}
		if early {
			low = start + 1
		} else {
			high = middle
		}
	}
	start, _, err := nextRecord(in, file, low, end)
	return start, err
}

// timeAt returns the time of the record at an offset, or the zero time if it is damaged.
func timeAt(file io.ReaderAt, start int64) (time.Time, error) {
	head := make([]byte, hashLen+len(`{"seq":18446744073709551615,"time":"2006-01-02T15:04:05.999999999-07:00"`))
	n, err := file.ReadAt(head, start)
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, err
	}
	_, text, _ := bytes.Cut(head[:n], []byte(`,"time":"`))
	text, _, _ = bytes.Cut(text, []byte(`"`))
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return time.Time{}, nil
	}
	return at, nil
}

// nextRecord returns the offset and number of the first record at or after an offset. It
// skips damaged lines.
func nextRecord(in *bufio.Reader, file io.ReaderAt, offset, end int64) (int64, uint64, error) {
	skip := offset > 0
	if skip {
		offset-- // a record at the offset follows a line end
	}
	in.Reset(io.NewSectionReader(file, offset, end-offset))
	for ; ; skip = true {
		if skip {
			n, err := skipLine(in)
			if offset += n; err != nil || offset >= end {
				return end, 0, ignore(err, io.EOF)
			}
		}
		start, err := in.Peek(hashLen + len(`{"seq":18446744073709551615,`))
		if seq, ok := seqOf(start); ok {
			return offset, seq, nil
		}
		if len(start) == 0 {
			return end, 0, ignore(err, io.EOF)
		}
	}
}

// skipLine reads to the end of a line and returns its length.
func skipLine(in *bufio.Reader) (n int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		n += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err
		}
	}
}

// readLines reads whole lines between offset and end: at least one if there is one, and at
// most limit bytes of several.
func readLines(file io.ReaderAt, offset, end int64, limit int) ([]byte, error) {
	for size := min(int64(max(limit, 1)), end-offset); size > 0; {
		lines := make([]byte, size)
		n, err := file.ReadAt(lines, offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if whole := bytes.LastIndexByte(lines[:n], '\n') + 1; whole > 0 {
			return firstIfLong(lines[:whole:whole], limit), nil
		}
		switch more := min(end-offset, maxLine); {
		case size < more:
			size = min(max(2*size, 4096), more)
		case size >= maxLine:
			return nil, fmt.Errorf("line at byte %d is longer than %d bytes", offset, maxLine)
		default:
			return nil, nil
		}
	}
	return nil, nil
}

// firstIfLong returns lines, or only the first one if they are too long together.
func firstIfLong(lines []byte, limit int) []byte {
	if len(lines) <= limit {
		return lines
	}
	end := bytes.IndexByte(lines, '\n') + 1
	return lines[:end:end]
}

// holds reports whether a file has a record with this number and hash.
func holds(file io.ReaderAt, end int64, seq uint64, hash string) (bool, error) {
	start, err := findSeq(file, end, seq)
	if err != nil {
		return false, err
	}
	line, err := readLines(file, start, end, 1)
	found, ok := seqOf(line)
	return ok && found == seq && string(line[:hashLen-1]) == hash, err
}
