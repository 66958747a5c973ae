package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// The delay of a response to a wrong token. It doubles with each one of a host, and starts
// over when there was none for a while. A valid token is never delayed.
const (
	minWrongDelay = 100 * time.Millisecond
	maxWrongDelay = 5 * time.Second
	wrongTokenAge = 10 * time.Minute
	// maxWrongHosts is the limit of hosts that are remembered.
	maxWrongHosts = 1024
)

// wrongTokens counts wrong tokens by host.
type wrongTokens struct {
	log *slog.Logger

	mu     sync.Mutex
	byHost map[netip.Prefix]*wrongCount
}

type wrongCount struct {
	n    int
	last time.Time
}

// wait delays the response to a wrong token.
func (w *wrongTokens) wait(ctx context.Context, remote string) {
	select {
	case <-time.After(w.add(mcphttp.HostOf(remote), time.Now())):
	case <-ctx.Done():
	}
}

// add counts a wrong token and returns how long its response has to wait. It logs the
// first, and then each time that the number has doubled.
func (w *wrongTokens) add(host netip.Prefix, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.byHost[host]
	if c == nil {
		w.makeRoom()
		c = &wrongCount{}
		w.byHost[host] = c
	}
	if now.Sub(c.last) > wrongTokenAge {
		c.n = 0
	}
	c.n++
	c.last = now
	if c.n&(c.n-1) == 0 {
		w.log.Warn(fmt.Sprintf("wrong token from %s, %d so far; nothing was called. If it is one of your agents, correct its token; if not, limit who can reach this port", strings.TrimSuffix(host.String(), "/32"), c.n))
	}
	return min(minWrongDelay<<min(c.n-1, 30), maxWrongDelay)
}

// makeRoom drops the host that was quiet for longest, if there are too many. It is called
// with mu held.
func (w *wrongTokens) makeRoom() {
	if len(w.byHost) < maxWrongHosts {
		return
	}
	var oldest netip.Prefix
	var last time.Time
	for host, c := range w.byHost {
		if last.IsZero() || c.last.Before(last) {
			oldest, last = host, c.last
		}
	}
	delete(w.byHost, oldest)
}
