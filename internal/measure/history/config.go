package history

import (
	"fmt"
	"time"
)

// Config is what can be set about the history.
type Config struct {
	// Sync is how long samples may wait to be written: what a crash can delay, and what a
	// power cut can take that the stream has not kept.
	Sync time.Duration
	// Raw, Minutes and Hours are for how long each is kept.
	Raw, Minutes, Hours time.Duration
	// Size is how many bytes all of it may take.
	Size int64
}

// The bounds of a config.
const (
	minSync = 100 * time.Millisecond
	maxSync = 5 * time.Minute
	minRaw  = time.Hour
	maxKept = 100 * 365 * 24 * time.Hour
	minSize = 16 << 20
)

const day = 24 * time.Hour

// DefaultConfig keeps fifty signals for five years on an SD card.
func DefaultConfig() Config {
	return Config{Sync: 2 * time.Second, Raw: 2 * day, Minutes: 90 * day, Hours: 5 * 365 * day, Size: 1 << 30}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	switch {
	case c.Sync < minSync || c.Sync > maxSync:
		return fmt.Errorf("sync: want from %v to %v, got %v", minSync, maxSync, c.Sync)
	case c.Raw < minRaw || c.Raw > maxKept:
		return fmt.Errorf("raw: want from %v to %v, got %v", minRaw, maxKept, c.Raw)
	case c.Minutes < c.Raw || c.Minutes > maxKept:
		return fmt.Errorf("minutes: want from %v (raw) to %v, got %v", c.Raw, maxKept, c.Minutes)
	case c.Hours < c.Minutes || c.Hours > maxKept:
		return fmt.Errorf("hours: want from %v (minutes) to %v, got %v", c.Minutes, maxKept, c.Hours)
	case c.Size < minSize:
		return fmt.Errorf("size: want at least %d MiB, got %d", minSize>>20, c.Size>>20)
	}
	return nil
}
