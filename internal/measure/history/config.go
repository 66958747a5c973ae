package history

import (
	"fmt"
	"time"
)

// Config configures the history.
type Config struct {
	// Sync is how long samples may wait to be written. A power cut may lose that much, if
	// the stream has lost it as well.
	Sync time.Duration
	// Raw, Minutes and Hours are how long each resolution is kept.
	Raw, Minutes, Hours time.Duration
	// Size is the maximum size of the file in bytes.
	Size int64
}

// The limits of a config.
const (
	minSync = 100 * time.Millisecond
	maxSync = 5 * time.Minute
	minRaw  = time.Hour
	maxKept = 100 * 365 * 24 * time.Hour
	minSize = 16 << 20
)

const day = 24 * time.Hour

// DefaultConfig returns the defaults, made for fifty signals on an SD card.
func DefaultConfig() Config {
	return Config{Sync: 2 * time.Second, Raw: 2 * day, Minutes: 90 * day, Hours: 5 * 365 * day, Size: 1 << 30}
}

// Check returns an error if a value is out of range.
func (c Config) Check() error {
	switch {
	case c.Sync < minSync || c.Sync > maxSync:
		return fmt.Errorf("sync: must be between %v and %v, got %v", minSync, maxSync, c.Sync)
	case c.Raw < minRaw || c.Raw > maxKept:
		return fmt.Errorf("raw: must be between %v and %v, got %v", minRaw, maxKept, c.Raw)
	case c.Minutes < c.Raw || c.Minutes > maxKept:
		return fmt.Errorf("minutes: must be between %v (raw) and %v, got %v", c.Raw, maxKept, c.Minutes)
	case c.Hours < c.Minutes || c.Hours > maxKept:
		return fmt.Errorf("hours: must be between %v (minutes) and %v, got %v", c.Minutes, maxKept, c.Hours)
	case c.Size < minSize:
		return fmt.Errorf("size: must be at least %d MiB, got %d", minSize>>20, c.Size>>20)
	}
	return nil
}
