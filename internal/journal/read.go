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
	"path/filepath"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxLine is longer than any record.
const maxLine = 1 << 20

// hashLen is the length of a hash in a line, with the space behind it.
const hashLen = 2*sha256.Size + 1

// parseLine takes a line, without its end, apart.
func parseLine(line []byte) (hash [sha256.Size]byte, body []byte, e ferrule.Entry, err error) {
	if len(line) < hashLen || line[hashLen-1] != ' ' {
		return hash, nil, e, errors.New("it does not begin with a hash")
	}
	if _, err := hex.Decode(hash[:], line[:hashLen-1]); err != nil {
		return hash, nil, e, errors.New("it does not begin with a hash")
	}
	body = line[hashLen:]
	if err := json.Unmarshal(body, &e); err != nil {
		return hash, nil, e, fmt.Errorf("what follows the hash is not JSON of a record: %w", err)
	}
	return hash, body, e, nil
}

// lastRecord finds the end of the last whole record, and where in the chain it
// stands.
func lastRecord(file *os.File) (mark, int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return mark{}, 0, err
	}
	tail := make([]byte, min(end, 2*maxLine))
	if _, err := file.ReadAt(tail, end-int64(len(tail))); err != nil && err != io.EOF {
		return mark{}, 0, err
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	size := end - int64(len(tail)-whole)
	if whole == 0 {
		if size > 0 {
			return mark{}, 0, fmt.Errorf("%s has no end of a record in its last %d bytes; move it away to begin a new one", file.Name(), len(tail))
		}
		return mark{}, 0, nil
	}
	line := tail[:whole-1]
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	hash, _, e, err := parseLine(line)
	if err != nil {
		return mark{}, 0, fmt.Errorf("the last record of %s: %w; `ferrule audit verify` tells more, and moving the file away begins a new one", file.Name(), err)
	}
	return mark{e.Seq, hash}, size, nil
}

// Read calls fn with each record of the journal in dir, oldest first. A record
// that is not whole, because it is being written, is left out. It may be called
// while a gateway runs. A line that is damaged is told of when all others were
// read.
func Read(dir string, fn func(ferrule.Entry) error) error {
	damaged, first := 0, error(nil)
	err := lines(dir, func(n int, line []byte) error {
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
		err = fmt.Errorf("the journal has %d damaged lines, and first %w; `ferrule audit verify` tells more", damaged, first)
	}
	return err
}

// open opens the journal in dir to read it.
func open(dir string) (*os.File, error) {
	file, err := os.Open(filepath.Join(dir, FileName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no journal in %s", dir)
	}
	return file, err
}

// lines calls fn with each whole line of the journal and its number.
func lines(dir string, fn func(n int, line []byte) error) error {
	file, err := open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return linesOf(file, fn)
}

// linesOf calls fn with each whole line and its number.
func linesOf(r io.Reader, fn func(n int, line []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for n := 1; ; {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) > maxLine {
				return fmt.Errorf("line %d of the journal has no end", n)
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
