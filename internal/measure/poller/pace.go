package poller

import (
	"math/rand/v2"
	"time"
)

const (
	// spread is the time in which a device that has come is first asked for everything.
	spread = 5 * time.Second
	// longest is the longest pause after failures, unless it is not asked as often
	// anyway.
	longest = 2 * time.Minute
	// share is which part of its time a device may take to answer: one in so many.
	share = 4
	// As long an answer is waited for, and within these.
	minPatience = 5 * time.Second
	maxPatience = 30 * time.Second
)

// jitter is about as long, up to a twentieth more or less: what is asked equally often
// does not stay in step.
func jitter(d time.Duration) time.Duration { return d - d/20 + within(d/10) }

// within is any time up to d.
func within(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

// pause is how long it is until something is asked again that has failed so often in a
// row.
func pause(every time.Duration, fails int) time.Duration {
	for range fails {
		if every >= longest {
			return every
		}
		every = min(2*every, longest)
	}
	return every
}

// pause is that of a probe. A ring is read so often that one read may fail: so the first
// failure makes nothing longer.
func (p *probe) pause(every time.Duration, fails int) time.Duration {
	if p.rings {
		fails--
	}
	return pause(every, fails)
}

// again is when something is asked again that was due, that took so long, and that has
// failed so often in a row. It stays at its pace if it can, and never comes sooner than
// after half of its time.
func (p *probe) again(now time.Time, took time.Duration) time.Time {
	every := p.pause(max(p.every, share*took), p.fails)
	if p.fails > 0 {
		return now.Add(jitter(every))
	}
	due := p.due.Add(jitter(every))
	if soon := now.Add(every / 2); due.Before(soon) {
		return soon
	}
	return due
}
