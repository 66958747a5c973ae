//go:build unix

package control

import (
	"os"
	"syscall"
)

// closedTo reports whether a directory belongs to this user and has none of the given
// permissions.
func closedTo(info os.FileInfo, perm os.FileMode) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&perm == 0
}
