//go:build unix

package serial

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// unixStat finds ports in the file system.
type unixStat struct{}

func (unixStat) stat(path string) (real, fileID string, err error) {
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeCharDevice == 0 {
		return "", "", fmt.Errorf("%s is not a port", path)
	}
	return real, fmt.Sprintf("%s %d %d %s", real, stat.Ino, stat.Rdev, createdAt(real, stat)), nil
}
