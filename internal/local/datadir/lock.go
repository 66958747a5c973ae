package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrRunning is returned by Lock if another gateway has the directory.
var ErrRunning = errors.New("a gateway is already running")

// Lock makes this process the only gateway of a data directory, until the returned
// file is closed or the process ends.
func Lock(dir string) (*os.File, error) {
	file, err := openLocked(filepath.Join(dir, LockFile))
	if errors.Is(err, errLocked) {
		add := "To add a device, stop the gateway first, and start it with all devices"
		if file := Config(dir); file != "" {
			add = fmt.Sprintf("To add a device, add it to %s and run `ferrule reload`, or stop the gateway first", file)
		}
		return nil, fmt.Errorf("%w for %s, so nothing was started. %s. A second gateway needs --data with another directory, and --listen with another address", ErrRunning, dir, add)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return file, nil
}

// Claim announces that this process is about to become the gateway, so that no
// `ferrule mcp` process does first. The claim ends when the returned file is closed.
// It returns nil if another process has the claim; closing nil is harmless.
func Claim(dir string) *os.File {
	for range 10 {
		if file, err := openLocked(filepath.Join(dir, claimFile)); err == nil {
			return file
		}
		time.Sleep(10 * time.Millisecond) // Claimed holds the lock for a moment
	}
	return nil
}

// Claimed reports whether another process is about to become the gateway.
func Claimed(dir string) bool {
	file, err := openLocked(filepath.Join(dir, claimFile))
	if err == nil {
		file.Close()
	}
	return errors.Is(err, errLocked)
}
