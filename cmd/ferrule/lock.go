package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// lockData makes sure that one gateway works on a data directory. The lock ends
// with the process, however that ends.
func lockData(data string) (*os.File, error) {
	file, err := openLocked(filepath.Join(data, "lock"))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("a gateway is running for %s already; --data names another directory", data)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return file, nil
}
