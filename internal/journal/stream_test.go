package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// content returns the content of a journal file.
func content(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, journal.FileName))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func setContent(t *testing.T, dir string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, journal.FileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendContent(t *testing.T, dir string, data []byte) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, journal.FileName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		t.Fatal(err)
	}
}

// copied copies a journal in parts of up to limit bytes, and checks the numbers.
func copied(t *testing.T, j *journal.Journal, after uint64, limit int) (lines []byte, last uint64, err error) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context()) // Lines does not wait for more
	cancel()
	for {
		batch, err := j.Lines(ended, after, limit)
		if errors.Is(err, context.Canceled) {
			return lines, after, nil
		}
		if err != nil {
			return lines, after, err
		}
		n := uint64(bytes.Count(batch.Lines, []byte("\n")))
		if batch.First != after+1 || batch.Last != after+n || n == 0 || batch.Chain != j.Chain() || batch.Node != "" || len(batch.Lines) > limit && n > 1 {
			t.Fatalf("after %d: got %d to %d of %s in %d bytes, with %d records", after, batch.First, batch.Last, batch.Chain, len(batch.Lines), n)
		}
		lines, after = append(lines, batch.Lines...), batch.Last
	}
}

// TestLines checks that parts of any size and start add up to the file.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 60)
	j := open(t, dir, journal.DefaultConfig())
	whole := content(t, dir)
	if j.Chain() != string(whole[:16]) {
		t.Errorf("the name of the chain is %q", j.Chain())
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for _, most := range []int{0, 1, len(lines[0]), len(lines[0]) * 5 / 2, 1 << 20} {
		for after := 0; after <= 60; after += 7 {
			got, last, err := copied(t, j, uint64(after), most)
			if err != nil || last != 60 || !bytes.Equal(got, bytes.Join(lines[after:], nil)) {
				t.Errorf("after %d, at most %d bytes: up to %d, %v: %d bytes", after, most, last, err, len(got))
			}
		}
	}
}

// TestLinesWait checks that Lines returns a record when it is on disk, and not before.
func TestLinesWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := open(t, dir, journal.DefaultConfig())
		if chain := j.Chain(); chain != "" {
			t.Errorf("the name of an empty chain is %q", chain)
		}
		start := time.Now()
		got := make(chan ferrule.JournalLines, 2)
		for range 2 {
			go func() {
				batch, err := j.Lines(t.Context(), 0, 1000)
				if err != nil {
					t.Error(err)
				}
				got <- batch
			}()
		}
		synctest.Wait()
		j.Append(entry(1), false)
		for range 2 {
			batch := <-got
			if took := time.Since(start); took < time.Second || batch.Last != 1 || batch.Chain == "" || batch.Chain != j.Chain() {
				t.Errorf("after %v: %+v", took, batch)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := j.Lines(ctx, 1, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestLinesBehind checks that a journal with a missing end reports ErrBehind with both
// numbers, without waiting.
func TestLinesBehind(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 10)
	lines := bytes.SplitAfter(content(t, dir), []byte("\n"))
	hash := func(n int) string { return string(lines[n-1][:64]) }
	setContent(t, dir, bytes.Join(lines[:7], nil))
	unsign(t, dir)
	j := open(t, dir, journal.DefaultConfig())
	_, err := j.Lines(t.Context(), 10, 1000)
	if !errors.Is(err, journal.ErrBehind) || !strings.Contains(err.Error(), "the copy has record 10, the newest here is 7") {
		t.Errorf("got %v", err)
	}
	// Pending records do not count.
	for i := range 5 {
		j.Append(entry(i), false)
	}
	if _, err := j.Lines(t.Context(), 10, 1000); !errors.Is(err, journal.ErrBehind) {
		t.Errorf("got %v", err)
	}
	j.Append(entry(1), true)
	// With as many records as the copy, only the hash shows the difference.
	for _, test := range []struct {
		seq  uint64
		hash string
		want bool
	}{{10, hash(10), false}, {8, hash(8), false}, {7, hash(7), true}, {1, hash(1), true}, {6, hash(7), false}, {99, hash(7), false}, {0, hash(1), false}, {7, "", false}} {
		if has, err := j.Holds(test.seq, test.hash); has != test.want || err != nil {
			t.Errorf("record %d: %t, %v", test.seq, has, err)
		}
		if has, err := journal.Holds(dir, test.seq, test.hash); has != test.want || err != nil {
			t.Errorf("record %d in the file: %t, %v", test.seq, has, err)
		}
	}
	if _, err := journal.Holds(t.TempDir(), 1, hash(1)); err == nil {
		t.Error("Holds of a missing journal succeeded")
	}
}

// TestLinesAfterClose checks that the rest can be read from a closed journal.
func TestLinesAfterClose(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.DefaultConfig())
	ended := make(chan error, 1)
	go func() {
		_, err := j.Lines(context.Background(), 0, 1)
		for after := uint64(1); err == nil; after++ {
			_, err = j.Lines(context.Background(), after, 1)
		}
		ended <- err
	}()
	for i := 1; i <= 20; i++ {
		j.Append(entry(i), false)
	}
	j.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("got %v", err)
		}
	case <-time.After(wait.Ample):
		t.Fatal("Lines does not return")
	}
	if got, last, err := copied(t, j, 5, 300); !errors.Is(err, os.ErrClosed) || last != 20 || !bytes.HasSuffix(content(t, dir), got) {
		t.Errorf("up to %d, %v", last, err)
	}
	// Another file with the same name is not used.
	if err := os.Rename(filepath.Join(dir, journal.FileName), filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, 1, 30)
	if _, _, err := copied(t, j, 5, 300); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "was moved away") {
		t.Errorf("got %v", err)
	}
}

