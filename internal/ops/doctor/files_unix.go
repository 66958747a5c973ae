//go:build unix

package doctor

import (
	"os"
	"syscall"
)

// writable reports why files cannot be created in a directory.
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}

// owner returns the user ID of a file's owner.
func owner(info os.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
