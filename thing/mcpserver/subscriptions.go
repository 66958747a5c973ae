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
	// maxSubscriptions is how many resources of templates programs can be told of. The
	// SDK never forgets one that somebody wanted.
	maxSubscriptions = 1024
	// maxAddress is how long the address of such a one may be.
	maxAddress = 1024
)

// subscriptions knows what programs can be told of, and tells them without keeping the
// device waiting. The SDK knows who wants what.
type subscriptions struct {
	mu        sync.Mutex
	declared  map[string]bool
	templates []func(uri string) (map[string]string, bool)
	wanted    map[string]bool // of templates
	changed   map[string]bool // what is still to be told of
	telling   bool
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
		d.server.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri}) // it fails for nobody
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
	return d.subscriptions.want(req.Params.URI)
}

func (s *subscriptions) want(uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.declared[uri] || s.wanted[uri] {
		return nil
	}
	matches := func(match func(string) (map[string]string, bool)) bool {
		_, ok := match(uri)
		return ok
	}
	if len(uri) > maxAddress || !slices.ContainsFunc(s.templates, matches) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found"}
	}
	if len(s.wanted) == maxSubscriptions {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("programs can be told of %d such resources, and those are taken", maxSubscriptions)}
	}
	s.wanted[uri] = true
	return nil
}

// unsubscribe is there because the SDK wants it.
func (d *Device) unsubscribe(context.Context, *mcp.UnsubscribeRequest) error { return nil }