// TestNewChain checks that a new file starts a new chain.
func TestNewChain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 3)
	first := open(t, dir, journal.DefaultConfig())
	first.Close()
	if err := os.Remove(filepath.Join(dir, journal.FileName)); err != nil {
		t.Fatal(err)
	}
	unsign(t, dir)
	j := open(t, dir, journal.DefaultConfig())
	if j.Chain() != "" {
		t.Errorf("got %q", j.Chain())
	}
	j.Append(entry(9), true)
	if j.Chain() == first.Chain() || j.Chain() != string(content(t, dir)[:16]) {
		t.Errorf("got %q after %q", j.Chain(), first.Chain())
	}
	j.Append(entry(10), true)
	if j.Chain() != string(content(t, dir)[:16]) {
		t.Error("the name of a chain changed")
	}
}

// TestLinesAfterIncompleteTail checks that an incomplete record is not copied.
func TestLinesAfterIncompleteTail(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 3)
	data := content(t, dir)
	setContent(t, dir, data[:len(data)-10])
	unsign(t, dir)
	j := open(t, dir, journal.DefaultConfig())
	if got, last, err := copied(t, j, 0, 1<<20); err != nil || last != 2 || !bytes.HasPrefix(data, got) {
		t.Errorf("up to %d, %v", last, err)
	}
	j.Append(entry(9), true)
	if got, last, err := copied(t, j, 2, 1<<20); err != nil || last != 3 || !bytes.Contains(got, []byte("call-9")) {
		t.Errorf("up to %d, %v: %s", last, err, got)
	}
}

// TestLinesDamaged checks that damaged lines are copied, and the records after them found.
func TestLinesDamaged(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 30)
	lines := bytes.SplitAfter(content(t, dir), []byte("\n"))
	lines[0], lines[9], lines[10] = []byte("x\n"), []byte("rubbish\n"), bytes.Repeat([]byte("long "), 10000)
	lines[10][len(lines[10])-1] = '\n'
	lines[20] = bytes.Replace(lines[20], []byte(`"seq":21`), []byte(`"seq":99999`), 1)
	setContent(t, dir, bytes.Join(lines, nil))
	unsign(t, dir)
	for after := range uint64(30) {
		j := open(t, dir, journal.DefaultConfig())
		var got []byte
		for at := after; ; {
			batch, err := j.Lines(t.Context(), at, 700)
			if err != nil || batch.Last <= at || len(batch.Chain) != 16 {
				t.Fatalf("after %d: %+v, %v", at, batch, err)
			}
			got, at = append(got, batch.Lines...), batch.Last
			if at == 30 {
				break
			}
		}
		j.Close()
		from := max(after, 1) // a damaged line without a number is skipped
		if after == 9 || after == 10 {
			from = 11
		}
		if whole := bytes.Join(lines[from:], nil); !bytes.HasPrefix(whole, got) && after < 20 {
			t.Errorf("after %d: got %d bytes", after, len(got))
		}
	}
}

