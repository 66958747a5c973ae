package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// disk answers questions about files.
type disk struct {
	me       int // user ID; negative on systems without
	writable func(path string) error
	owner    func(info os.FileInfo) (uid int, ok bool)
	free     func(dir string) (bytes uint64, err error)
}

// otherDirectory is the next step if the data directory cannot be used.
const otherDirectory = "name another directory with --data or FERRULE_DATA"

// directory checks that the data directory can be written, who owns it, and that there
// is free space.
func (d *Doctor) directory(context.Context) []Finding {
	f := Finding{Check: "directory", About: d.data, State: Wrong, Next: otherDirectory}
	if d.data == "" {
		f.Found = "there is no home directory for data"
		return []Finding{f}
	}
	info, err := os.Stat(d.data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return d.missing(f)
	case err != nil:
		f.Found = reason(d.data, err)
		return []Finding{f}
	case !info.IsDir():
		f.Found = d.data + " is not a directory"
		return []Finding{f}
	}
	if err := d.disk.writable(d.data); err != nil {
		f.Found = fmt.Sprintf("%s is not writable: %v", d.data, err)
		return append([]Finding{f}, d.owners(info)...)
	}
	f.State, f.Next, f.Found = Fine, "", d.data+" is writable"
	return append(append([]Finding{f}, d.owners(info)...), d.space(d.data)...)
}

// missing checks whether the data directory can be created.
func (d *Doctor) missing(f Finding) []Finding {
	parent := filepath.Dir(d.data)
	for parent != filepath.Dir(parent) {
		if _, err := os.Stat(parent); !errors.Is(err, os.ErrNotExist) {
			break
		}
		parent = filepath.Dir(parent)
	}
	if err := d.disk.writable(parent); err != nil {
		f.Found = fmt.Sprintf("%s does not exist and cannot be created: %s: %v", d.data, parent, err)
		return []Finding{f}
	}
	f.State, f.Next, f.Found = Fine, "", d.data+" does not exist yet; the gateway creates it"
	return append([]Finding{f}, d.space(parent)...)
}

// owners checks for files that other users own or can access. A gateway that was once run
// by root leaves files that its user cannot write; the next gateway refuses them, and
// corrects permissions.
func (d *Doctor) owners(dir os.FileInfo) []Finding {
	uid, ok := d.disk.owner(dir)
	if !ok {
		return nil
	}
	f := Finding{Check: "owner", About: d.data, State: Wrong}
	if d.disk.me == 0 && uid != 0 {
		f.State, f.Found = Note, fmt.Sprintf("you are root, and %s belongs to user %d, who could not write your files", d.data, uid)
		f.Next = "run ferrule as that user, or " + otherDirectory
		return []Finding{f}
	}
	var all []Finding
	if others := d.foreign(); len(others) > 0 {
		f.Found = "files of another user in the data directory: " + strings.Join(others, ", ")
		f.Next = "run `sudo chown -R $USER " + d.data + "` if they are yours, or " + otherDirectory
		all = append(all, f)
	}
	if open := d.open(); len(open) > 0 {
		f.Check, f.Found = "permissions", "other users can access files of the data directory: "+strings.Join(open, ", ")
		f.Next = "run `chmod -R go= " + d.data + "`; a gateway does it when it starts"
		all = append(all, f)
	}
	return all
}

// maxListed limits how many files a finding names.
const maxListed = 5

// foreign lists files of other users in the data directory, and the directory itself.
func (d *Doctor) foreign() (names []string) {
	filepath.WalkDir(d.data, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // directory reports what cannot be read
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		if uid, ok := d.disk.owner(info); ok && uid != d.disk.me && len(names) < maxListed {
			names = append(names, d.short(path))
		}
		return nil
	})
	return names
}

// open lists files of this user that others can access.
func (d *Doctor) open() (names []string) {
	exposed, _ := datadir.Examine(d.data) // directory reports what cannot be read
	for _, e := range exposed {
		if !e.Foreign && len(names) < maxListed {
			names = append(names, d.short(e.Path))
		}
	}
	return names
}

// short returns the path of a file in the data directory without that directory.
func (d *Doctor) short(path string) string {
	if rel, err := filepath.Rel(d.data, path); err == nil && rel != "." {
		return rel
	}
	return path
}

