package server

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// capabilitiesKey is the context key of what the client of a request can do.
type capabilitiesKey struct{}

// clientCan returns what the client of a request can do. The SDK would decode it again each
// time that it is asked for.
func clientCan(ctx context.Context, req callRequest) *mcp.ClientCapabilities {
	if can, ok := ctx.Value(capabilitiesKey{}).(*mcp.ClientCapabilities); ok {
		return can
	}
	return req.ClientCapabilities()
}

// endCalls cancels the calls that are under way.
func (l *lines) endCalls(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cancel := range l.running {
		cancel(why)
	}
}
