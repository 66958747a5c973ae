package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errRunning is why a gateway does not start: there is one.
var errRunning = errors.New("a gateway is running already")

// lockName is the file in the data directory that the gateway has locked.
const lockName = "lock"

// lockData makes sure that one gateway works on a data directory. The lock ends
// with the process, however that ends.
func lockData(data string) (*os.File, error) {
	file, err := openLocked(filepath.Join(data, lockName))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%w for %s; --data names another directory", errRunning, data)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return file, nil
}
