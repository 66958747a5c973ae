package mcpserver

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// bucket is a token bucket that limits the rate of requests.
type bucket struct {
	rate, burst float64

	mu   sync.Mutex
	full float64 // requests that may come now
	last time.Time
}

func newBucket(rate float64, burst int) *bucket {
	return &bucket{rate: rate, burst: float64(burst), full: float64(burst)}
}

// take returns how long a request must wait; 0 if it may pass.
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

// limited refuses requests beyond the rate limit.
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
	return fmt.Sprintf("too many requests: nothing was done; try again in %v", wait.Round(time.Millisecond))
}
