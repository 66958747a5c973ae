package hardware

import "golang.org/x/sys/unix"

// supported reports whether the hardware of this system can be used.
const supported = true

// diskSpace returns the size of a file system and what programs can still use, in bytes.
func diskSpace(dir string) (total, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize), nil
}
