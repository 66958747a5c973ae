package mcpserver

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// bucket lets so many requests through in a second, and some more at once after a
// pause.
type bucket struct {
	rate, burst float64

	mu   sync.Mutex
	full float64 // how many may come now
	last time.Time
}

func newBucket(rate float64, burst int) *bucket {
	return &bucket{rate: rate, burst: float64(burst), full: float64(burst)}
}

// take tells how long a request has to wait; it may come if that is nothing.
func (b *bucket) take() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.last.IsZero() {
		b.full = min(b.burst, b.full+now.Sub(b.last).Seconds()*b.rate)
	}
	b.last = now
	if b.full < 1 {
		return time.Duration((1 - b.full) / b.rate * float64(time.Second))
	}
	b.full--
	return 0
}

// limited refuses requests that come too fast.
func (d *Device) limited(next http.Handler) http.Handler {
	if d.bucket == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if wait := d.bucket.take(); wait > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
				http.Error(w, tooFast(wait), http.StatusTooManyRequests)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func tooFast(wait time.Duration) string {
	return fmt.Sprintf("requests come too fast for the device: nothing was done; try again in %v", wait.Round(time.Millisecond))
}
