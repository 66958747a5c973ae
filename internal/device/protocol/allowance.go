package protocol

import "time"

// Allowance is how many more of something a device may say: one each so often, and some
// at once. It is the moment at which all that was taken will be paid for.
type RateLimiter struct{ paid time.Time }

// Take takes one more, if there may be one now.
func (a *RateLimiter) Take(now time.Time, every time.Duration, atOnce int) bool {
	if a.paid.Before(now) {
		a.paid = now
	}
	if a.paid.Sub(now) > time.Duration(atOnce-1)*every {
		return false
	}
	a.paid = a.paid.Add(every)
	return true
}
