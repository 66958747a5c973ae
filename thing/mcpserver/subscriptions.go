package mcpserver

import (
	"context"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxSubscriptions is how many resources one program can be told of.
const maxSubscriptions = 256

// subscriptions counts what programs want to be told of, and tells them without
// keeping the device waiting. The SDK knows who wants what.
type subscriptions struct {
	mu      sync.Mutex
	counts  map[*mcp.ServerSession]map[string]bool
	changed map[string]bool // what is still to be told of
	telling bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{counts: make(map[*mcp.ServerSession]map[string]bool), changed: make(map[string]bool)}
}

// Updated tells the programs that asked for it that a resource has changed.
func (d *Device) Updated(uri string) {
	s := d.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[uri] = true
	if !s.telling {
		s.telling = true
		go d.tellUpdates()
	}
}

// tellUpdates tells of what has changed until all is told.
func (d *Device) tellUpdates() {
	for {
		uri, ok := d.subscriptions.next()
		if !ok {
			return
		}
		d.server.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri}) // whoever is not there misses nothing
	}
}

func (s *subscriptions) next() (uri string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.changed {
		delete(s.changed, uri)
		return uri, true
	}
	s.telling = false
	return "", false
}

// subscribe lets a program be told of a resource.
func (d *Device) subscribe(_ context.Context, req *mcp.SubscribeRequest) error {
	there := make(map[*mcp.ServerSession]bool)
	for session := range d.server.Sessions() {
		there[session] = true
	}
	s := d.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.counts {
		if !there[session] {
			delete(s.counts, session)
		}
	}
	wants := s.counts[req.Session]
	if wants == nil {
		wants = make(map[string]bool)
		s.counts[req.Session] = wants
	}
	if len(wants) == maxSubscriptions && !wants[req.Params.URI] {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("one program can be told of %d resources", maxSubscriptions)}
	}
	wants[req.Params.URI] = true
	return nil
}

func (d *Device) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s := d.subscriptions
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts[req.Session], req.Params.URI)
	return nil
}
