//go:build unix

package server

import (
	"math"
	"syscall"
)

// maxFiles returns how many files this process may open; 0 if that is unknown.
func maxFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
