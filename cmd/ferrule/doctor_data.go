package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

// disk is what the system tells of files.
type disk struct {
	me       int // the user; negative where users have no number
	writable func(path string) error
	owner    func(info os.FileInfo) (uid int, ok bool)
	free     func(dir string) (bytes uint64, err error)
}

// elsewhere is what to do where the data directory will not do.
const elsewhere = "--data or FERRULE_DATA names another"

// directory looks at the data directory: is it there, may it be written, whose is
// it, and is there room?
func (d *doctor) directory(context.Context) []finding {
	f := finding{Check: "directory", About: d.data, State: wrong, Next: elsewhere}
	if d.data == "" {
		f.Found = "there is no home directory to keep data in"
		return []finding{f}
	}
	info, err := os.Stat(d.data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return d.notThere(f)
	case err != nil:
		f.Found = reason(d.data, err)
		return []finding{f}
	case !info.IsDir():
		f.Found = d.data + " is no directory"
		return []finding{f}
	}
	if err := d.disk.writable(d.data); err != nil {
		f.Found = fmt.Sprintf("%s cannot be written: %v", d.data, err)
		return append([]finding{f}, d.owners(info)...)
	}
	f.State, f.Next, f.Found = fine, "", d.data+" can be written"
	return append(append([]finding{f}, d.owners(info)...), d.space(d.data)...)
}

// notThere tells whether a directory that is not there can be made.
func (d *doctor) notThere(f finding) []finding {
	above := filepath.Dir(d.data)
	for above != filepath.Dir(above) {
		if _, err := os.Stat(above); !errors.Is(err, os.ErrNotExist) {
			break
		}
		above = filepath.Dir(above)
	}
	if err := d.disk.writable(above); err != nil {
		f.Found = fmt.Sprintf("%s is not there and cannot be made: %s: %v", d.data, above, err)
		return []finding{f}
	}
	f.State, f.Next, f.Found = fine, "", d.data+" is not there yet; the first gateway makes it"
	return append([]finding{f}, d.space(above)...)
}

// owners tells of what belongs to somebody else: a gateway that root ran once
// leaves files behind that its user cannot write.
func (d *doctor) owners(dir os.FileInfo) []finding {
	uid, ok := d.disk.owner(dir)
	if !ok {
		return nil
	}
	f := finding{Check: "owner", About: d.data, State: wrong}
	if d.disk.me == 0 && uid != 0 {
		f.State, f.Found = note, fmt.Sprintf("you are root, and %s belongs to user %d, who could not write what you leave there", d.data, uid)
		f.Next = "run ferrule as that user; " + elsewhere
		return []finding{f}
	}
	if uid == d.disk.me && dir.Mode().Perm()&0o022 != 0 {
		f.Found, f.Next = "others can write to "+d.data, "chmod 700 "+d.data
		return []finding{f}
	}
	others := d.foreign(dir)
	if len(others) == 0 {
		return nil
	}
	f.Found = "of another user, in the data directory: " + strings.Join(others, ", ")
	f.Next = "sudo chown -R $USER " + d.data + ", if they are yours; " + elsewhere
	return []finding{f}
}

// foreign is what in the data directory is not ours, and that itself.
func (d *doctor) foreign(dir os.FileInfo) []string {
	const most = 5
	var names []string
	add := func(name string, info os.FileInfo) {
		if uid, ok := d.disk.owner(info); ok && uid != d.disk.me && len(names) < most {
			names = append(names, name)
		}
	}
	add(d.data, dir)
	entries, _ := os.ReadDir(d.data)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			add(e.Name(), info)
		}
	}
	return names
}

// space tells how much room there is: without any, nothing may be changed.
func (d *doctor) space(dir string) []finding {
	const little, least = 256 << 20, 16 << 20
	free, err := d.disk.free(dir)
	if err != nil {
		return nil // not every system tells
	}
	f := finding{Check: "space", About: dir, State: fine, Found: fmt.Sprintf("%d MB are free there", free>>20)}
	switch {
	case free < least:
		f.State, f.Next = wrong, "make room: a call that changes something is refused if it cannot be recorded"
	case free < little:
		f.State, f.Next = note, "make room in time; the journal takes about 600 bytes a call"
	}
	return []finding{f}
}

