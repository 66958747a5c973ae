package server

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// traceparent is the key in the _meta of a request, and the HTTP header.
const traceparent = "traceparent"

// parentKey is the context key of the span that a request belongs to.
type parentKey struct{}

// withParent stores the span that a request names, in its _meta or else in its HTTP
// header.
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

// parent returns the stored span; empty if there is none.
func parent(ctx context.Context) string {
	text, _ := ctx.Value(parentKey{}).(string)
	return text
}
