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
