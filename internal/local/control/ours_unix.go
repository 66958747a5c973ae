//go:build unix

package control

import (
	"os"
	"syscall"
)

// ours tells whether a directory is this user's and nobody else's.
func ours(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
