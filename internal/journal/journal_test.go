package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

func open(t *testing.T, dir string, cfg journal.Config) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// entry returns a record that is synced when Append returns, if it is durable.
func entry(i int) ferrule.Entry {
	return ferrule.Entry{
		Time: time.Unix(int64(i), 0).UTC(), Call: fmt.Sprint("call-", i), Phase: ferrule.ApprovalStep,
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"},
		Device:    "robot", Tool: "gpio_write", Args: json.RawMessage(`{"pin":2}`),
	}
}

func write(t *testing.T, dir string, from, to int) {
	t.Helper()
	j := open(t, dir, journal.DefaultConfig())
	for i := from; i <= to; i++ {
		if err := j.Append(entry(i), i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// unsign removes the signed head and the key, as if the gateway had crashed before they
// were written.
func unsign(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{journal.HeadFile, journal.KeyFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, dir string) []string {
	t.Helper()
	var calls []string
	err := journal.Read(dir, func(e ferrule.Entry) error {
		calls = append(calls, fmt.Sprint(e.Seq, " ", e.Call))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func verify(t *testing.T, dir string) []string {
	t.Helper()
	report, err := journal.Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.What)
	}
	return found
}

func TestAppendAndReopen(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 3)
	write(t, dir, 4, 5)
	want := []string{"1 call-1", "2 call-2", "3 call-3", "4 call-4", "5 call-5"}
	if got := read(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if found := verify(t, dir); found != nil {
		t.Errorf("verify found %q", found)
	}
	var got ferrule.Entry
	journal.Read(dir, func(e ferrule.Entry) error {
		got = e
		return errors.New("enough")
	})
	want1 := entry(1)
	want1.Seq = 1
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want1) {
		t.Errorf("got %+v\nwant %+v", got, want1)
	}
}

// TestNoJournal checks that a missing journal is an error, and an empty one is not.
func TestNoJournal(t *testing.T) {
	dir := t.TempDir()
	if err := journal.Read(dir, nil); err == nil || err.Error() != "no journal in "+dir {
		t.Errorf("got %v", err)
	}
	if _, err := journal.Verify(dir); err == nil {
		t.Error("verifying a missing journal succeeded")
	}
	open(t, dir, journal.DefaultConfig()).Close()
	if got := read(t, dir); got != nil {
		t.Errorf("got %q", got)
	}
}

// TestReadDamaged checks that Read continues after a damaged line.
func TestReadDamaged(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 5)
	path := filepath.Join(dir, journal.FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	lines[1], lines[3] = "rubbish\n", "more\n"
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls []string
	err = journal.Read(dir, func(e ferrule.Entry) error {
		calls = append(calls, e.Call)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "2 damaged lines, the first is line 2: no hash at the start") {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(calls, []string{"call-1", "call-3", "call-5"}) {
		t.Errorf("got %q", calls)
	}
}

func TestDurableIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.DefaultConfig())
	for i := 1; i <= 10; i++ {
		if err := j.Append(entry(i), true); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir); len(got) != i {
			t.Fatalf("after %d records, %d are in the file", i, len(got))
		}
	}
}

func TestDelayedWrite(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			sync    time.Duration
			durable bool
			wait    time.Duration
		}{
			"not durable":     {0, false, time.Second},
			"durable, spared": {5 * time.Second, true, 5 * time.Second},
		} {
			dir := filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			j := open(t, dir, journal.Config{Sync: test.sync})
			if err := j.Append(entry(1), test.durable); err != nil {
				t.Fatal(err)
			}
			time.Sleep(test.wait - time.Millisecond)
			synctest.Wait()
			if got := read(t, dir); got != nil {
				t.Errorf("%s: written at once", name)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got := read(t, dir); len(got) != 1 {
				t.Errorf("%s: not written after %v", name, test.wait)
			}
		}
	})
}

func TestInvalidArguments(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.DefaultConfig())
	e := entry(1)
	e.Args = json.RawMessage(`{"pin`)
	if err := j.Append(e, true); err != nil {
		t.Fatal(err)
	}
	err := journal.Read(dir, func(e ferrule.Entry) error {
		if string(e.Args) != `"{\"pin"` {
			t.Errorf("got %s", e.Args)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestShorterDelay checks that a record does not wait longer because of another one.
func TestShorterDelay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			sync  time.Duration
			first bool // the first record is durable, or the second
			want  time.Duration
		}{
			"durable after lazy": {100 * time.Millisecond, false, 100 * time.Millisecond},
			"lazy after durable": {time.Minute, true, time.Second},
		} {
			dir := filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			j := open(t, dir, journal.Config{Sync: test.sync})
			j.Append(entry(1), test.first)
			j.Append(entry(2), !test.first)
			time.Sleep(test.want + time.Millisecond)
			synctest.Wait()
			if n := len(read(t, dir)); n != 2 {
				t.Errorf("%s: %d records after %v", name, n, test.want)
			}
			j.Close()
		}
	})
}

