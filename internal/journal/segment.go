package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SegmentDir is the directory of sealed segments in the data directory.
const SegmentDir = "journal"

// nextFile is the next segment while it is being started.
const nextFile = FileName + ".next"

// segment is a sealed part of a journal: a file that is not written any more. Its first
// record is a checkpoint, unless it begins the chain, and so is its last.
type segment struct {
	path  string
	first uint64 // number of its first record
}

func segmentPath(dir, chain string, first uint64) string {
	return filepath.Join(dir, SegmentDir, fmt.Sprintf("%s-%020d.log", chain, first))
}

// parseSegmentName returns the chain and the first record of a segment.
func parseSegmentName(name string) (chain string, first uint64, ok bool) {
	chain, rest, _ := strings.Cut(name, "-")
	digits, isLog := strings.CutSuffix(rest, ".log")
	first, err := strconv.ParseUint(digits, 10, 64)
	return chain, first, isLog && err == nil && len(digits) == 20 && isChainName(chain) && first > 0
}

// sealedSegments returns the sealed segments of a chain with a number below a limit, in
// order. Those of other chains are older journals.
func sealedSegments(dir, chain string, below uint64) ([]segment, error) {
	entries, err := os.ReadDir(filepath.Join(dir, SegmentDir))
	if err != nil {
		return nil, ignore(err, os.ErrNotExist)
	}
	var all []segment
	for _, e := range entries {
		if of, first, ok := parseSegmentName(e.Name()); ok && of == chain && first < below {
			all = append(all, segment{filepath.Join(dir, SegmentDir, e.Name()), first})
		}
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	return all, nil
}

// Segments returns the paths of all sealed segments in dir, in order. There may be several
// chains.
func Segments(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, SegmentDir)) // sorted by name
	var all []string
	for _, e := range entries {
		if _, _, ok := parseSegmentName(e.Name()); ok {
			all = append(all, filepath.Join(dir, SegmentDir, e.Name()))
		}
	}
	return all, ignore(err, os.ErrNotExist)
}

// containing returns the index of the segment that should have a record.
func containing(all []segment, seq uint64) int {
	i, found := slices.BinarySearchFunc(all, seq, func(s segment, seq uint64) int { return cmp.Compare(s.first, seq) })
	if !found && i > 0 {
		i--
	}
	return i
}

// chainFiles is a journal as it is on disk: sealed segments, and the file that is written.
type chainFiles struct {
	chain  string // "" if the journal is empty
	sealed []segment
	active *os.File
	first  uint64 // number of the first record in active
}

// openChain opens the journal in dir for reading.
func openChain(dir string) (chainFiles, error) {
	file, err := os.Open(filepath.Join(dir, FileName))
	if errors.Is(err, os.ErrNotExist) {
		return chainFiles{}, fmt.Errorf("no journal in %s", dir)
	}
	if err != nil {
		return chainFiles{}, err
	}
	c := chainFiles{active: file}
	if c.chain, c.first, err = readStart(file); err == nil && c.chain != "" {
		// A segment that was sealed meanwhile is still open as the active one.
		c.sealed, err = sealedSegments(dir, c.chain, c.first)
	}
	if err != nil {
		file.Close()
		return chainFiles{}, err
	}
	return c, nil
}

