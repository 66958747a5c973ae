//go:build unix

package main

import (
	"os"
	"syscall"
)

// writable asks whether files can be made in a directory.
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}

// owner is the user that a file belongs to.
func owner(info os.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// freeSpace is how many bytes a user can still write where a directory is.
func freeSpace(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint64(stat.Bavail) * uint64(stat.Bsize), nil
}
