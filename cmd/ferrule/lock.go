package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockData makes sure that one gateway works on a data directory. The lock ends
// with the process, however that ends.
func lockData(data string) (*os.File, error) {
	file, err := openLocked(filepath.Join(data, "lock"))
	if err != nil {
		return nil, fmt.Errorf("a gateway is running for %s already (%w)", data, err)
	}
	return file, nil
}
