//go:build unix

package control

import (
	"os"
	"syscall"
)

// isPrivate reports whether the directory belongs to this user and is closed to others.
func isPrivate(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