// TestLinesConcurrent checks a copy that is made while many goroutines write.
func TestLinesConcurrent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.DefaultConfig())
	v := journal.NewVerifier("")
	copied := make(chan []byte)
	go func() {
		var all []byte
		for after := uint64(0); ; {
			batch, err := j.Lines(context.Background(), after, 2000)
			if err != nil {
				if !errors.Is(err, os.ErrClosed) {
					t.Error(err)
				}
				copied <- all
				return
			}
			v.Feed(batch.Lines)
			all, after = append(all, batch.Lines...), batch.Last
		}
	}()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				if err := j.Append(entry(w*1000+i), (w+i)%3 > 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	j.Close()
	if got := <-copied; !bytes.Equal(got, content(t, dir)) {
		t.Errorf("the copy has %d bytes", len(got))
	}
	report := v.Report()
	if report.Records != 800 || report.Last != 800 || len(report.Findings) > 0 || report.Chain != j.Chain() {
		t.Errorf("%+v", report)
	}
	if has, err := journal.Holds(dir, report.Last, report.Hash); !has || err != nil {
		t.Errorf("%t, %v", has, err)
	}
}

// TestVerifierParts checks that the parts do not matter, and that a wrong name of the chain
// is found.
func TestVerifierParts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 6)
	lines := bytes.SplitAfter(content(t, dir), []byte("\n"))
	lines = append(lines[:2], lines[3:]...)
	v := journal.NewVerifier("")
	for _, line := range lines {
		v.Feed(line)
	}
	report := v.Report()
	if report.Records != 5 || len(report.Findings) != 1 || report.Findings[0] != (journal.Finding{Line: 3, Record: 3, To: 3, What: "record 3 is missing"}) {
		t.Errorf("%+v", report)
	}
	v = journal.NewVerifier("0123456789abcdef")
	v.Feed(lines[0])
	if report := v.Report(); len(report.Findings) != 1 || !strings.HasPrefix(report.Findings[0].What, "record 1 belongs to another chain, "+string(lines[0][:16])) {
		t.Errorf("%+v", report)
	}
	// The number of findings is limited.
	v = journal.NewVerifier("")
	for i := range 1000 {
		v.Feed(fmt.Appendf(nil, "%064d {\"seq\":%d}\n", i, 3*i+2))
		v.Feed(fmt.Appendf(nil, "%064d {\"seq\":%d}\nrubbish\n", i, max(1, i)))
	}
	if report := v.Report(); len(report.Findings) != 100 || report.More < 1000 || report.Records != 3000 {
		t.Errorf("%d findings and %d more of %d records", len(report.Findings), report.More, report.Records)
	}
}

// follow follows a journal and sends its records.
func follow(t *testing.T, r *journal.Reader) (told chan string, end func()) {
	t.Helper()
	told = make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- r.Read(ctx, true, func(l ferrule.JournalLines) error {
			for e, err := range journal.Entries(l.Lines) {
				told <- fmt.Sprintf("%s %d %s %v", l.Chain, e.Seq, e.Call, err)
			}
			return nil
		})
	}()
	return told, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("following ended with %v", err)
		}
	}
}