// space checks the free space. Without it the journal cannot be written, and calls that
// change something are refused.
func (d *Doctor) space(dir string) []Finding {
	const low, minimum = 256 << 20, 16 << 20
	free, err := d.disk.free(dir)
	if err != nil {
		return nil // not known on every system
	}
	f := Finding{Check: "space", About: dir, State: Fine, Found: fmt.Sprintf("%d MB free", free>>20)}
	switch {
	case free < minimum:
		f.State, f.Next = Wrong, "free some space: calls that change something are refused if they cannot be recorded"
	case free < low:
		f.State, f.Next = Note, "free some space soon; the journal needs about 1,000 bytes per call"
	}
	return []Finding{f}
}

// journal checks the end of the journal.
func (d *Doctor) journal(context.Context) []Finding {
	const limit = 4 << 20
	if d.data == "" {
		return nil
	}
	path := filepath.Join(d.data, journal.FileName)
	f := Finding{Check: "journal", About: path, State: Fine}
	if _, err := os.Stat(path); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return nil // directory reports that
		}
		f.Found = "there is no journal yet"
		return []Finding{f}
	}
	report, whole, err := journal.VerifyEnd(d.data, limit)
	switch n := len(report.Findings); {
	case err != nil:
		f.State, f.Found, f.Next = Wrong, "the journal cannot be read: "+reason(path, err), "check who owns the file; calls that change something are refused until it can be written"
	case n > 0:
		f.State, f.Found = Wrong, "the journal is damaged: "+report.Findings[0].What
		f.Next = "run `ferrule audit verify` for all findings; to start a new journal, stop the gateway and move the file away"
	case whole:
		f.Found = fmt.Sprintf("the journal is intact: %d records", report.Records)
	default:
		f.Found = fmt.Sprintf("the end of the journal is intact: %d records; run `ferrule audit verify` to check all of it", report.Records)
	}
	return []Finding{f}
}

// log finds the last error in the log of `ferrule mcp`.
func (d *Doctor) log(context.Context) []Finding {
	if d.data == "" {
		return nil
	}
	path := filepath.Join(d.data, datadir.LogFile)
	f := Finding{Check: "log", About: path, State: Fine, Found: "`ferrule mcp` logs to " + path}
	text, err := tail(path, 64<<10)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.Found += ", which does not exist yet"
		return []Finding{f}
	case err != nil:
		if _, err := os.Stat(d.data); err != nil {
			return nil // directory reports that
		}
		f.State, f.Found, f.Next = Wrong, "the log cannot be read: "+reason(path, err), "check who owns the file"
		return []Finding{f}
	}
	line, when := lastError(text)
	if line == "" {
		return []Finding{f}
	}
	f.Found += "; its last error: " + ferrule.OneLine(ferrule.Clean(line, ferrule.MaxText), 300)
	if d.now().Sub(when) < 24*time.Hour {
		f.State, f.Next = Note, "read the lines before it"
	}
	return []Finding{f}
}

// lastError returns the last error line of a log, and its time.
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
func tail(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// lock reports which process has the data directory locked, if the system tells.
func (d *Doctor) lock(context.Context) []Finding {
	f := Finding{Check: "lock", About: filepath.Join(d.data, datadir.LockFile), State: Fine}
	switch holder := d.gateway.lock; {
	case !d.gateway.lockKnown:
		return nil
	case holder.pid == 0:
		f.Found = "the data directory is not locked"
	default:
		f.Found = fmt.Sprintf("%s has the data directory locked", holder)
	}
	return []Finding{f}
}

// socket reports where commands reach the gateway.
func (d *Doctor) socket(context.Context) []Finding {
	if d.data == "" {
		return nil
	}
	f := Finding{Check: "socket", About: d.gateway.socket, State: Fine}
	if d.gateway.socketErr != nil {
		f.State, f.Found, f.Next = Wrong, "the control socket cannot be created: "+d.gateway.socketErr.Error(), otherDirectory
		return []Finding{f}
	}
	f.Found = "the control socket is " + d.gateway.socket
	if _, err := os.Lstat(d.gateway.socket); errors.Is(err, os.ErrNotExist) {
		f.Found = "the control socket will be " + d.gateway.socket
	} else if errors.Is(d.gateway.err, control.ErrNoGateway) {
		f.Found += ", left by a gateway that ended; the next one replaces it"
	}
	return []Finding{f}
}

// reason returns an error with its path once.
func reason(path string, err error) string {
	var e *os.PathError
	if errors.As(err, &e) {
		return fmt.Sprintf("%s: %v", cmp.Or(e.Path, path), e.Err)
	}
	return err.Error()
}
