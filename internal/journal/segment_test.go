package journal_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

// segments returns the names of the sealed segments.
func segments(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, journal.SegmentDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		names = append(names, filepath.Base(path))
	}
	return names
}

// inSegments writes a journal of three segments or more, and calls meanwhile while it is
// open.
func inSegments(t *testing.T, dir string, meanwhile func(*testing.T, *journal.Journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := journal.DefaultConfig()
		cfg.SegmentSize = 2000
		j := open(t, dir, cfg)
		for i := 1; i <= 30; i++ {
			if err := j.Append(entry(i), true); err != nil {
				t.Fatal(err)
			}
			if i%10 == 0 {
				time.Sleep(2 * time.Minute) // a checkpoint
				synctest.Wait()
			}
		}
		if meanwhile != nil {
			meanwhile(t, j)
		}
		j.Append(entry(31), true)
		j.Close()
	})
}

// calls returns the calls of all records, without those that the journal writes itself.
func calls(t *testing.T, dir string) (all []string) {
	t.Helper()
	last := uint64(0)
	if err := journal.Read(dir, func(e ferrule.Entry) error {
		if e.Seq != last+1 && last > 0 {
			t.Errorf("record %d follows %d", e.Seq, last)
		}
		last = e.Seq
		if e.Call != "" {
			all = append(all, e.Call)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSegments checks that a long journal is cut into sealed segments that are read and
// verified together, and one by one, and that copies do not notice.
func TestSegments(t *testing.T) {
	dir := t.TempDir()
	var chain string
	var copyOf []byte
	inSegments(t, dir, func(t *testing.T, j *journal.Journal) {
		chain = j.Chain()
		lines, last, err := copied(t, j, 0, 700)
		if err != nil || last < 33 {
			t.Errorf("copied up to %d, %v", last, err)
		}
		copyOf = lines
		v := journal.NewVerifier(chain, publicKey(t, dir))
		v.Feed(lines)
		if r := v.Report(); len(r.Findings) > 0 || r.Signed == nil {
			t.Errorf("%+v", r)
		}
		for after := range last {
			if rest, _, err := copied(t, j, after, 700); err != nil || !bytes.HasSuffix(lines, rest) {
				t.Errorf("after %d: %v", after, err)
			}
		}
		for i, line := range bytes.SplitAfter(lines, []byte("\n")) {
			if len(line) > 0 {
				if has, err := j.Holds(uint64(i+1), string(line[:64])); !has || err != nil {
					t.Errorf("record %d: %t, %v", i+1, has, err)
				}
			}
		}
	})
	names := segments(t, dir)
	if len(names) < 2 || !strings.HasPrefix(names[0], chain+"-00000000000000000001.log") {
		t.Fatalf("segments %q of %s", names, chain)
	}
	if all := calls(t, dir); len(all) != 31 || all[0] != "call-1" || all[30] != "call-31" {
		t.Errorf("%d calls: %q", len(all), all)
	}
	key := publicKey(t, dir)
	report, err := journal.Verify(dir, key)
	if err != nil || len(report.Findings) > 0 || report.Segments != len(names)+1 || report.Chain != chain || report.Signed.Record != report.Last {
		t.Errorf("%+v, %v", report, err)
	}
	for _, name := range names {
		path := filepath.Join(dir, journal.SegmentDir, name)
		if r, err := journal.VerifySegment(path, key); err != nil || len(r.Findings) > 0 || r.Chain != chain || r.Signed == nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	r := reader(t, dir)
	var whole []byte
	if err := r.Read(t.Context(), false, func(l ferrule.JournalLines) error { whole = append(whole, l.Lines...); return nil }); err != nil || r.Chain() != chain || !bytes.HasPrefix(whole, copyOf) {
		t.Errorf("read %d bytes of %s, %v", len(whole), r.Chain(), err)
	}
	for to := range report.Last {
		r := reader(t, dir)
		if err := r.Skip(to); err != nil {
			t.Fatal(err)
		}
		first := uint64(0)
		if err := r.Read(t.Context(), false, func(l ferrule.JournalLines) error {
			if first == 0 {
				first = l.First
			}
			return nil
		}); err != nil || first != to+1 {
			t.Errorf("after skipping to %d comes %d, %v", to, first, err)
		}
	}
	for _, limit := range []int64{1, 1000, 3000, 1 << 20} {
		r := reader(t, dir)
		if err := r.SkipTo(time.Unix(0, 0), limit); err != nil {
			t.Fatal(err)
		}
		size := 0
		if err := r.Read(t.Context(), false, func(l ferrule.JournalLines) error { size += len(l.Lines); return nil }); err != nil || int64(size) > limit || int(limit) >= len(whole) && size != len(whole) {
			t.Errorf("%d of the last %d bytes, %v", size, limit, err)
		}
	}
	// It goes on where it ended.
	write(t, dir, 32, 33)
	if all := calls(t, dir); len(all) != 33 {
		t.Errorf("%d calls", len(all))
	}
}

// TestSegmentHarm checks that harm to a segment is found, in the journal and in the segment
// alone.
func TestSegmentHarm(t *testing.T) {
	for name, test := range map[string]struct {
		harm         func(lines [][]byte) [][]byte
		whole, alone string // findings
	}{
		"altered": {
			func(l [][]byte) [][]byte { l[3] = bytes.Replace(l[3], []byte("robot"), []byte("rabot"), 1); return l },
			" or the one before it was altered", " or the one before it was altered",
		},
		"end cut off": {
			func(l [][]byte) [][]byte { return l[:len(l)-3] },
			" are missing", "the segment is not sealed",
		},
		"rehashed": { // by someone without the key
			func(l [][]byte) [][]byte {
				l[3] = bytes.Replace(l[3], []byte("robot"), []byte("rabot"), 1)
				return rewriteCheckpoints(l)
			},
			" is wrong: records up to ", " is wrong: records up to ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inSegments(t, dir, nil)
			key := publicKey(t, dir)
			path := filepath.Join(dir, journal.SegmentDir, segments(t, dir)[0])
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, bytes.Join(test.harm(bytes.SplitAfter(data, []byte("\n"))), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if found := strings.Join(findings(t, dir, key), "\n"); !strings.Contains(found, test.whole) {
				t.Errorf("in the journal: %q", found)
			}
			report, err := journal.VerifySegment(path, key)
			if err != nil || len(report.Findings) == 0 || !slices.ContainsFunc(report.Findings, func(f journal.Finding) bool { return strings.Contains(f.What, test.alone) }) {
				t.Errorf("alone: %+v, %v", report, err)
			}
		})
	}
}

// TestArchived checks that a journal whose oldest segments were moved away is intact, and one
// with a missing segment in the middle is not.
func TestArchived(t *testing.T) {
	dir := t.TempDir()
	inSegments(t, dir, nil)
	names := segments(t, dir)
	if len(names) < 3 {
		t.Fatalf("segments %q", names)
	}
	if err := os.Remove(filepath.Join(dir, journal.SegmentDir, names[0])); err != nil {
		t.Fatal(err)
	}
	report, err := journal.Verify(dir, publicKey(t, dir))
	if err != nil || len(report.Findings) > 0 || report.First < 2 {
		t.Errorf("%+v, %v", report, err)
	}
	j := open(t, dir, journal.DefaultConfig())
	if lines, _, err := copiedFrom(t, j, 0); err != nil || !bytes.Contains(lines, []byte("call-31")) {
		t.Errorf("%d bytes, %v", len(lines), err)
	}
	j.Close()
	if err := os.Remove(filepath.Join(dir, journal.SegmentDir, names[1])); err != nil {
		t.Fatal(err)
	}
	write(t, dir, 32, 32)
	if found := findings(t, dir, publicKey(t, dir)); found != nil {
		t.Errorf("found %q", found)
	}
	inSegments(t, dir, nil)
	names = segments(t, dir)
	if err := os.Remove(filepath.Join(dir, journal.SegmentDir, names[1])); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, dir, publicKey(t, dir)); len(found) == 0 || !strings.Contains(found[0], "are missing") {
		t.Errorf("found %q", found)
	}
}

// copiedFrom copies a journal that need not begin with the record asked for.
func copiedFrom(t *testing.T, j *journal.Journal, after uint64) (lines []byte, last uint64, err error) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context()) // Lines does not wait for more
	cancel()
	for {
		batch, err := j.Lines(ended, after, 700)
		if errors.Is(err, context.Canceled) {
			return lines, after, nil
		}
		if err != nil {
			return lines, after, err
		}
		lines, after = append(lines, batch.Lines...), batch.Last
	}
}

// TestSegmentAge checks that an old segment is sealed when records follow.
func TestSegmentAge(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := journal.DefaultConfig()
		cfg.SegmentAge = time.Hour
		j := open(t, dir, cfg)
		now := func() ferrule.Entry { e := entry(1); e.Time = time.Now(); return e }
		j.Append(now(), true)
		time.Sleep(30 * time.Minute)
		j.Append(now(), true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(segments(t, dir)); n != 0 {
			t.Errorf("%d segments after half an hour", n)
		}
		time.Sleep(time.Hour)
		j.Append(now(), true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(segments(t, dir)); n != 1 {
			t.Errorf("%d segments after an hour", n)
		}
		j.Close()
	})
	if found := findings(t, dir, publicKey(t, dir)); found != nil {
		t.Errorf("found %q", found)
	}
}

// TestInterruptedRotation checks that a crash at any point of a rotation loses nothing.
func TestInterruptedRotation(t *testing.T) {
	for name, crash := range map[string]func(active, sealed, next string) error{
		"before the segment is linked": func(active, sealed, next string) error {
			return errors.Join(os.Rename(active, next), os.Rename(sealed, active))
		},
		"after it is linked": func(active, sealed, next string) error {
			return errors.Join(os.Rename(active, next), os.Link(sealed, active))
		},
		"after it is renamed": func(active, sealed, next string) error { return os.Rename(active, next) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := journal.DefaultConfig()
				cfg.SegmentSize = 500
				j := open(t, dir, cfg)
				for i := 1; i <= 5; i++ {
					j.Append(entry(i), true)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				j.Close()
			})
			names := segments(t, dir)
			if len(names) != 1 {
				t.Fatalf("segments %q", names)
			}
			active := filepath.Join(dir, journal.FileName)
			if err := crash(active, filepath.Join(dir, journal.SegmentDir, names[0]), active+".next"); err != nil {
				t.Fatal(err)
			}
			write(t, dir, 6, 6)
			if all := calls(t, dir); len(all) != 6 {
				t.Errorf("%d calls: %q", len(all), all)
			}
			if found := findings(t, dir, publicKey(t, dir)); found != nil || len(segments(t, dir)) != 1 {
				t.Errorf("found %q, segments %q", found, segments(t, dir))
			}
		})
	}
}

