package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Done is the result of Change.
type Done struct {
	Path    string // with symbolic links resolved
	Changed bool
	Backup  string // copy of the old file; empty if there was none
}

// Choose returns the first of several paths that exists, else the first whose directory
// exists, else the last.
func Choose(files []string) string {
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil {
			return file
		}
	}
	for _, file := range files {
		if _, err := os.Stat(filepath.Dir(file)); err == nil {
			return file
		}
	}
	return files[len(files)-1]
}

// Private takes away other users' access to a file, before a secret is written to it. The
// file need not exist.
func Private(file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Perm()&0o077 == 0 || runtime.GOOS == "windows" {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(file, info.Mode().Perm()&^0o077)
}

// Change edits a file, or creates it with perm. It replaces the file atomically, after
// saving a backup next to it. Backups are never overwritten.
func (c Client) Change(file string, perm fs.FileMode, edit func([]byte) ([]byte, error)) (Done, error) {
	path, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(file); err == nil {
			return Done{}, fmt.Errorf("%s is a symbolic link to a missing file", file)
		}
		return change(file, perm, edit)
	}
	if err != nil {
		return Done{}, err
	}
	if c.locks {
		unlock, err := lock(path)
		if err != nil {
			return Done{}, err
		}
		defer unlock()
	}
	return change(path, perm, edit)
}

func change(path string, perm fs.FileMode, edit func([]byte) ([]byte, error)) (Done, error) {
	d := Done{Path: path}
	before, err := os.ReadFile(path)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	after, err := edit(before)
	if err != nil || bytes.Equal(before, after) {
		return d, err
	}
	if exists {
		info, err := os.Stat(path)
		if err != nil {
			return d, err
		}
		perm = info.Mode().Perm()
		if d.Backup, err = backUp(path, before, perm); err != nil {
			return d, fmt.Errorf("saving a backup: %w", err)
		}
	} else if err := os.MkdirAll(filepath.Dir(path), perm|(perm&0o444)>>2); err != nil { // readable means searchable for a directory
		return d, err
	}
	temp, err := writeTemp(path, after, perm)
	if err != nil {
		return d, err
	}
	if now, err := os.ReadFile(path); err == nil && !exists || exists && !bytes.Equal(now, before) {
		os.Remove(temp)
		return d, fmt.Errorf("%s was changed by another program at the same time; try again", path)
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return d, err
	}
	d.Changed = true
	return d, nil
}

// backUp saves the old content: the first time, before Ferrule ever changed the file, as
// FILE.ferrule-backup, later with a number. Equal backups are not saved twice.
func backUp(path string, doc []byte, perm fs.FileMode) (string, error) {
	for n := 1; ; n++ {
		name := path + ".ferrule-backup"
		if n > 1 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, doc) {
			return name, nil
		}
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = file.Write(doc)
		return name, errors.Join(err, file.Chmod(perm), file.Close())
	}
}

// writeTemp writes a temporary file in the same directory.
func writeTemp(path string, doc []byte, perm fs.FileMode) (string, error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".ferrule-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(doc)
	if err = errors.Join(err, file.Chmod(perm), file.Sync(), file.Close()); err != nil {
		os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// lock takes the lock that the program itself uses while it writes its file: a directory
// next to it. A lock older than ten seconds is stale.
func lock(path string) (unlock func(), err error) {
	const wait, stale, pause = 5 * time.Second, 10 * time.Second, 20 * time.Millisecond
	dir := path + ".lock"
	for end := time.Now().Add(wait); ; time.Sleep(pause) {
		if err = os.Mkdir(dir, 0o777); err == nil {
			return func() { os.Remove(dir) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > stale {
			os.Remove(dir)
		} else if time.Now().After(end) {
			return nil, fmt.Errorf("another program is writing %s; try again", path)
		}
	}
}
