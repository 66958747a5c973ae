package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
// devices is then worth nothing. What Ferrule did not create stays as it is: the directory
// may have been named by mistake.
func Prepare(dir string) (corrected []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // the directory may be a link to another disk
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
		if path == dir && !only(files) {
			if info.Mode().Perm()&0o022 != 0 {
				return fmt.Errorf("other users can write to %s, and it has other files than Ferrule's; name a directory of its own with --data", path)
			}
			return nil
		}
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

// only reports whether all files and directories in a directory are Ferrule's.
func only(files []fs.DirEntry) bool {
	return !slices.ContainsFunc(files, func(f fs.DirEntry) bool { return !isOurs(f.Name()) && f.Type()&fs.ModeSymlink == 0 })
}

// isOurs reports whether a file at the top of a data directory may be Ferrule's.
func isOurs(name string) bool {
	name, _, _ = strings.Cut(name, ".")
	return slices.Contains([]string{"journal", "devices", "manifests", "toys", "node", LockFile, claimFile, configFile, policiesFile, "history", "mcp", "approvals", "cluster", "control", "tls", "lost+found"}, name)
}

// walk calls fn with everything of Ferrule in a data directory that is exposed, the
// directory first. Files of a running gateway may disappear meanwhile.
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
		if filepath.Dir(path) == dir && path != dir && (!isOurs(d.Name()) || d.Name() == "lost+found") { // the latter is root's, if the directory is a disk
			if info.IsDir() {
				return filepath.SkipDir
			}
			return nil
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
