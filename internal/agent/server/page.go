package server

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// pageKey is the context key of the limit of a page of a list, in bytes.
type pageKey struct{}

// pageBytes returns that limit; 0 for none.
func pageBytes(ctx context.Context) int {
	n, _ := ctx.Value(pageKey{}).(int)
	return n
}

// fitting returns how many entries of a list fit into size bytes: at least one, if
// there is any.
func fitting[T any](all []T, size int) int {
	for i := range all {
		size -= encodedSize(all[i]) + 1 // and a comma
		if size < 0 {
			return max(i, 1)
		}
	}
	return len(all)
}

// encodedSize returns the size of a value as JSON.
func encodedSize(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return 0 // encoding the result will fail, too
	}
	return len(data)
}

// brief returns a list of tools with only what a model needs to call them, so that many
// fit into a page. A tool that alone does not fit loses its schema or part of its text.
func brief(all []*mcp.Tool, size int) []*mcp.Tool {
	out := make([]*mcp.Tool, len(all))
	for i, t := range all {
		short := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema}
		if encodedSize(short) >= size && encodedSize(short.InputSchema) > size/2 {
			short.InputSchema = emptySchema
			short.Description = "The arguments are too long to list here. " + short.Description
		}
		for encodedSize(short) >= size && short.Description != "" {
			short.Description = ferrule.Clean(short.Description, len(short.Description)/2)
		}
		out[i] = short
	}
	return out
}
