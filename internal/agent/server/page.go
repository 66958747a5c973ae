package server

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// pageKey is the context key of how many bytes the entries of a list may take at once.
type pageKey struct{}

// pageBytes is how many bytes that is; 0 if it is not bounded.
func pageBytes(ctx context.Context) int {
	n, _ := ctx.Value(pageKey{}).(int)
	return n
}

// fitting is how many of the entries of a list fit into so many bytes: one at least,
// if there is any.
func fitting[T any](all []T, size int) int {
	for i := range all {
		size -= encodedSize(all[i]) + 1 // and a comma
		if size < 0 {
			return max(i, 1)
		}
	}
	return len(all)
}

// encodedSize is how many bytes a value has as JSON.
func encodedSize(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return 0 // then the whole answer is an error
	}
	return len(data)
}

// brief is a list of tools with what a model needs to call them, and nothing else, so
// that many fit into a page. A tool that fits into none is told of without its schema,
// or with the beginning of its text.
func brief(all []*mcp.Tool, size int) []*mcp.Tool {
	out := make([]*mcp.Tool, len(all))
	for i, t := range all {
		short := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema}
		if encodedSize(short) >= size && encodedSize(short.InputSchema) > size/2 {
			short.InputSchema = emptySchema
			short.Description = "What it takes is too long to be told here. " + short.Description
		}
		for encodedSize(short) >= size && short.Description != "" {
			short.Description = ferrule.Clean(short.Description, len(short.Description)/2)
		}
		out[i] = short
	}
	return out
}
