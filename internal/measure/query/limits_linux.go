package query

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// restrain bounds what this process may take, whatever SQLite is asked for: little memory
// that can be written to beyond what it has by now, seconds of work, and no file to write
// to. Addresses are not bounded: C's library takes a great many for each thread.
func limitProcess() error {
	const moreMemory, cpu, files = 192 << 20, 3, 32 // a thread of C has 8 MiB
	size, err := writable()
	if err != nil {
		return err
	}
	for resource, most := range map[int]uint64{
		syscall.RLIMIT_DATA: size + moreMemory, syscall.RLIMIT_CPU: cpu, syscall.RLIMIT_FSIZE: 0,
		syscall.RLIMIT_NOFILE: files, syscall.RLIMIT_CORE: 0,
	} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("bounding resource %d: %w", resource, err)
		}
	}
	return nil
}

// writable is how much memory of its own the process can write to, used or not.
func writable() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		return 0, fmt.Errorf("the system tells of its memory: %q", text)
	}
	pages, err := strconv.ParseUint(fields[5], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}
