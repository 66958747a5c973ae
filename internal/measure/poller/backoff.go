package poller

import (
	"math/rand/v2"
	"time"
)

const (
	// startSpread is the time over which the first polls of a new device are spread.
	startSpread = 5 * time.Second
	// maxPause is the longest pause after failures. A longer interval stays as it is.
	maxPause = 2 * time.Minute
	// A device may spend one part in loadDivisor of its time on answering.
	loadDivisor = 4
	// The limits of a poll's timeout, which is a part of its interval.
	minTimeout = 5 * time.Second
	maxTimeout = 30 * time.Second
)

// jitter returns d, 5 % more or less, so that polls with one interval do not stay in step.
func jitter(d time.Duration) time.Duration { return d - d/20 + randomUpTo(d/10) }

// randomUpTo returns a random duration below d.
func randomUpTo(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

// pause returns the interval of a poll after a number of failures in a row.
func pause(every time.Duration, fails int) time.Duration {
	for range fails {
		if every >= maxPause {
			return every
		}
		every = min(2*every, maxPause)
	}
	return every
}

// pause returns the interval of this poll after failures. A ring is read twice as often as
// necessary, so its first failure does not lengthen the interval.
func (p *poll) pause(every time.Duration, fails int) time.Duration {
	if p.ring {
		fails--
	}
	return pause(every, fails)
}

// nextDue returns when the poll runs next, after a read that took so long. It keeps its
// rhythm if it can, and never runs sooner than after half of its interval.
func (p *poll) nextDue(now time.Time, took time.Duration) time.Time {
	every := p.pause(max(p.every, loadDivisor*took), p.failures)
	if p.failures > 0 {
		return now.Add(jitter(every))
	}
	due := p.due.Add(jitter(every))
	if soon := now.Add(every / 2); due.Before(soon) {
		return soon
	}
	return due
}
