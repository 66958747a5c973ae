package server

import (
	"context"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// How agents are told that a list has changed.
const (
	toolsChanged     = "notifications/tools/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
)

// maxListens is how many a session may have.
const maxListens = 128

// listens is what agents of the newer era have open at one view to hear that lists have
// changed. An agent may have several in one session. The SDK knows one of them, and none any
// more when any has ended, so they are told from here.
type listens struct {
	mu  sync.Mutex
	all map[*listen]bool
}

// listen is one of them.
type listen struct {
	session *mcp.ServerSession
	id      any // by which the agent knows it
	wants   mcp.NotificationSubscriptions
	begun   bool            // the agent was told that it is open
	missed  map[string]bool // what has changed before that, by method
}

// listenKey is the context key of the one that a request has open.
type listenKey struct{}

// listening serves a request that has one open until it ends.
func (v *view) listening(ctx context.Context, req *mcp.SubscriptionsListenRequest, serve func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	one := &listen{session: req.Session, missed: make(map[string]bool)}
	if !v.listens.add(one) {
		return nil, badParams(fmt.Sprintf("%d requests listen already; more are not possible", maxListens))
	}
	defer v.listens.remove(one)
	return serve(context.WithValue(ctx, listenKey{}, one))
}

// add is false if the session has too many.
func (l *listens) add(one *listen) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := 0
	for other := range l.all {
		if other.session == one.session {
			has++
		}
	}
	if has >= maxListens {
		return false
	}
	l.all[one] = true
	return true
}

// open notes what the agent is about to be told: what it will hear of, and how it will know.
func (l *listens) open(one *listen, said *mcp.SubscriptionsAcknowledgedParams) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.id, one.wants = said.Meta[mcp.MetaKeySubscriptionID], said.Notifications
}

// begin notes that it was told so, and returns what has changed meanwhile.
func (l *listens) begin(one *listen) (missed map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.begun = true
	return one.missed
}

func (l *listens) remove(one *listen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, one)
}

// to are those who want to hear of a change, and can.
func (l *listens) to(method string) (all []*listen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.all {
		wanted := method == toolsChanged && one.wants.ToolsListChanged ||
			method == resourcesChanged && one.wants.ResourcesListChanged ||
			method == promptsChanged && one.wants.PromptsListChanged
		switch {
		case wanted && one.begun:
			all = append(all, one)
		case wanted:
			one.missed[method] = true
		}
	}
	return all
}

// changed tells all who have one open that a list has changed.
func (v *view) changed(method string) {
	for _, one := range v.listens.to(method) {
		v.tellListen(one, method)
	}
}

func (v *view) tellListen(one *listen, method string) {
	params := &mcp.ToolListChangedParams{Meta: mcp.Meta{mcp.MetaKeySubscriptionID: one.id}} // all three are alike
	v.front.teller.tell(news{session: one.session, method: method, listen: one}, func() {
		v.send(context.Background(), method, &mcp.ServerRequest[*mcp.ToolListChangedParams]{Session: one.session, Params: params}) // if it fails, the agent is gone
	})
}
