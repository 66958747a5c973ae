// Package ratelimit limits how often something may happen. A [Limiter] refuses
// events, a [Throttle] slows a reader down. Both are token buckets of a few
// bytes, so that there can be one for every peer, and neither starts a goroutine.
// A [Keyed] has a limited number of Limiters, one for each peer. A [Digest] limits
// what is written about events.
package ratelimit

import "time"

// Rate allows Burst events at once, and one more after each Every.
type Rate struct {
	Burst int
	Every time.Duration
}

// PerMinute returns the rate of n events per minute, which may all happen at
// once.
func PerMinute(n int) Rate { return Rate{Burst: n, Every: time.Minute / time.Duration(n)} }

// Limiter refuses events that exceed a Rate. The zero value allows a full burst.
// It must not be used concurrently.
type Limiter struct {
	full time.Time // when the whole burst is available again
}

// Allow counts an event and reports whether it may happen now. A refused event
// does not count.
func (l *Limiter) Allow(r Rate, now time.Time) bool {
	if l.Wait(r, now) > 0 {
		return false
	}
	if l.full.Before(now) {
		l.full = now
	}
	l.full = l.full.Add(r.Every)
	return true
}

// Wait returns the time until Allow returns true; zero or less if it does now.
func (l *Limiter) Wait(r Rate, now time.Time) time.Duration {
	if l.full.Before(now) {
		return 0
	}
	return l.full.Sub(now) - time.Duration(r.Burst-1)*r.Every
}

// Idle reports whether the limiter equals its zero value, so that it can be
// dropped.
func (l *Limiter) Idle(now time.Time) bool { return !l.full.After(now) }

// Throttle slows a reader down to a number of bytes per second. The zero value
// allows a full burst. It must not be used concurrently.
type Throttle struct {
	credit  int       // bytes that may be read before looking at the clock
	updated time.Time // when credit was last computed
}

// NewThrottle returns a Throttle that allows another burst at the beginning, for a peer
// that introduces itself.
func NewThrottle(burst int) Throttle { return Throttle{credit: burst} }

// Spend counts n bytes and sleeps if they exceed the burst and the rate. It looks
// at the clock only when the credit is used up.
func (t *Throttle) Spend(n, perSecond, burst int) {
	if t.credit -= n; t.credit > 0 {
		return
	}
	now := time.Now()
	earned := now.Sub(t.updated).Seconds() * float64(perSecond)
	t.credit = int(min(float64(t.credit)+earned, float64(burst)))
	t.updated = now
	if t.credit < 0 {
		time.Sleep(time.Duration(float64(-t.credit) / float64(perSecond) * float64(time.Second)))
	}
}
