package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
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

// nextName is the file in the data directory that is locked by who is about to be the
// gateway.
const nextName = "next"

// claimData has the programs of agents let this process be the next gateway, until what it
// returns is closed; nil if another process is about to be.
func claimData(data string) *os.File {
	for range 10 {
		if file, err := openLocked(filepath.Join(data, nextName)); err == nil {
			return file
		}
		time.Sleep(10 * time.Millisecond) // who looks whether it is claimed has it for a moment
	}
	return nil
}

// claimed tells whether somebody is about to be the gateway.
func claimed(data string) bool {
	file, err := openLocked(filepath.Join(data, nextName))
	if err == nil {
		file.Close()
	}
	return errors.Is(err, errLocked)
}
