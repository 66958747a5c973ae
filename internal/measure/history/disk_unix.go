//go:build unix

package history

import "golang.org/x/sys/unix"

// FreeSpace returns how many bytes the user can write to the file system of a folder.
func FreeSpace(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize), nil
}
