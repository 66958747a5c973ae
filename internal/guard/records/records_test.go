package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func open(t *testing.T, path string) *File {
	t.Helper()
	f, unreadable, err := Open(path)
	if err != nil || unreadable != 0 {
		t.Fatalf("%d unreadable lines, %v", unreadable, err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func want(t *testing.T, f *File, values map[string]string) {
	t.Helper()
	all := f.All()
	if len(all) != len(values) {
		t.Errorf("got %d records, want %d", len(all), len(values))
	}
	for key, value := range values {
		if string(all[key]) != value {
			t.Errorf("%s is %s, want %s", key, all[key], value)
		}
	}
}

// TestRecords checks that what was stored is there after opening the file again, also if
// its last line is incomplete.
func TestRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := open(t, path)
	f.least = 20
	for i := range 300 { // the file is rewritten several times
		if err := f.Put(fmt.Sprint(i%3), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Delete("1"), f.Delete("unknown"), f.Put("text", "a\nb")); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"0": "297", "2": "299", "text": `"a\nb"`}
	want(t, f, all)
	f.Close()
	if err := f.Put("0", 1); err == nil {
		t.Error("a closed file takes records")
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2000 {
		t.Errorf("the file has %d bytes: %v", info.Size(), err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, `{"key":"0","value":1`)
	file.Close()
	f = open(t, path)
	want(t, f, all)
	if err := f.Put("new", true); err != nil {
		t.Fatal(err)
	}
	f.Close()
	all["new"] = "true"
	want(t, open(t, path), all)
}

// fullDisk fails after some bytes.
type fullDisk struct {
	*os.File
	left int
}

func (d *fullDisk) WriteAt(p []byte, at int64) (int, error) {
	if len(p) > d.left {
		n, _ := d.File.WriteAt(p[:d.left], at)
		return n, syscall.ENOSPC
	}
	return d.File.WriteAt(p, at)
}

// TestFullDisk checks that a failed Put changes nothing, also after a restart.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := open(t, path)
	if err := f.Put("a", 1); err != nil {
		t.Fatal(err)
	}
	full := &fullDisk{f.file.(*os.File), 10}
	f.file = full
	for range 3 {
		if err := f.Put("a", 2); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
	}
	want(t, f, map[string]string{"a": "1"})
	full.left = 1000
	if err := f.Put("b", 3); err != nil {
		t.Fatal(err)
	}
	want(t, f, map[string]string{"a": "1", "b": "3"})
	f.Close()
	want(t, open(t, path), map[string]string{"a": "1", "b": "3"})
}

// FuzzOpen checks that any file can be opened, and works from then on.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\"}\n"))
	f.Add([]byte("{\"key\":\"a\",\"value\":{\"b\":[1e400]}}\nnonsense\n{\"key\":\"\"}\n{\"key\":\"b\",\"val"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, _, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		before := file.All()
		for key, value := range before {
			if key == "" || !json.Valid(value) {
				t.Errorf("%q is %q", key, value)
			}
		}
		if err := file.Put("new", 1); err != nil {
			t.Fatal(err)
		}
		file.Close()
		again, _, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		after := again.All()
		if string(after["new"]) != "1" {
			t.Error("the new record is lost")
		}
		before["new"] = json.RawMessage("1")
		if len(after) != len(before) {
			t.Errorf("%d records, want %d", len(after), len(before))
		}
	})
}