func reader(t *testing.T, dir string) *journal.Reader {
	t.Helper()
	r, err := journal.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestReader reads and follows a file that grows, shrinks and is moved away.
func TestReader(t *testing.T) { synctest.Test(t, testReader) }

func testReader(t *testing.T) {
	dir := t.TempDir()
	if _, err := journal.OpenReader(dir); err == nil || err.Error() != "no journal in "+dir {
		t.Errorf("got %v", err)
	}
	write(t, dir, 1, 3)
	r := reader(t, dir)
	seen := 0
	if err := r.Read(t.Context(), false, func(l ferrule.JournalLines) error {
		if l.First != 1 || l.Last != 3 || !bytes.Equal(l.Lines, content(t, dir)) {
			t.Errorf("%+v", l)
		}
		seen++
		return nil
	}); err != nil || seen != 1 {
		t.Errorf("%d, %v", seen, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reader(t, dir).Read(gone, false, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	enough := errors.New("enough")
	if err := reader(t, dir).Read(t.Context(), true, func(ferrule.JournalLines) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	for skip := range uint64(5) {
		rest := reader(t, dir)
		if err := rest.Skip(skip); err != nil || rest.Chain() != r.Chain() {
			t.Error(rest.Chain(), err)
		}
		first := uint64(4)
		if err := rest.Read(t.Context(), false, func(l ferrule.JournalLines) error { first = l.First; return nil }); err != nil || first != min(skip+1, 4) {
			t.Errorf("after %d comes %d, %v", skip, first, err)
		}
	}

	told, end := follow(t, r)
	hears := func(chain []byte, want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-told:
				if got != string(chain[:16])+" "+w+" <nil>" {
					t.Errorf("got %q, want %q of %s", got, w, chain[:16])
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("timeout, want %q", w)
			}
		}
	}
	write(t, dir, 4, 5)
	hears(content(t, dir), "4 call-4", "5 call-5")
	// An incomplete record is not read.
	whole := content(t, dir)
	other := t.TempDir()
	setContent(t, other, whole)
	write(t, other, 6, 6)
	more := content(t, other)[len(whole):]
	appendContent(t, dir, more[:len(more)-5])
	time.Sleep(300 * time.Millisecond)
	if len(told) > 0 {
		t.Errorf("read %q of an incomplete record", <-told)
	}
	appendContent(t, dir, more[len(more)-5:])
	hears(whole, "6 call-6")
	if err := os.Truncate(filepath.Join(dir, journal.FileName), int64(len(whole))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // let the reader notice
	write(t, dir, 7, 7)
	hears(whole, "6 call-7")
	if err := os.Rename(filepath.Join(dir, journal.FileName), filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	unsign(t, dir)
	write(t, dir, 8, 9)
	hears(content(t, dir), "1 call-8", "2 call-9")
	end()
	if len(told) > 0 {
		t.Errorf("unexpected %q", <-told)
	}
}

// TestSkipTo checks that reading starts at a time, or with the last bytes.
func TestSkipTo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 999) // one more, and a checkpoint may follow
	size := int64(len(content(t, dir)))
	first := func(since, limit int64) uint64 {
		r := reader(t, dir)
		if err := r.SkipTo(time.Unix(since, 0), limit); err != nil {
			t.Fatal(err)
		}
		var seq uint64
		if err := r.Read(t.Context(), false, func(l ferrule.JournalLines) error {
			for e, err := range journal.Entries(l.Lines) {
				if err != nil {
					t.Fatal(err)
				}
				if seq == 0 {
					seq = e.Seq
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return seq
	}
	for since, want := range map[int64]uint64{0: 1, 1: 1, 2: 2, 500: 500, 998: 998, 999: 999, 1000: 0} {
		if got := first(since, size); got != want {
			t.Errorf("since %d: the first record is %d", since, got)
		}
	}
	if got := first(1, size/10); got < 880 || got > 920 {
		t.Errorf("in the last tenth, the first record is %d", got)
	}
	if got := first(950, size/10); got != 950 {
		t.Errorf("since 950 in the last tenth, the first record is %d", got)
	}
	damaged := bytes.Replace(content(t, dir), []byte(`"time":"1970-01-01T00:08:20Z"`), []byte(`"tame":"1970-01-01T00:08:20Z"`), 1)
	setContent(t, dir, damaged)
	if got := first(501, size); got != 501 {
		t.Errorf("after a damaged line, the first record is %d", got)
	}
}
