//go:build unix

package history

import "golang.org/x/sys/unix"

// diskFree is how many bytes a program may still write where a folder is.
func diskFree(dir string) (int64, bool) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0, false
	}
	return int64(fs.Bavail) * int64(fs.Bsize), true
}