// TestRecordLimits checks that the journal stays readable after calls of any size.
func TestRecordLimits(t *testing.T) {
	dir := t.TempDir()
	huge := strings.Repeat("\x01", 2<<20)
	for _, args := range []string{`"` + strings.Repeat("x", 2<<20) + `"`, huge} {
		j := open(t, dir, journal.DefaultConfig())
		e := ferrule.Entry{
			Call: huge, Phase: ferrule.Outcome, Principal: ferrule.Principal{Role: ferrule.Role(huge), Name: huge, Auth: ferrule.Auth(huge), User: huge, Devices: huge, Groups: huge, TokenID: huge}, From: huge,
			Device: huge, Tool: huge, Args: json.RawMessage(args), Message: huge,
		}
		if err := j.Append(e, true); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(read(t, dir)); n != 2 {
		t.Errorf("%d records", n)
	}
	if found := verify(t, dir); found != nil {
		t.Errorf("verify found %q", found)
	}
}

// TestPendingLimit checks that many delayed records are written early.
func TestPendingLimit(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := open(t, dir, journal.DefaultConfig())
		for i := range 5000 {
			if err := j.Append(entry(i), false); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(read(t, dir)); n != 4992 { // 39 whole batches
			t.Errorf("%d records on disk", n)
		}
	})
}

func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.DefaultConfig())
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 50 {
				if err := j.Append(entry(w*1000+i), (w+i)%3 > 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := journal.Verify(dir); err != nil || report.Records != 800 || len(report.Findings) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := j.Append(entry(1), true); err == nil {
		t.Error("Append to a closed journal succeeded")
	}
}

func TestIncompleteTail(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 3)
	path := filepath.Join(dir, journal.FileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for cut := 1; cut < len(lines[2]); cut += 7 {
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		unsign(t, dir)
		write(t, dir, 9, 9)
		if got := read(t, dir); !slices.Equal(got, []string{"1 call-1", "2 call-2", "3 call-9"}) {
			t.Fatalf("cut by %d: got %q", cut, got)
		}
		if found := verify(t, dir); found != nil {
			t.Fatalf("cut by %d: verify found %q", cut, found)
		}
	}
}

func TestDamagedTail(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, journal.FileName), []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "ferrule audit verify") {
		t.Errorf("got %v", err)
	}
}

func TestVerify(t *testing.T) {
	for name, test := range map[string]struct {
		harm func(lines [][]byte) [][]byte
		want []string
	}{
		"intact": {func(l [][]byte) [][]byte { return l }, nil},
		"altered record": {
			func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte("robot"), []byte("rabot"), 1); return l },
			[]string{"record 3 or the one before it was altered"},
		},
		"altered hash": {
			func(l [][]byte) [][]byte { l[2][0] ^= 1; return l },
			[]string{"record 3 or the one before it was altered", "record 4 or the one before it was altered"},
		},
		"missing records": {
			func(l [][]byte) [][]byte { return slices.Delete(l, 1, 3) },
			[]string{"records 2 to 3 are missing"},
		},
		"first records missing": {
			func(l [][]byte) [][]byte { return l[2:] },
			[]string{"records 1 to 2 are missing"},
		},
		"records out of order": {
			func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l },
			[]string{"record 2 comes after record 3"},
		},
		"records moved to the end": {
			func(l [][]byte) [][]byte { return slices.Concat(l[:1], l[4:6], l[1:3], l[6:]) },
			[]string{"record 4 is missing", "records 2 to 3 come after record 6"},
		},
		"duplicate record": {
			func(l [][]byte) [][]byte { return slices.Insert(l, 2, l[1]) },
			[]string{"record 2 appears twice"},
		},
		"duplicate records": {
			func(l [][]byte) [][]byte { return slices.Concat(l[:5], l[1:]) },
			[]string{"records 2 to 5 appear twice"},
		},
		"record out of order, and duplicate": {
			func(l [][]byte) [][]byte { return slices.Concat(l[:1], l[2:3], l[1:2], l[1:2], l[3:]) },
			[]string{"record 2 comes after record 3", "record 2 appears twice"},
		},
		"no record number": {
			func(l [][]byte) [][]byte {
				l[2] = bytes.Replace(l[2], []byte(`"seq":3`), []byte(`"seq":0`), 1)
				return l
			},
			[]string{"no valid record in place of record 3: no record number"},
		},
		"not a record": {
			func(l [][]byte) [][]byte { l[2] = []byte("garbage\n"); return l },
			[]string{"no valid record in place of record 3: no hash at the start", "record 4 or the one before it was altered"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, 1, 6)
			path := filepath.Join(dir, journal.FileName)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := test.harm(bytes.SplitAfter(data, []byte("\n")))
			if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := verify(t, dir); !slices.Equal(got, test.want) {
				t.Errorf("found %q\nwant  %q", got, test.want)
			}
		})
	}
}