// journal checks the end of the journal.
func (d *doctor) journal(context.Context) []finding {
	const most = 4 << 20
	if d.data == "" {
		return nil
	}
	path := filepath.Join(d.data, journal.FileName)
	f := finding{Check: "journal", About: path, State: fine}
	if _, err := os.Stat(path); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return nil // it is told of the directory
		}
		f.Found = "there is no journal yet"
		return []finding{f}
	}
	report, whole, err := journal.VerifyEnd(d.data, most)
	switch n := len(report.Findings); {
	case err != nil:
		f.State, f.Found, f.Next = wrong, "the journal cannot be read: "+reason(path, err), "a gateway writes nothing it cannot record; whose is the file?"
	case n > 0:
		f.State, f.Found = wrong, "the journal is not whole: "+report.Findings[0].What
		f.Next = "`ferrule audit verify` tells all; to begin a new one, stop the gateway and move the file away"
	case whole:
		f.Found = fmt.Sprintf("the journal is whole: %d records", report.Records)
	default:
		f.Found = fmt.Sprintf("the end of the journal is whole: %d records; `ferrule audit verify` checks all of it", report.Records)
	}
	return []finding{f}
}

// log finds the last error that a process with an agent has logged.
func (d *doctor) log(context.Context) []finding {
	if d.data == "" {
		return nil
	}
	path := filepath.Join(d.data, logName)
	f := finding{Check: "log", About: path, State: fine, Found: "`ferrule mcp` logs to " + path}
	text, err := tail(path, 64<<10)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.Found += ", and has not yet"
		return []finding{f}
	case err != nil:
		if _, err := os.Stat(d.data); err != nil {
			return nil // it is told of the directory
		}
		f.State, f.Found, f.Next = wrong, "the log cannot be read: "+reason(path, err), "whose is the file?"
		return []finding{f}
	}
	line, when := lastError(text)
	if line == "" {
		return []finding{f}
	}
	f.Found += "; its last error: " + oneLine(ferrule.Clean(line, ferrule.MaxText), 300)
	if d.now().Sub(when) < 24*time.Hour {
		f.State, f.Next = note, "look what stands before it"
	}
	return []finding{f}
}

// lastError is the last line of a log that tells of an error, and its time.
func lastError(log []byte) (line string, when time.Time) {
	for l := range bytes.Lines(log) {
		if bytes.Contains(l, []byte(" level=ERROR ")) {
			line = string(bytes.TrimSpace(l))
		}
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	when, _ = time.Parse(time.RFC3339, first)
	return line, when
}

// tail reads the end of a file.
func tail(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(max(0, info.Size()-most), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// lock tells who has the data directory, where the system tells.
func (d *doctor) lock(context.Context) []finding {
	f := finding{Check: "lock", About: filepath.Join(d.data, lockName), State: fine}
	switch who := d.gateway.lock; {
	case !d.gateway.locks:
		return nil
	case who.pid == 0:
		f.Found = "nobody has the data directory locked"
	default:
		f.Found = fmt.Sprintf("%s has the data directory locked", who)
	}
	return []finding{f}
}

// socket tells where commands reach the gateway.
func (d *doctor) socket(context.Context) []finding {
	if d.data == "" {
		return nil
	}
	f := finding{Check: "socket", About: d.gateway.socket, State: fine}
	if d.gateway.socketErr != nil {
		f.State, f.Found, f.Next = wrong, "there can be no control socket: "+d.gateway.socketErr.Error(), elsewhere
		return []finding{f}
	}
	f.Found = "the control socket is " + d.gateway.socket
	if _, err := os.Lstat(d.gateway.socket); errors.Is(err, os.ErrNotExist) {
		f.Found = "the control socket will be " + d.gateway.socket
	} else if errors.Is(d.gateway.err, errAbsent) {
		f.Found += ", left behind; the next gateway puts another in its place"
	}
	return []finding{f}
}

// reason is an error without the path, which is told before it.
func reason(path string, err error) string {
	var e *os.PathError
	if errors.As(err, &e) {
		return fmt.Sprintf("%s: %v", cmp.Or(e.Path, path), e.Err)
	}
	return err.Error()
}
