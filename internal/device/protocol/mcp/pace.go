package mcp

import "time"

// The pause before lists are read again, so that further changes are read with them. It
// doubles for a device that keeps reporting changes.
const (
	minPause = 10 * time.Millisecond
	maxPause = 30 * time.Second
)

// pace limits how often lists are read.
type pace struct {
	pause time.Duration
	last  time.Time // of the last call of next
}

// next returns how long to wait now.
func (p *pace) next(now time.Time) time.Duration {
	if rested := now.Sub(p.last) > 2*time.Second+4*p.pause; rested || p.pause == 0 {
		p.pause = minPause
	} else {
		p.pause = min(2*p.pause, maxPause)
	}
	p.last = now
	return p.pause
}
