package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Exposed is a file of the data directory, or the directory itself, that other users own
// or can access.
type Exposed struct {
	Path string
	// Foreign is set if the file belongs to another user. Otherwise its permissions are
	// too wide.
	Foreign bool
}

// Examine returns what other users own or can access in a data directory: everything
// should belong to this user, directories with mode 0700 and files with 0600. It changes
// nothing. A directory that does not exist exposes nothing.
func Examine(dir string) ([]Exposed, error) {
	var all []Exposed
	err := walk(dir, func(path string, _ fs.FileInfo, foreign bool) error {
		all = append(all, Exposed{path, foreign})
		return nil
	})
	return all, err
}

// Prepare makes a data directory usable: it creates the directory if it is missing, and
// corrects permissions that let other users in. It returns the corrected paths, unless the
// directory is new and empty: an image or an administrator made it. Files of another user
// are an error, because that user can still change them: a journal or a list of trusted
// devices is then worth nothing.
func Prepare(dir string) (corrected []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	err = walk(dir, func(path string, info fs.FileInfo, foreign bool) error {
		if foreign {
			return fmt.Errorf("%s belongs to another user; run ferrule as that user, change its owner, or name another directory with --data", path)
		}
		mode := fs.FileMode(0o600)
		if info.IsDir() {
			mode = 0o700
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("other users can access %s: %w", path, err)
		}
		if len(files) > 0 {
			corrected = append(corrected, path)
		}
		return nil
	})
	if err != nil {
		return corrected, fmt.Errorf("data directory: %w", err)
	}
	return corrected, nil
}

// walk calls fn with everything in a data directory that is exposed, the directory
// first. Files of a running gateway may disappear meanwhile.
func walk(dir string, fn func(path string, info fs.FileInfo, foreign bool) error) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // the directory may be a link to another disk
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.IsDir() && path == filepath.Join(dir, "lost+found") {
			return filepath.SkipDir // of root, if the directory is a disk of its own
		}
		foreign, open := access(info)
		if !foreign && !open {
			return nil
		}
		if err := fn(path, info, foreign); err != nil {
			return err
		}
		if foreign && info.IsDir() && path != dir {
			return filepath.SkipDir // it may be closed to this user
		}
		return nil
	})
}
