package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// teller tells agents that a list or a resource has changed, each in a goroutine of
// its own: the SDK would tell one after the other, and wait for each that does not
// read.
type teller struct {
	log *slog.Logger

	mu      sync.Mutex
	telling map[news]bool // those under way; true if there is more since
}

// news is what is told to an agent.
type news struct {
	session mcp.Session
	method  string
	uri     string // of a resource
}

func newTeller(log *slog.Logger) *teller {
	return &teller{log: log, telling: make(map[news]bool)}
}

// send is a middleware of what is sent.
func (t *teller) send(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		n := news{session: req.GetSession(), method: method}
		switch {
		case strings.HasSuffix(method, "/list_changed"):
		case method == "notifications/resources/updated":
			n.uri = req.GetParams().(*mcp.ResourceUpdatedNotificationParams).URI
		default:
			return next(ctx, method, req)
		}
		if t.begin(n) {
			go func() {
				defer survive(t.log)
				for more := true; more; more = t.end(n) {
					next(context.WithoutCancel(ctx), method, req) // if it fails, the agent is gone
				}
			}()
		}
		return nil, nil
	}
}

// begin is false if an agent is being told already; it is then told once more.
func (t *teller) begin(n news) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, underWay := t.telling[n]
	t.telling[n] = underWay
	return !underWay
}

// end is true if an agent is to be told once more.
func (t *teller) end(n news) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.telling[n] {
		t.telling[n] = false
		return true
	}
	delete(t.telling, n)
	return false
}
