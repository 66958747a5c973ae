//go:build unix

package datadir

import (
	"io/fs"
	"os"
	"syscall"
)

// access reports whether a file belongs to another user, and whether other users can
// access it. A symbolic link has no permissions of its own.
func access(info fs.FileInfo) (foreign, open bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	foreign = ok && int(stat.Uid) != os.Geteuid()
	return foreign, info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0
}
