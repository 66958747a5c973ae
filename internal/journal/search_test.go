package journal

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// slow is a file that blocks and counts syncs and reads.
type slow struct {
	*os.File
	sync, read  chan struct{} // nil does not wait
	reads, size atomic.Int64
}

func (s *slow) Sync() error {
	if s.sync != nil {
		<-s.sync
	}
	return s.File.Sync()
}

func (s *slow) ReadAt(p []byte, at int64) (int, error) {
	if s.read != nil {
		<-s.read
	}
	n, err := s.File.ReadAt(p, at)
	s.reads.Add(1)
	s.size.Add(int64(n))
	return n, err
}

func slowDown(t *testing.T, s *slow) *Journal {
	t.Helper()
	j, err := Open(t.TempDir(), DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	s.File = j.file.(*os.File)
	j.file = s
	return j
}

// TestLinesAreSynced checks that Lines does not return a record before its sync.
func TestLinesAreSynced(t *testing.T) {
	s := &slow{sync: make(chan struct{})}
	j := slowDown(t, s)
	got := make(chan ferrule.JournalLines, 1)
	go func() {
		batch, err := j.Lines(context.Background(), 0, 1000)
		if err != nil {
			t.Error(err)
		}
		got <- batch
	}()
	go j.Append(ferrule.Entry{Call: "one"}, true)
	for size := int64(0); size == 0; time.Sleep(time.Millisecond) {
		info, err := s.Stat()
		if err != nil {
			t.Fatal(err)
		}
		size = info.Size()
	}
	time.Sleep(20 * time.Millisecond)
	if len(got) > 0 {
		t.Error("returned before the sync")
	}
	close(s.sync)
	if batch := <-got; batch.Last != 1 {
		t.Errorf("got %+v", batch)
	}
}

// TestSlowCopy checks that a slow reader of Lines does not delay Append.
func TestSlowCopy(t *testing.T) {
	s := &slow{read: make(chan struct{})}
	j := slowDown(t, s)
	for range 3 {
		if err := j.Append(ferrule.Entry{}, true); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan ferrule.JournalLines, 1)
	go func() {
		batch, err := j.Lines(context.Background(), 0, 1<<20)
		if err != nil {
			t.Error(err)
		}
		got <- batch
	}()
	s.read <- struct{}{} // let it read
	for range 3 {
		if err := j.Append(ferrule.Entry{}, true); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) > 0 {
		t.Error("Lines returned without reading")
	}
	close(s.read)
	if batch := <-got; batch.Last != 3 {
		t.Errorf("got %+v", batch)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.grown != nil {
		t.Error("the channel of waiters is not nil")
	}
}

// TestFindInBigFile checks that a search reads little of a big file, and that the next
// call does not search.
func TestFindInBigFile(t *testing.T) {
	const records = 100_000
	s := &slow{}
	j := slowDown(t, s)
	for i := range records {
		e := ferrule.Entry{Time: time.Unix(int64(i), 0), Message: strings.Repeat("x", rand.IntN(300))}
		if i%10_000 == 0 {
			e.Message = strings.Repeat("x", maxText) // longer than one read
		}
		if err := j.Append(e, i == records-1); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		after := rand.Uint64N(records - 1)
		s.reads.Store(0)
		s.size.Store(0)
		batch, err := j.Lines(t.Context(), after, 1)
		if err != nil || batch.First != after+1 || batch.Last != after+1 {
			t.Fatalf("after %d: %d to %d, %v", after, batch.First, batch.Last, err)
		}
		if s.reads.Load() > 80 || s.size.Load() > 400<<10 {
			t.Errorf("%d bytes in %d reads", s.size.Load(), s.reads.Load())
		}
		s.reads.Store(0)
		if batch, err := j.Lines(t.Context(), after+1, 64<<10); err != nil || batch.First != after+2 || s.reads.Load() != 1 {
			t.Fatalf("the next call took %d reads: %+v, %v", s.reads.Load(), batch, err)
		}
	}
}

// TestFind compares the search with a scan of all lines, in a file with damaged lines.
func TestFind(t *testing.T) {
	var file bytes.Buffer
	for seq := 3; seq < 40; seq += 1 + seq%3 {
		fmt.Fprintf(&file, "%064d {\"seq\":%d,%s}\n", 0, seq, strings.Repeat("x", seq*7))
		if seq%5 == 0 {
			fmt.Fprintf(&file, "%s\n\n", strings.Repeat("rubbish", seq))
		}
	}
	r, end := bytes.NewReader(file.Bytes()), int64(file.Len())
	for seq := range uint64(45) {
		want, offset := end, int64(0)
		for line := range bytes.Lines(file.Bytes()) {
			if n, ok := seqOf(line); ok && n >= seq {
				want = min(want, offset)
			}
			offset += int64(len(line))
		}
		if got, err := findSeq(r, end, seq); got != want || err != nil {
			t.Errorf("record %d: got %d, %v; want %d", seq, got, err, want)
		}
	}
	in := bufio.NewReaderSize(nil, 128)
	for offset := range end + 1 {
		if start, _, err := nextRecord(in, r, offset, end); err != nil || start < offset || start > end {
			t.Errorf("from %d: %d, %v", offset, start, err)
		}
	}
	if got, err := findSeq(bytes.NewReader(nil), 0, 1); got != 0 || err != nil {
		t.Errorf("in an empty file: %d, %v", got, err)
	}
}

// TestTruncatedWhileOpen checks the error for a file that is truncated by somebody else.
func TestTruncatedWhileOpen(t *testing.T) {
	s := &slow{}
	j := slowDown(t, s)
	for range 3 {
		if err := j.Append(ferrule.Entry{}, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Lines(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.Name(), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Lines(t.Context(), 1, 1); err == nil || !strings.Contains(err.Error(), "file was truncated at byte ") {
		t.Errorf("got %v", err)
	}
}

// FuzzPieces reads files of any content in parts of any size. The parts add up to the file,
// a Verifier reports the same about both, and the last record is found.
func FuzzPieces(f *testing.F) {
	var good []byte
	var encoder encoder
	batch := make([]pending, 5)
	for i := range batch {
		batch[i].Time, batch[i].Message = time.Unix(int64(i), 0), strings.Repeat("x", 40*i)
	}
	lines, _ := encoder.encode(batch, link{})
	good = append(good, lines...)
	f.Add(good, 1, uint64(3))
	f.Add(append(append([]byte("rubbish\n\n"), good...), good...), 700, uint64(0))
	f.Add(good[len(good)/2:], 100, uint64(9))
	f.Fuzz(func(t *testing.T, data []byte, most int, seq uint64) {
		r, end := bytes.NewReader(data), int64(len(data))
		var whole, parts Verifier
		whole.Feed(data[:bytes.LastIndexByte(data, '\n')+1])
		most = min(most, 1<<20)
		at := position{}
		for {
			piece, err := readLines(r, at.offset, end, most)
			if err != nil {
				t.Fatal(err)
			}
			if len(piece) == 0 {
				break
			}
			if n := bytes.Count(piece, []byte("\n")); len(piece) > most && n != 1 || piece[len(piece)-1] != '\n' {
				t.Fatalf("%d lines in %d bytes, limit is %d", n, len(piece), most)
			}
			if _, last := seqRange(piece, at.seq); last < at.seq {
				t.Fatalf("from %d back to %d", at.seq, last)
			}
			parts.Feed(piece)
			at.offset += int64(len(piece))
		}
		report := whole.Report()
		if fmt.Sprint(report) != fmt.Sprint(parts.Report()) || at.offset != int64(bytes.LastIndexByte(data, '\n')+1) {
			t.Fatalf("whole:    %+v\nin parts: %+v", report, parts.Report())
		}
		if len(report.Findings) == 0 && report.Records > 0 {
			if has, err := holds(r, end, report.Last, report.Hash); !has || err != nil {
				t.Fatalf("record %d is not found: %v", report.Last, err)
			}
		}
		start, err := findSeq(r, end, seq)
		if err != nil || start < 0 || start > end || start > 0 && start < end && data[start-1] != '\n' {
			t.Fatalf("record %d found at %d of %d, %v", seq, start, end, err)
		}
	})
}
