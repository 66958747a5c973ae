package server

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
	telling map[news]*telling // those under way
}

// telling is one that is under way.
type telling struct {
	again bool          // there is more since
	over  chan struct{} // closed when the agent was told all
}

// news is what is told to an agent.
type news struct {
	session mcp.Session
	method  string
	uri     string  // of a resource
	listen  *listen // on which it is told; nil if that is not known here
}

func newTeller(log *slog.Logger) *teller {
	return &teller{log: log, telling: make(map[news]*telling)}
}

// to is a middleware of what is sent to those agents, of whom wanted tells whether one
// has subscribed to a resource: the SDK may have looked just before it has heard enough.
func (t *teller) to(wanted func(session mcp.Session, uri string) bool) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler { return t.send(next, wanted) }
}

func (t *teller) send(next mcp.MethodHandler, wanted func(mcp.Session, string) bool) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		n := news{session: req.GetSession(), method: method}
		switch {
		case strings.HasSuffix(method, "/list_changed"):
			if req.GetParams().GetMeta()[mcp.MetaKeySubscriptionID] != nil {
				return nil, nil // of the newer era: the view tells it
			}
		case method == updatedMethod:
			n.uri = req.GetParams().(*mcp.ResourceUpdatedNotificationParams).URI
		default:
			return next(ctx, method, req)
		}
		t.tell(n, func() {
			if n.uri == "" || wanted(n.session, n.uri) {
				next(context.WithoutCancel(ctx), method, req) // if it fails, the agent is gone
			}
		})
		return nil, nil
	}
}

// tell has an agent told, once more if it is being told.
func (t *teller) tell(n news, tell func()) {
	if t.begin(n) {
		go func() {
			for more := true; more; more = t.end(n) {
				t.try(tell)
			}
		}()
	}
}

func (t *teller) try(tell func()) {
	defer survive(t.log)
	tell()
}

// begin is false if an agent is being told already; it is then told once more.
func (t *teller) begin(n news) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.telling[n]; one != nil {
		one.again = true
		return false
	}
	t.telling[n] = &telling{over: make(chan struct{})}
	return true
}

// end is true if an agent is to be told once more.
func (t *teller) end(n news) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.telling[n]
	if one.again {
		one.again = false
		return true
	}
	close(one.over)
	delete(t.telling, n)
	return false
}

// settle waits until an agent is not being told something any more, or ctx ends.
func (t *teller) settle(ctx context.Context, n news) {
	t.mu.Lock()
	one := t.telling[n]
	t.mu.Unlock()
	if one == nil {
		return
	}
	select {
	case <-one.over:
	case <-ctx.Done():
	}
}
