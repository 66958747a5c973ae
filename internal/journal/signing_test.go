package journal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
)

func publicKey(t *testing.T, dir string) journal.PublicKey {
	t.Helper()
	key, err := journal.ReadPublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// findings verifies a journal with its key.
func findings(t *testing.T, dir string, keys ...journal.PublicKey) []string {
	t.Helper()
	report, err := journal.Verify(dir, keys...)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.What)
	}
	return found
}

// phases returns the phases of all records.
func phases(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := journal.Read(dir, func(e ferrule.Entry) error { all = append(all, string(e.Phase)); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// rehash gives lines correct hashes, as an attacker would after a change.
func rehash(lines [][]byte) [][]byte {
	var prev [sha256.Size]byte
	var out [][]byte
	for _, line := range lines {
		if len(line) == 0 {
			continue
		}
		body := bytes.TrimSuffix(line[65:], []byte("\n"))
		prev = sha256.Sum256(append(prev[:], body...))
		out = append(out, fmt.Appendf(nil, "%x %s\n", prev, body))
	}
	return out
}

// rewriteCheckpoints lets checkpoints name the records that precede them now.
func rewriteCheckpoints(lines [][]byte) [][]byte {
	lines = rehash(lines)
	for i, line := range lines {
		if i == 0 || !bytes.Contains(line, []byte(`"checkpoint":{`)) {
			continue
		}
		var e ferrule.Entry
		json.Unmarshal(line[65:], &e)
		e.Checkpoint.Chain, e.Checkpoint.Hash = string(lines[0][:16]), string(lines[i-1][:64])
		body, _ := json.Marshal(e)
		lines[i] = append(append(slices.Clone(line[:65]), body...), '\n')
		lines = rehash(lines)
	}
	return lines
}

// TestKey checks that the key of the node is created once and is for its owner only.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 1)
	key := publicKey(t, dir)
	info, err := os.Stat(filepath.Join(dir, journal.KeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if parsed, err := journal.ParsePublicKey(" " + string(key) + "\n"); parsed != key || err != nil {
		t.Errorf("%s: %v", parsed, err)
	}
	write(t, dir, 2, 2)
	if again := publicKey(t, dir); again != key {
		t.Errorf("the key changed from %s to %s", key, again)
	}
	for _, text := range []string{"", "ed25519:", "ed25519:AAAA", "rsa:" + string(key)[8:], string(key)[8:]} {
		if _, err := journal.ParsePublicKey(text); err == nil || !strings.Contains(err.Error(), "ferrule audit key") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, journal.KeyFile), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "is not a PEM file") {
		t.Errorf("got %v", err)
	}
}

// TestCheckpoints checks that a checkpoint follows within a minute or after a thousand
// records, without a sync of its own, and that an idle journal does not grow.
func TestCheckpoints(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := open(t, dir, journal.DefaultConfig())
		j.Append(entry(1), true)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := len(phases(t, dir)); n != 1 {
			t.Errorf("%d records after 59 s", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := phases(t, dir); !slices.Equal(got, []string{"approval", "checkpoint"}) {
			t.Errorf("after a minute: %q", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(phases(t, dir)); n != 2 {
			t.Errorf("an idle journal has %d records", n)
		}
		writes := j.Stats().Writes
		for i := range 1000 {
			if err := j.Append(entry(i), i%10 == 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := phases(t, dir)
		if n := len(got); n != 1003 || got[n-1] != "checkpoint" {
			t.Errorf("%d records, the last is %s", n, got[n-1])
		}
		if n := j.Stats().Writes - writes; n > 102 {
			t.Errorf("%d syncs for 100 durable records", n)
		}
		j.Append(entry(1), true)
		j.Close()
		report, err := journal.Verify(dir, publicKey(t, dir))
		if err != nil || len(report.Findings) > 0 || report.Signed == nil || report.Signed.Record != 1004 || report.Signed.Key != publicKey(t, dir) {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestShortRuns checks that the journal of a gateway that never runs for a minute has
// checkpoints.
func TestShortRuns(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for i := range 4 {
			j := open(t, dir, journal.DefaultConfig())
			e := entry(i)
			e.Time = time.Now()
			j.Append(e, true)
			time.Sleep(40 * time.Second)
			synctest.Wait()
			j.Close()
		}
	})
	if got := phases(t, dir); !slices.Equal(got, []string{"approval", "approval", "checkpoint", "approval", "approval", "checkpoint"}) {
		t.Errorf("got %q", got)
	}
}

// TestRewritten checks what the hashes cannot show: a journal that was changed and hashed
// again, and one whose end was cut off.
func TestRewritten(t *testing.T) {
	path := func(dir string) string { return filepath.Join(dir, journal.FileName) }
	for name, test := range map[string]struct {
		harm func(t *testing.T, dir string, lines [][]byte) [][]byte
		want string // contained in a finding; "" if none
	}{
		"intact": {func(_ *testing.T, _ string, l [][]byte) [][]byte { return l }, ""},
		"rehashed": {
			func(_ *testing.T, _ string, l [][]byte) [][]byte {
				l[2] = bytes.Replace(l[2], []byte("robot"), []byte("rabot"), 1)
				return rehash(l)
			}, "the checkpoint in record 5 does not match",
		},
		"rehashed with checkpoints": {
			func(_ *testing.T, _ string, l [][]byte) [][]byte {
				l[2] = bytes.Replace(l[2], []byte("robot"), []byte("rabot"), 1)
				return rewriteCheckpoints(l)
			}, "the signature in record 5 is wrong: records up to 4 were altered",
		},
		"rehashed after the last checkpoint": {
			func(_ *testing.T, _ string, l [][]byte) [][]byte {
				l[6] = bytes.Replace(l[6], []byte("robot"), []byte("rabot"), 1)
				return rehash(l)
			}, "record 7 is not the one that was signed at ",
		},
		"end cut off": {
			func(_ *testing.T, _ string, l [][]byte) [][]byte { return l[:6] },
			"the end was cut off: record 7 was signed at ",
		},
		"end cut off at the checkpoint, with its signature as the head": {
			func(t *testing.T, dir string, l [][]byte) [][]byte {
				var e ferrule.Entry
				json.Unmarshal(l[4][65:], &e)
				head, _ := json.Marshal(e.Checkpoint)
				if err := os.WriteFile(filepath.Join(dir, journal.HeadFile), head, 0o600); err != nil {
					t.Fatal(err)
				}
				return l[:4]
			}, "the signature in journal.head is wrong",
		},
		"head removed": {
			func(t *testing.T, dir string, l [][]byte) [][]byte { unsign(t, dir); return l },
			"journal.head is missing",
		},
		"all signatures removed": {
			func(t *testing.T, dir string, l [][]byte) [][]byte {
				unsign(t, dir)
				return rehash(slices.Delete(l, 4, 5)[:4])
			},
			"no record is signed with a given key",
		},
		"another key": {
			func(t *testing.T, dir string, l [][]byte) [][]byte {
				other := t.TempDir()
				write(t, other, 1, 1)
				data, err := os.ReadFile(filepath.Join(other, journal.HeadFile))
				if err != nil {
					t.Fatal(err)
				}
				var c ferrule.Checkpoint
				json.Unmarshal(data, &c)
				c.Chain = string(l[0][:16])
				data, _ = json.Marshal(c)
				if err := os.WriteFile(filepath.Join(dir, journal.HeadFile), data, 0o600); err != nil {
					t.Fatal(err)
				}
				return l
			}, "journal.head is signed with another key, ed25519:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				j := open(t, dir, journal.DefaultConfig())
				for i := range 4 {
					j.Append(entry(i), true)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				j.Append(entry(5), true)
				j.Append(entry(6), true)
				j.Close()
			})
			key := publicKey(t, dir)
			lines := bytes.SplitAfter(content(t, dir), []byte("\n"))
			if len(lines) != 8 {
				t.Fatalf("%d lines", len(lines))
			}
			if err := os.WriteFile(path(dir), bytes.Join(test.harm(t, dir, lines), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			found := findings(t, dir, key)
			if (test.want == "") != (len(found) == 0) || !strings.Contains(strings.Join(found, "\n"), test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

// TestCutIsRecorded checks that a gateway does not sign over a journal that was cut off or
// moved away: the next start records it.
func TestCutIsRecorded(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 6)
	lines := bytes.SplitAfter(content(t, dir), []byte("\n"))
	setContent(t, dir, bytes.Join(lines[:4], nil))
	write(t, dir, 7, 7)
	found := findings(t, dir, publicKey(t, dir))
	if len(found) != 1 || !strings.Contains(found[0], "record 5 says: records 5 to 6 are missing: they were signed at ") {
		t.Errorf("found %q", found)
	}
	if err := os.Rename(filepath.Join(dir, journal.FileName), filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, 1, 1)
	var first ferrule.Entry
	if err := journal.Read(dir, func(e ferrule.Entry) error {
		if e.Seq == 1 {
			first = e
		}
		return nil
	}); err != nil || first.Phase != ferrule.JournalGap || !strings.Contains(first.Message, "a new journal: the one before it, "+string(lines[0][:16])+", had 6 records") {
		t.Errorf("%+v, %v", first, err)
	}
	if found := findings(t, dir, publicKey(t, dir)); found != nil {
		t.Errorf("found %q", found)
	}
}

// TestOldJournal checks that a journal of an earlier version is read, continued and signed.
func TestOldJournal(t *testing.T) {
	dir := t.TempDir()
	var prev [sha256.Size]byte
	var old bytes.Buffer
	for i := 1; i <= 3; i++ {
		body := fmt.Sprintf(`{"seq":%d,"time":"2025-01-01T00:00:0%dZ","call":"call-%d","phase":"outcome","principal":{"role":"agent","name":"claude"},"device":"robot","tool":"move"}`, i, i, i)
		prev = sha256.Sum256(append(prev[:], body...))
		fmt.Fprintf(&old, "%s %s\n", hex.EncodeToString(prev[:]), body)
	}
	setContent(t, dir, old.Bytes())
	if found := verify(t, dir); found != nil {
		t.Errorf("found %q", found)
	}
	write(t, dir, 4, 4)
	if got := read(t, dir); !slices.Equal(got, []string{"1 call-1", "2 call-2", "3 call-3", "4 call-4"}) {
		t.Errorf("got %q", got)
	}
	report, err := journal.Verify(dir, publicKey(t, dir))
	if err != nil || len(report.Findings) > 0 || report.Signed.Record != 4 || !bytes.HasPrefix(content(t, dir), old.Bytes()) {
		t.Errorf("%+v, %v", report, err)
	}
}

// FuzzHead verifies a journal with head files of any content.
func FuzzHead(f *testing.F) {
	dir := f.TempDir()
	j, err := journal.Open(dir, journal.DefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	for i := range 3 {
		j.Append(entry(i), true)
	}
	j.Close()
	key, err := journal.ReadPublicKey(dir)
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, journal.HeadFile)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"chain":"0123456789abcdef","seq":18446744073709551615,"hash":"00","key":"ed25519:","signature":"AA=="}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := journal.Verify(dir, key)
		if err != nil {
			t.Fatal(err)
		}
		var is, was ferrule.Checkpoint
		if json.Unmarshal(data, &is) == nil && json.Unmarshal(good, &was) == nil && is.Seq == was.Seq && bytes.Equal(is.Signature, was.Signature) {
			return
		}
		if len(report.Findings) == 0 {
			t.Errorf("accepted %q", data)
		}
	})
}

// TestHeadRemoved checks that a journal whose head was removed is not signed again as if
// nothing had happened, that an emptied one is found, and that a journal that was removed
// under a running gateway refuses to record.
func TestHeadRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, 1, 5)
	if err := os.Remove(filepath.Join(dir, journal.HeadFile)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, 6, 6)
	traces := 0
	if err := journal.Read(dir, func(e ferrule.Entry) error {
		if e.Phase == ferrule.JournalGap && strings.Contains(e.Message, "journal.head is missing") {
			traces++
		}
		return nil
	}); err != nil || traces != 1 {
		t.Errorf("the missing head left %d records, %v", traces, err)
	}
	if err := os.WriteFile(filepath.Join(dir, journal.FileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := journal.Verify(dir)
	if err != nil || len(report.Findings) == 0 {
		t.Errorf("an emptied journal: %+v, %v", report, err)
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := open(t, dir, journal.DefaultConfig())
		defer j.Close()
		if err := j.Append(entry(1), true); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, journal.FileName)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if err := j.Append(entry(2), true); err == nil {
			t.Error("recorded into a file that was removed")
		}
	})
}
