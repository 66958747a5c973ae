//go:build unix

package datadir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPrepare checks that a data directory is created for its user only, and that
// permissions that were too wide are corrected and reported.
func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	if corrected, err := Prepare(dir); err != nil || len(corrected) > 0 || mode(t, dir) != 0o700 {
		t.Fatalf("%v, %v, mode %v", corrected, err, mode(t, dir))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if corrected, err := Prepare(dir); err != nil || len(corrected) > 0 || mode(t, dir) != 0o700 {
		t.Errorf("an empty directory: %v, %v, mode %v", corrected, err, mode(t, dir))
	}
	sub, private, journal := filepath.Join(dir, "cluster"), filepath.Join(dir, "lock"), filepath.Join(dir, "cluster", "journal.log")
	for _, err := range []error{
		os.Mkdir(sub, 0o700), os.WriteFile(private, nil, 0o600), os.WriteFile(journal, nil, 0o600), os.Symlink("/nowhere", filepath.Join(dir, "link")),
		os.Chmod(dir, 0o777), os.Chmod(sub, 0o750), os.Chmod(journal, 0o604),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	exposed, err := Examine(dir)
	if err != nil || len(exposed) != 3 || mode(t, dir) != 0o777 {
		t.Errorf("examined: %v, %v, mode %v", exposed, err, mode(t, dir))
	}
	corrected, err := Prepare(dir)
	if err != nil || strings.Join(corrected, " ") != strings.Join([]string{dir, sub, journal}, " ") {
		t.Errorf("corrected %q, %v", corrected, err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, sub: 0o700, journal: 0o600, private: 0o600} {
		if got := mode(t, path); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	if corrected, err := Prepare(dir); err != nil || len(corrected) > 0 {
		t.Errorf("a second time: %q, %v", corrected, err)
	}
	if exposed, err := Examine(filepath.Join(dir, "missing")); err != nil || len(exposed) > 0 {
		t.Errorf("missing: %v, %v", exposed, err)
	}
}

// TestForeignFiles checks that a directory with files of another user is refused: that
// user can change them.
func TestForeignFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	devices, lost := filepath.Join(dir, "devices.jsonl"), filepath.Join(dir, "lost+found")
	for _, err := range []error{os.WriteFile(devices, nil, 0o600), os.Mkdir(lost, 0o700), syscall.Chown(lost, 12345, 12345)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Prepare(dir); err != nil {
		t.Errorf("a disk of its own: %v", err)
	}
	for _, path := range []string{devices, dir} {
		if err := syscall.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if exposed, err := Examine(dir); err != nil || len(exposed) == 0 || !exposed[0].Foreign && path == dir {
			t.Errorf("examined: %v, %v", exposed, err)
		}
		if _, err := Prepare(dir); err == nil || !strings.Contains(err.Error(), path+" belongs to another user") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestOtherFiles checks that Prepare leaves files alone that Ferrule did not create: the
// data directory may have been named by mistake.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	program, journal := filepath.Join(dir, "build.sh"), filepath.Join(dir, "journal.log")
	for _, err := range []error{
		os.WriteFile(program, nil, 0o600), os.Chmod(program, 0o755), os.WriteFile(journal, nil, 0o600), os.Chmod(journal, 0o644), os.Chmod(dir, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if corrected, err := Prepare(dir); err != nil || len(corrected) != 1 {
		t.Errorf("corrected %q, %v", corrected, err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o755, program: 0o755, journal: 0o600} {
		if got := mode(t, path); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(dir); err == nil || !strings.Contains(err.Error(), "name a directory of its own") {
		t.Errorf("a directory that others can write to: %v", err)
	}
}
