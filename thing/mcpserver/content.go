package mcpserver

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// frozen returns a copy of a result that later calls cannot change: data becomes JSON,
// and bytes are copied.
func frozen(result any) (any, error) {
	switch r := result.(type) {
	case string:
		return r, nil
	case thing.Image:
		r.Data = bytes.Clone(r.Data)
		return r, nil
	case thing.Audio:
		r.Data = bytes.Clone(r.Data)
		return r, nil
	case thing.Document:
		r.Data = bytes.Clone(r.Data)
		return r, nil
	case thing.Parts:
		parts := make(thing.Parts, len(r))
		var err error
		for i, part := range r {
			if nested, ok := part.(thing.Parts); ok {
				part = []any(nested)
			}
			if parts[i], err = frozen(part); err != nil {
				return nil, err
			}
		}
		return parts, nil
	}
	value, err := json.Marshal(result)
	return json.RawMessage(value), err
}

// partsOf returns the parts of a result.
func partsOf(result any) thing.Parts {
	if parts, ok := result.(thing.Parts); ok {
		return parts
	}
	return thing.Parts{result}
}

// toolResult converts the frozen result of a tool.
func toolResult(result any) *mcp.CallToolResult {
	parts := partsOf(result)
	r := &mcp.CallToolResult{Content: make([]mcp.Content, 0, len(parts))}
	for _, part := range parts {
		r.Content = append(r.Content, contentOf(part))
	}
	if value, ok := result.(json.RawMessage); ok && value[0] == '{' {
		r.StructuredContent = value
	}
	return r
}

// contentOf converts a frozen part of a result.
func contentOf(part any) mcp.Content {
	switch p := part.(type) {
	case string:
		return &mcp.TextContent{Text: p}
	case thing.Image:
		return &mcp.ImageContent{MIMEType: p.MIME, Data: p.Data}
	case thing.Audio:
		return &mcp.AudioContent{MIMEType: p.MIME, Data: p.Data}
	case thing.Document:
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: p.URI, MIMEType: p.MIME, Text: p.Text, Blob: p.Data}}
	case json.RawMessage:
		return &mcp.TextContent{Text: string(p)}
	}
	panic("result is not frozen")
}

// contentsOf converts the frozen content of a resource.
func contentsOf(content any, mime string) *mcp.ResourceContents {
	switch c := content.(type) {
	case string:
		return &mcp.ResourceContents{MIMEType: mime, Text: c}
	case thing.Image:
		return &mcp.ResourceContents{MIMEType: c.MIME, Blob: c.Data}
	case thing.Audio:
		return &mcp.ResourceContents{MIMEType: c.MIME, Blob: c.Data}
	case thing.Document:
		return &mcp.ResourceContents{URI: c.URI, MIMEType: cmp.Or(c.MIME, mime), Text: c.Text, Blob: c.Data}
	case json.RawMessage:
		return &mcp.ResourceContents{MIMEType: cmp.Or(mime, "application/json"), Text: string(c)}
	}
	panic("content is not frozen")
}
