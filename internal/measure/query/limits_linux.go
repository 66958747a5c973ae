package query

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// limitProcess limits this process: memory beyond what it has now, seconds of CPU time, no
// written files. The address space is not limited, because the C library reserves much of
// it per thread.
func limitProcess() error {
	const moreMemory, cpu, files = 192 << 20, 3, 32 // a C thread has 8 MiB
	size, err := writable()
	if err != nil {
		return err
	}
	for resource, limit := range map[int]uint64{
		syscall.RLIMIT_DATA: size + moreMemory, syscall.RLIMIT_CPU: cpu, syscall.RLIMIT_FSIZE: 0,
		syscall.RLIMIT_NOFILE: files, syscall.RLIMIT_CORE: 0,
	} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("setting limit %d: %w", resource, err)
		}
	}
	return nil
}

// writable returns the size of the process's writable memory, used or not.
func writable() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		return 0, fmt.Errorf("unexpected content of /proc/self/statm: %q", text)
	}
	pages, err := strconv.ParseUint(fields[5], 10, 64)
	return pages * uint64(os.Getpagesize()), err
}
