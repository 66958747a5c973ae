package journal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxLine is longer than any record.
const maxLine = 1 << 20

// hashLen is the length of a line's hash and the space after it.
const hashLen = 2*sha256.Size + 1

// parseLine parses a line without its line end.
func parseLine(line []byte) (hash [sha256.Size]byte, body []byte, e ferrule.Entry, err error) {
	if len(line) < hashLen || line[hashLen-1] != ' ' {
		return hash, nil, e, errors.New("no hash at the start")
	}
	if _, err := hex.Decode(hash[:], line[:hashLen-1]); err != nil {
		return hash, nil, e, errors.New("no hash at the start")
	}
	body = line[hashLen:]
	if err := json.Unmarshal(body, &e); err != nil {
		return hash, nil, e, fmt.Errorf("no JSON record after the hash: %w", err)
	}
	return hash, body, e, nil
}

// lastRecord returns the last whole record and its end.
func lastRecord(file *os.File) (link, int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return link{}, 0, err
	}
	tail := make([]byte, min(end, 2*maxLine))
	if _, err := file.ReadAt(tail, end-int64(len(tail))); err != nil && err != io.EOF {
		return link{}, 0, err
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	size := end - int64(len(tail)-whole)
	if whole == 0 {
		if size > 0 {
			return link{}, 0, fmt.Errorf("%s has no complete record in its last %d bytes: move the file away to start a new journal", file.Name(), len(tail))
		}
		return link{}, 0, nil
	}
	line := tail[:whole-1]
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	hash, _, e, err := parseLine(line)
	if err != nil {
		return link{}, 0, fmt.Errorf("last record of %s: %w; run `ferrule audit verify` for details, or move the file away to start a new journal", file.Name(), err)
	}
	return link{e.Seq, hash}, size, nil
}

// Read calls fn with each record of the journal in dir, the oldest first. An incomplete
// record at the end is left out, so it may be called while a gateway writes. Damaged lines
// are skipped and reported at the end.
func Read(dir string, fn func(ferrule.Entry) error) error {
	damaged, first := 0, error(nil)
	err := eachLineIn(dir, func(n int, line []byte) error {
		_, _, e, err := parseLine(line)
		if err != nil {
			if damaged++; damaged == 1 {
				first = fmt.Errorf("line %d: %w", n, err)
			}
			return nil
		}
		return fn(e)
	})
	if err == nil && damaged > 0 {
		err = fmt.Errorf("the journal has %d damaged lines, the first is %w; run `ferrule audit verify` for details", damaged, first)
	}
	return err
}

// eachLineIn calls fn with each whole line of the journal in dir and its number.
func eachLineIn(dir string, fn func(n int, line []byte) error) error {
	files, err := openChain(dir)
	if err != nil {
		return err
	}
	defer files.active.Close()
	before := 0
	return files.each(func(_ string, file *os.File) error {
		n := 0
		err := eachLine(file, func(i int, line []byte) error {
			n = i
			return fn(before+i, line)
		})
		before += n
		return err
	})
}

// eachLine calls fn with each whole line and its number.
func eachLine(r io.Reader, fn func(n int, line []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for n := 1; ; {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) > maxLine {
				return fmt.Errorf("line %d of the journal is longer than %d bytes", n, maxLine)
			}
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := fn(n, line[:len(line)-1]); err != nil {
			return err
		}
		line = line[:0]
		n++
	}
}
