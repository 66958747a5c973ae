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

// refusalLog logs refused connections. A flood of connections gives few log lines.
type refusalLog struct {
	log *slog.Logger

	mu      sync.Mutex
	rate    ratelimit.Limiter
	skipped int
}

// logRate limits the log lines.
var logRate = Rate{Burst: 10, Every: 6 * time.Second}

func (l *refusalLog) add(transport string, host netip.Addr, address string, reason error) {
	l.mu.Lock()
	ok := l.rate.Allow(logRate, time.Now())
	skipped := l.skipped
	if ok {
		l.skipped = 0
	} else {
		l.skipped++
	}
	l.mu.Unlock()
	if !ok {
		return
	}
	text := fmt.Sprintf("%s connection from %s refused", transport, host)
	if skipped > 0 {
		text += fmt.Sprintf("; %d others were refused since the last such line", skipped)
	}
	l.log.Warn(text, "device", cmp.Or(address, "unknown"), "err", reason)
}