// TestVerifyEnd checks the verification of the end of a long journal.
func TestVerifyEnd(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 40)
	path := filepath.Join(dir, journal.FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(most int, records int, whole bool, want ...string) {
		t.Helper()
		report, all, err := journal.VerifyEnd(dir, int64(most))
		var found []string
		for _, f := range report.Findings {
			found = append(found, f.What)
		}
		if err != nil || report.Records != records || all != whole || !slices.Equal(found, want) {
			t.Errorf("the last %d bytes: %v, %+v, %v; want %d and %q", most, err, report, all, records, want)
		}
	}
	line := len(data) / 40
	check(len(data), 40, true)
	check(10*line+line/2, 10, false)
	check(1, 0, false)
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines[2] = []byte("garbage\n")
	lines[34] = bytes.Replace(lines[34], []byte("robot"), []byte("rabot"), 1)
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	check(10*line+line/2, 10, false, "record 35 or the one before it was altered")
	check(3*line+line/2, 3, false)
	if _, _, err := journal.VerifyEnd(t.TempDir(), 1); err == nil {
		t.Error("verifying a missing journal succeeded")
	}
}

// FuzzEntry checks that a record is read as it was written, except for invalid UTF-8.
func FuzzEntry(f *testing.F) {
	f.Add("call-1", "anna", "robot", "gpio_write", `{"pin": 2}`, "invalid", "pin: want 2,\n\tgot \"258\"", true, int64(1500))
	f.Add("", "\x00\x7f\u2028", "é", "\\", `{"pin`, "", "\xff", false, int64(-1))
	f.Fuzz(func(t *testing.T, call, name, device, tool, args, code, message string, ran bool, took int64) {
		text := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
		if max(len(text(call)), len(text(name)), len(text(device)), len(text(tool)), len(text(code)), len(text(message))) > 1000 || len(args) > 100<<10 {
			return // it would be shortened
		}
		want := ferrule.Entry{
			Time: time.Unix(1e9, took&0xffff).UTC(), Call: text(call), Phase: ferrule.Outcome,
			Principal: ferrule.Principal{Role: ferrule.Agent, Name: text(name), Auth: ferrule.Auth(text(code)), User: text(tool), Scopes: ferrule.LimitTo(ferrule.Scopes(len(text(name)) % 32)), Devices: text(name), Groups: text(tool), TokenID: text(code)}, From: text(code), Client: ferrule.Client{Name: text(tool), Version: text(code), Protocol: text(name)},
			Device: text(device), Kind: ferrule.Kind(text(call)), Verdict: ferrule.Ruling(text(name)), Rule: text(tool), Operation: ferrule.Operation(text(code)), Tool: text(tool),
			Code: ferrule.Code(text(code)), Message: text(message), MayHaveRun: ran, Took: ferrule.Duration(took),
		}
		if json.Valid([]byte(args)) {
			var compact bytes.Buffer
			json.Compact(&compact, []byte(args))
			want.Args = compact.Bytes()
		}
		dir := t.TempDir()
		j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		given := want
		given.Args = json.RawMessage(args)
		if err := j.Append(given, true); err != nil {
			t.Fatal(err)
		}
		j.Close()
		want.Seq = 1
		seen := 0
		err = journal.Read(dir, func(got ferrule.Entry) error {
			seen++
			if want.Args == nil {
				got.Args = nil
			}
			if got.Principal != want.Principal || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) { // a principal prints only its name
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			return nil
		})
		if err != nil || seen != 1 {
			t.Errorf("%d records, %v", seen, err)
		}
	})
}

// FuzzVerify runs Read and Verify on files of any content.
func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		j.Append(entry(i), true)
	}
	j.Close()
	good, err := os.ReadFile(filepath.Join(dir, journal.FileName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("rubbish\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, journal.FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := journal.Verify(dir)
		if err != nil || len(report.Findings) > 0 {
			return
		}
		records := 0
		err = journal.Read(dir, func(ferrule.Entry) error { records++; return nil })
		if err != nil || records != report.Records {
			t.Errorf("verified %d records, read %d: %v", report.Records, records, err)
		}
	})
}
