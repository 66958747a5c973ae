package setup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, text string, perm fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), perm); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s has %q, want %q, %v", filepath.Base(path), got, want, err)
	}
}

func becomes(text string) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return []byte(text), nil }
}

// TestBackups checks that backups are never overwritten, nor saved twice.
func TestBackups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	var c Client
	change := func(text, backup string) {
		t.Helper()
		done, err := c.Change(file, 0o600, becomes(text))
		if err != nil || done.Changed != (backup != "=") || strings.TrimPrefix(done.Backup, file) != strings.Trim(backup, "=") {
			t.Errorf("%+v, %v", done, err)
		}
		wantFile(t, file, text)
	}
	write(t, file, "mine", 0o640)
	change("mine", "=")
	change("a", ".ferrule-backup")
	change("b", ".ferrule-backup-2")
	change("mine", ".ferrule-backup-3")
	change("a", ".ferrule-backup")
	change("mine", ".ferrule-backup-2")
	wantFile(t, file+".ferrule-backup", "mine")
	wantFile(t, file+".ferrule-backup-2", "a")
	wantFile(t, file+".ferrule-backup-3", "b")
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 4 {
		t.Errorf("there are %v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
			t.Errorf("%s has %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestNewFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	var c Client
	if done, err := c.Change(filepath.Join(dir, "none"), 0o600, becomes("")); err != nil || done.Changed {
		t.Error(done, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a directory was made for nothing")
	}
	done, err := c.Change(filepath.Join(dir, "new"), 0o600, becomes("x"))
	if err != nil || !done.Changed || done.Backup != "" {
		t.Error(done, err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, done.Path: 0o600} {
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != want {
			t.Error(info.Mode(), err)
		}
	}
}

// TestLinks checks that a symbolic link stays one, and that its target changes.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "dotfiles", "config"), filepath.Join(dir, "link")
	if err := os.Mkdir(filepath.Dir(real), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("dotfiles", "config"), link); err != nil {
		t.Skip(err)
	}
	c := Client{locks: true}
	if _, err := c.Change(link, 0o600, becomes("x")); err == nil || !strings.Contains(err.Error(), "symbolic link to a missing file") {
		t.Error(err)
	}
	write(t, real, "mine", 0o644)
	if done, err := c.Change(link, 0o600, becomes("x")); err != nil || !done.Changed {
		t.Error(done, err)
	}
	wantFile(t, real, "x")
	wantFile(t, real+".ferrule-backup", "mine")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Error(info.Mode(), err)
	}
}

// TestFailure checks that a failed change leaves no trace.
func TestFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	write(t, file, "mine", 0o600)
	var c Client
	broken := errors.New("broken")
	if _, err := c.Change(file, 0o600, func([]byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	_, err := c.Change(file, 0o600, func(doc []byte) ([]byte, error) {
		write(t, file, "theirs", 0o600)
		return bytes.ToUpper(doc), nil
	})
	if err == nil || !strings.Contains(err.Error(), "was changed by another program") {
		t.Error(err)
	}
	wantFile(t, file, "theirs")
	if left, _ := filepath.Glob(file + ".ferrule-[0-9]*"); len(left) > 0 {
		t.Error(left)
	}
}

// TestLock checks that the program's own lock is respected, unless it is stale.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".claude.json")
	write(t, file, "mine", 0o600)
	c := Client{locks: true}
	if err := os.Mkdir(file+".lock", 0o755); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() {
		write(t, file, "theirs", 0o600)
		os.Remove(file + ".lock")
	})
	_, err := c.Change(file, 0o600, func(doc []byte) ([]byte, error) {
		if _, err := os.Stat(file + ".lock"); err != nil {
			t.Error("it is not locked")
		}
		return append(doc, '+'), nil
	})
	if err != nil {
		t.Error(err)
	}
	wantFile(t, file, "theirs+")
	if err := os.Mkdir(file+".lock", 0o755); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(file+".lock", old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Change(file, 0o600, becomes("x")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file + ".lock"); err == nil {
		t.Error("the lock is left over")
	}
}

func TestChoose(t *testing.T) {
	dir := t.TempDir()
	a, b, away := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "away", "c")
	if got := Choose([]string{away, a}); got != a {
		t.Error(got)
	}
	if got := Choose([]string{a, b}); got != a {
		t.Error(got)
	}
	write(t, b, "", 0o600)
	if got := Choose([]string{a, b}); got != b {
		t.Error(got)
	}
	if got := Choose([]string{away, filepath.Join(dir, "far", "d")}); filepath.Base(got) != "d" {
		t.Error(got)
	}
}
