package mcp

import "time"

// How long is waited before lists are read anew, so that further changes are read with
// them: longer and longer for a device that says all the time that they have changed.
const (
	calm    = 10 * time.Millisecond
	slowest = 30 * time.Second
)

// pace is how often lists are read anew.
type pace struct {
	pause time.Duration
	last  time.Time // when it was last asked for
}

// next is how long to wait now.
func (p *pace) next(now time.Time) time.Duration {
	if rested := now.Sub(p.last) > 2*time.Second+4*p.pause; rested || p.pause == 0 {
		p.pause = calm
	} else {
		p.pause = min(2*p.pause, slowest)
	}
	p.last = now
	return p.pause
}
