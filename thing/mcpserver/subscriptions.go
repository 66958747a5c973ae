package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxSubscriptions is the limit of subscribed resources of templates. The SDK
	// never forgets one.
	maxSubscriptions = 1024
	// maxURI is the limit of such a URI, in bytes.
	maxURI = 1024
)

// subscriptions knows what can be subscribed to, and sends notifications without
// delaying the device. The SDK knows the subscribers.
type subscriptions struct {
	mu        sync.Mutex
	declared  map[string]bool
	templates []func(uri string) (map[string]string, bool)
	wanted    map[string]bool // subscribed resources of templates
	changed   map[string]bool // notifications to send
	sending   bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{declared: make(map[string]bool), wanted: make(map[string]bool), changed: make(map[string]bool)}
}

func (s *subscriptions) declare(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared[uri] = true
}

func (s *subscriptions) declareTemplate(match func(uri string) (map[string]string, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates = append(s.templates, match)
}

// Updated notifies subscribers that a resource has changed. It does not block.
func (d *Device) Updated(uri string) {
	s := d.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[uri] = true
	if !s.sending {
		s.sending = true
		go d.sendUpdates()
	}
}

// sendUpdates sends notifications until none is left.
func (d *Device) sendUpdates() {
	for {
		uri, ok := d.subscriptions.next()
		if !ok {
			return
		}
		d.server.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri}) // always returns nil
	}
}

func (s *subscriptions) next() (uri string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.changed {
		delete(s.changed, uri)
		return uri, true
	}
	s.sending = false
	return "", false
}

// subscribe accepts a subscription.
func (d *Device) subscribe(_ context.Context, req *mcp.SubscribeRequest) error {
	return d.subscriptions.add(req.Params.URI)
}

func (s *subscriptions) add(uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.declared[uri] || s.wanted[uri] {
		return nil
	}
	matches := func(match func(string) (map[string]string, bool)) bool {
		_, ok := match(uri)
		return ok
	}
	if len(uri) > maxURI || !slices.ContainsFunc(s.templates, matches) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found"}
	}
	if len(s.wanted) == maxSubscriptions {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("too many subscriptions: limit is %d", maxSubscriptions)}
	}
	s.wanted[uri] = true
	return nil
}

// unsubscribe does nothing; the SDK requires a handler.
func (d *Device) unsubscribe(context.Context, *mcp.UnsubscribeRequest) error { return nil }
