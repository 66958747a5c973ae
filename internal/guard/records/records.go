// Package records keeps small records in a file. A record is on disk when Put returns, so
// that it survives a crash; a full disk makes Put fail and changes nothing.
//
// The file has one line of JSON for each change. The last line of a key counts. The file
// is rewritten when most of its lines are out of date.
package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// File is an open file of records. It is safe for concurrent use.
type File struct {
	path string

	mu    sync.Mutex
	file  disk
	size  int64 // of the lines that count
	torn  bool  // there may be bytes after size
	moved bool  // the directory may not have the file yet
	lines int
	least int // number of lines below which the file is not rewritten
	all   map[string]json.RawMessage
}

// disk is the part of *os.File that a File uses.
type disk interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// line is one change. A line without a value deletes the key.
type line struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"`
}

// maxFile is the largest file that is read: far more than there are outputs.
const maxFile = 256 << 20

// Open opens a file, or creates it. It returns how many lines are unreadable; they are
// skipped. The last line may be incomplete after a crash: then its Put had not returned.
func Open(path string) (f *File, unreadable int, err error) {
	data, err := read(path)
	if err != nil {
		return nil, 0, err
	}
	all, unreadable := parse(data)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size := bytes.LastIndexByte(data, '\n') + 1
	f = &File{path: path, file: file, size: int64(size), torn: size < len(data), moved: true, lines: bytes.Count(data, []byte{'\n'}), least: 1024, all: all}
	return f, unreadable, nil
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes; limit is %d", path, info.Size(), int64(maxFile))
	}
	return os.ReadFile(path)
}

// parse returns the records in a file, and how many complete lines are unreadable.
func parse(data []byte) (all map[string]json.RawMessage, unreadable int) {
	all = make(map[string]json.RawMessage)
	for len(data) > 0 {
		text, rest, complete := bytes.Cut(data, []byte{'\n'})
		data = rest
		var l line
		switch err := json.Unmarshal(text, &l); {
		case !complete:
		case err != nil || l.Key == "":
			unreadable++
		case l.Value == nil || string(l.Value) == "null":
			delete(all, l.Key)
		default:
			all[l.Key] = l.Value
		}
	}
	return all, unreadable
}

// All returns all records.
func (f *File) All() map[string]json.RawMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.all)
}

// Put stores a record. It is on disk if Put returns nil.
func (f *File) Put(key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.append(line{key, data})
}

// Delete deletes a record.
func (f *File) Delete(key string) error {
	f.mu.Lock()
	_, known := f.all[key]
	f.mu.Unlock()
	if !known {
		return nil
	}
	return f.append(line{Key: key})
}

func (f *File) append(l line) error {
	text, err := encode(l)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return os.ErrClosed
	}
	if err := f.settle(); err != nil {
		return err
	}
	if f.torn { // a line after an incomplete one would be unreadable
		if err := f.file.Truncate(f.size); err != nil {
			return err
		}
		f.torn = false
	}
	f.torn = true
	_, err = f.file.WriteAt(text, f.size)
	if err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		f.torn = f.file.Truncate(f.size) != nil
		return err
	}
	f.torn = false
	f.size += int64(len(text))
	f.lines++
	if l.Value == nil {
		delete(f.all, l.Key)
	} else {
		f.all[l.Key] = l.Value
	}
	if f.lines >= f.least && f.lines > 2*len(f.all) {
		f.lines = len(f.all)
		f.rewrite() // if it fails, the file stays longer, or the next Put fails
	}
	return nil
}

func encode(l line) ([]byte, error) {
	text, err := json.Marshal(l)
	return append(text, '\n'), err
}

// rewrite replaces the file by one without lines that are out of date. It is called with
// mu held.
func (f *File) rewrite() error {
	var data []byte
	for _, key := range slices.Sorted(maps.Keys(f.all)) {
		text, err := encode(line{key, f.all[key]})
		if err != nil {
			return err
		}
		data = append(data, text...)
	}
	if err := f.replace(data); err != nil {
		return err
	}
	f.size, f.lines, f.torn = int64(len(data)), len(f.all), false
	return nil
}

// settle makes sure that the new file is found after a crash. Until then nothing may be
// added to it.
func (f *File) settle() error {
	if !f.moved {
		return nil
	}
	if err := SyncDir(filepath.Dir(f.path)); err != nil {
		return err
	}
	f.moved = false
	return nil
}

// SyncDir makes the name of a new file in a directory durable. Otherwise a power failure
// could bring back what it replaced.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // it has no such thing
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// replace writes the file again. If it fails, the old one stays in use.
func (f *File) replace(data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // unless it was renamed
	_, err = next.Write(data)
	if err == nil {
		err = next.Sync()
	}
	if closed := next.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	f.file.Close() // some systems do not replace an open file
	f.file = nil
	err = os.Rename(next.Name(), f.path)
	file, reopened := os.OpenFile(f.path, os.O_RDWR, 0o600)
	if reopened != nil {
		return reopened // Put fails from now on
	}
	f.file, f.moved = file, true
	return err
}

// Close closes the file. Put fails from then on.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
