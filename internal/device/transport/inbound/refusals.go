package inbound

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// refusals logs who was not let in, and not more than a person can read: a flood
// of connections is no flood of lines.
type refusals struct {
	log *slog.Logger

	mu      sync.Mutex
	rate    ratelimit.Limiter
	skipped int
}

// lines is how often a line is logged.
var lines = Rate{Burst: 10, Every: 6 * time.Second}

func (r *refusals) add(medium string, host netip.Addr, address string, why error) {
	r.mu.Lock()
	ok := r.rate.Allow(lines, time.Now())
	skipped := r.skipped
	if ok {
		r.skipped = 0
	} else {
		r.skipped++
	}
	r.mu.Unlock()
	if !ok {
		return
	}
	text := fmt.Sprintf("a device was refused on %s, from %s", medium, host)
	if skipped > 0 {
		text += fmt.Sprintf("; %d others since the last such line", skipped)
	}
	r.log.Warn(text, "device", cmp.Or(address, "unknown"), "err", why)
}
