package server

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// traceparent is what MCP calls it in the _meta of a request, and HTTP in a header.
const traceparent = "traceparent"

// parentKey is the context key of the span that a request is a part of.
type parentKey struct{}

// withParent notes the span that a request is a part of, if it names one: in itself,
// else in the header of what it came with.
func withParent(ctx context.Context, meta mcp.Meta, extra *mcp.RequestExtra) context.Context {
	text, _ := meta[traceparent].(string)
	text = ferrule.Traceparent(text)
	if text == "" && extra != nil {
		text = ferrule.Traceparent(extra.Header.Get(traceparent))
	}
	if text == "" {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, text)
}

// parent is that span; empty if there is none.
func parent(ctx context.Context) string {
	text, _ := ctx.Value(parentKey{}).(string)
	return text
}
