//go:build unix

package serial

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// unixPaths finds ports in the file system.
type unixPaths struct{}

func (unixPaths) stat(path string) (real, mark string, err error) {
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeCharDevice == 0 {
		return "", "", fmt.Errorf("%s is no port", path)
	}
	return real, fmt.Sprintf("%s %d %d %s", real, stat.Ino, stat.Rdev, born(real, stat)), nil
}