// each calls fn with each file, in order. The name is "" for the active one.
func (c *chainFiles) each(fn func(name string, file *os.File) error) error {
	for _, s := range c.sealed {
		file, err := os.Open(s.path)
		if errors.Is(err, os.ErrNotExist) {
			continue // moved to an archive; a verification notices it if others are missing too
		}
		if err != nil {
			return err
		}
		err = fn(filepath.Join(SegmentDir, filepath.Base(s.path)), file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return fn("", c.active)
}

// readStart returns the chain in a file and the number of its first record. A file with a
// damaged first line has a chain of its own.
func readStart(file io.ReaderAt) (chain string, first uint64, err error) {
	start := make([]byte, 4<<10) // a checkpoint is shorter
	n, err := file.ReadAt(start, 0)
	if n == 0 || err != nil && !errors.Is(err, io.EOF) {
		return "", 1, ignore(err, io.EOF)
	}
	chain, first = chainStart(start[:n])
	return chain, first, nil
}

// chainStart returns the chain that begins or continues with these lines, and the number of
// the first record. A part of the first line is sufficient if it begins the chain.
func chainStart(lines []byte) (chain string, first uint64) {
	line, _, whole := bytes.Cut(lines, []byte("\n"))
	if seq, ok := seqOf(line); ok && seq > 1 && whole {
		if _, _, e, err := parseLine(line); err == nil && e.Checkpoint != nil && e.Checkpoint.Seq == seq-1 && isChainName(e.Checkpoint.Chain) {
			return e.Checkpoint.Chain, seq
		}
	}
	return chainName(lines), 1
}

// segmentDue reports whether the active segment is to be sealed.
func (j *Journal) segmentDue() bool {
	j.disk.Lock()
	defer j.disk.Unlock()
	return j.cfg.SegmentSize > 0 && j.size >= j.cfg.SegmentSize || j.cfg.SegmentAge > 0 && time.Since(j.began) >= j.cfg.SegmentAge
}

// rotate seals the active segment and starts the next one. Calls wait meanwhile; it happens
// once per segment. It is called with signing held.
func (j *Journal) rotate() error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	j.disk.Lock()
	defer j.disk.Unlock()
	j.mu.Lock()
	stop := j.closed || j.dead || j.failure != nil
	j.mu.Unlock()
	if stop {
		return nil
	}
	line, head, err := j.checkpointLine()
	if err != nil {
		return err
	}
	if dead, err := j.write(line); err != nil {
		if dead {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.failure, j.dead = fmt.Errorf("journal: %w", err), true
		}
		return err
	}
	j.head = head
	if err := j.syncFile(j.file, head, position{head.seq, j.size}); err != nil {
		return err
	}
	if line, head, err = j.checkpointLine(); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(j.dir, nextFile), line); err != nil {
		return fmt.Errorf("starting a segment: %w", err)
	}
	j.file.Close() // Windows does not rename open files
	if err := installNext(j.dir, j.chain, j.first); err != nil {
		os.Remove(filepath.Join(j.dir, nextFile))
		return errors.Join(fmt.Errorf("starting a segment: %w", err), j.reopen(nil))
	}
	sealed := segment{segmentPath(j.dir, j.chain, j.first), j.first}
	err = j.reopen(func() {
		j.sealed, j.sealedBytes = append(slices.Clip(j.sealed), sealed), j.sealedBytes+j.size
		j.head, j.size, j.began = head, int64(len(line)), time.Now()
		j.first, j.synced, j.syncedHead = head.seq, position{head.seq, j.size}, head
		j.wake()
	})
	if err != nil {
		return err
	}
	return j.signHead()
}

// reopen opens the active file after it was closed, and calls then with mu held. It is called
// with disk held.
func (j *Journal) reopen(then func()) error {
	file, err := os.OpenFile(j.path, os.O_RDWR, 0o600)
	var info os.FileInfo
	if err == nil {
		_, err = file.Seek(0, io.SeekEnd)
	}
	if err == nil {
		info, err = file.Stat()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.failure, j.dead = fmt.Errorf("journal: %w", err), true
		return err
	}
	j.file, j.info = file, info
	if then != nil {
		then()
	}
	return nil
}

// installNext makes the active file a sealed segment, and the next file the active one. The
// active file always exists, if the file system has hard links.
func installNext(dir, chain string, first uint64) error {
	active, sealed := filepath.Join(dir, FileName), segmentPath(dir, chain, first)
	if err := os.MkdirAll(filepath.Dir(sealed), 0o700); err != nil {
		return err
	}
	switch err := os.Link(active, sealed); {
	case errors.Is(err, os.ErrExist): // linked before a crash
		if err := sameFile(active, sealed); err != nil {
			return err
		}
	case err != nil:
		if err := os.Rename(active, sealed); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(dir, nextFile), active); err != nil {
		return err
	}
	return errors.Join(syncDir(filepath.Dir(sealed)), syncDir(dir))
}

// sameFile returns an error if two paths are not of the same file.
func sameFile(a, b string) error {
	one, err := os.Stat(a)
	if err != nil {
		return err
	}
	other, err := os.Stat(b)
	if err == nil && !os.SameFile(one, other) {
		err = fmt.Errorf("%s exists and is another file", b)
	}
	return err
}

// finishRotation completes a rotation that a crash interrupted. The next file names the
// record that it follows.
func finishRotation(dir string) error {
	next := filepath.Join(dir, nextFile)
	data, err := os.ReadFile(next)
	if err != nil {
		return ignore(err, os.ErrNotExist)
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	_, _, e, err := parseLine(line)
	if err != nil || e.Checkpoint == nil || !isChainName(e.Checkpoint.Chain) {
		return os.Remove(next)
	}
	active, err := os.Open(filepath.Join(dir, FileName))
	if errors.Is(err, os.ErrNotExist) {
		return os.Rename(next, filepath.Join(dir, FileName)) // it was sealed by renaming
	}
	if err != nil {
		return err
	}
	defer active.Close()
	head, _, err := lastRecord(active)
	if err != nil || head.seq != e.Checkpoint.Seq || fmt.Sprintf("%x", head.hash) != e.Checkpoint.Hash {
		return os.Remove(next)
	}
	_, first, err := readStart(active)
	if err != nil {
		return err
	}
	return installNext(dir, e.Checkpoint.Chain, first)
}
