package query

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// restrain bounds what this process may take, whatever SQLite is asked for: few
// addresses more than it has by now, of which Go takes 64 MiB at a time, seconds of work,
// and no file to write to.
func restrain() error {
	const moreMemory, cpu, files = 3 * 64 << 20, 3, 32
	size, err := addressSpace()
	if err != nil {
		return err
	}
	for resource, most := range map[int]uint64{
		syscall.RLIMIT_AS: size + moreMemory, syscall.RLIMIT_CPU: cpu, syscall.RLIMIT_FSIZE: 0,
		syscall.RLIMIT_NOFILE: files, syscall.RLIMIT_CORE: 0,
	} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("bounding resource %d: %w", resource, err)
		}
	}
	return nil
}

// addressSpace is how many bytes of addresses the process has. Most of them stand for no
// memory.
func addressSpace() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	pages, err := strconv.ParseUint(first, 10, 64)
	return pages * uint64(os.Getpagesize()), err
}