// TestFollowSegments checks that a reader follows a journal from segment to segment.
func TestFollowSegments(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := journal.DefaultConfig()
		cfg.SegmentSize = 500
		j := open(t, dir, cfg)
		j.Append(entry(1), true)
		r := reader(t, dir)
		told, end := follow(t, r)
		for i := 2; i <= 20; i++ {
			j.Append(entry(i), true)
			time.Sleep(70 * time.Second)
		}
		synctest.Wait()
		end()
		r.Close()
		j.Close()
		var got []string
		for len(told) > 0 {
			if words := strings.Fields(<-told); strings.HasPrefix(words[2], "call-") {
				got = append(got, words[2])
			}
		}
		if len(got) != 20 || got[0] != "call-1" || got[19] != "call-20" {
			t.Errorf("got %q", got)
		}
		if n := len(segments(t, dir)); n < 3 {
			t.Errorf("%d segments", n)
		}
	})
}

// TestSegmentsConcurrent copies a journal while it is written and sealed many times.
func TestSegmentsConcurrent(t *testing.T) {
	dir := t.TempDir()
	cfg := journal.DefaultConfig()
	cfg.SegmentSize = 50_000
	j := open(t, dir, cfg)
	v := journal.NewVerifier("", publicKey(t, dir))
	ended := make(chan error, 1)
	go func() {
		for after := uint64(0); ; {
			batch, err := j.Lines(context.Background(), after, 20_000)
			if errors.Is(err, os.ErrClosed) && strings.Contains(err.Error(), "moved away") {
				continue // it was sealed at this moment
			}
			if err != nil {
				ended <- err
				return
			}
			v.Feed(batch.Lines)
			after = batch.Last
		}
	}()
	var writers sync.WaitGroup
	var written atomic.Int64
	for w := range 3 {
		writers.Go(func() {
			for i := 0; i < 2000 || i < 50_000 && len(segments(t, dir)) < 4; i++ {
				if err := j.Append(entry(100_000*w+i), i%50 == 0); err != nil {
					t.Error(err)
				}
				written.Add(1)
			}
		})
	}
	writers.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if n := len(calls(t, dir)); n != int(written.Load()) {
		t.Errorf("%d calls are in the journal, want %d", n, written.Load())
	}
	if n := len(segments(t, dir)); n < 4 {
		t.Errorf("%d segments", n)
	}
	report, err := journal.Verify(dir, publicKey(t, dir))
	if copied := v.Report(); err != nil || len(report.Findings) > 0 || len(copied.Findings) > 0 || copied.Last != report.Last || copied.Hash != report.Hash {
		t.Errorf("the journal: %+v, %v\nthe copy: %+v", report, err, copied)
	}
}
