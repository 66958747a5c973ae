package mcpserver

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// told is the result of a tool as callers see it.
func told(result any) (*mcp.CallToolResult, error) {
	parts, ok := result.(thing.Parts)
	if !ok {
		parts = thing.Parts{result}
	}
	r := &mcp.CallToolResult{Content: make([]mcp.Content, 0, len(parts))}
	for _, part := range parts {
		content, value, err := contentOf(part)
		if err != nil {
			return failed(fmt.Errorf("the tool has run, and its result cannot be told: %w", err))
		}
		r.Content = append(r.Content, content)
		if !ok && len(value) > 0 && value[0] == '{' {
			r.StructuredContent = value
		}
	}
	return r, nil
}

// contentOf is one part of a result, and its JSON if it is data.
func contentOf(part any) (mcp.Content, json.RawMessage, error) {
	switch p := part.(type) {
	case string:
		return &mcp.TextContent{Text: p}, nil, nil
	case thing.Picture:
		return &mcp.ImageContent{MIMEType: p.MIME, Data: p.Data}, nil, nil
	case thing.Sound:
		return &mcp.AudioContent{MIMEType: p.MIME, Data: p.Data}, nil, nil
	case thing.Document:
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: p.URI, MIMEType: p.MIME, Text: p.Text, Blob: p.Data}}, nil, nil
	}
	value, err := json.Marshal(part)
	return &mcp.TextContent{Text: string(value)}, value, err
}
