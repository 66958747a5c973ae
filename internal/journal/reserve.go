package journal

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// reserveFile takes up space that is freed when the disk is full.
const reserveFile = "journal.reserve"

// reserveStep is how much is freed at a time: another program may take the space first.
const reserveStep = 64 << 10

// reserve is disk space for records of what has happened: outcomes must be written even
// if the disk is full. Intents do not use it, because their calls can be refused.
type reserve struct {
	path       string
	size, have int64
}

// openReserve returns the reserve of a journal. It need not exist yet.
func openReserve(dir string, size int64) *reserve {
	r := &reserve{path: filepath.Join(dir, reserveFile), size: size}
	if info, err := os.Stat(r.path); err == nil {
		r.have = info.Size()
	}
	return r
}

// low reports whether part of the reserve is missing.
func (r *reserve) low() bool { return r.have < r.size }

// fill makes the reserve complete, or leaves it as it was. The content is random, because
// some file systems compress.
func (r *reserve) fill() error {
	if r.have >= r.size {
		return nil
	}
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, reserveStep)
	rand.Read(block)
	for at := r.have; at < r.size; at += int64(len(block)) {
		if _, err := file.WriteAt(block[:min(int64(len(block)), r.size-at)], at); err != nil {
			return errors.Join(err, file.Truncate(r.have))
		}
	}
	if err := file.Sync(); err != nil { // else the space may not be allocated yet
		return errors.Join(err, file.Truncate(r.have))
	}
	r.have = r.size
	return nil
}

// release frees a part of the reserve. It reports false if nothing is left.
func (r *reserve) release() bool {
	if r.have == 0 {
		return false
	}
	rest := max(0, r.have-reserveStep)
	if err := os.Truncate(r.path, rest); err != nil {
		r.have = 0
		return false
	}
	r.have = rest
	return true
}

// isFull reports whether an error means that the disk or a quota is full.
func isFull(err error) bool {
	const diskFull = syscall.Errno(112) // ERROR_DISK_FULL on Windows
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || runtime.GOOS == "windows" && errors.Is(err, diskFull)
}
