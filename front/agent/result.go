package agent

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/catalog"
)

// What is told of an answer beside it.
const (
	metaError = "ferrule/error" // an Error as JSON
)

// succeeded is an answer in the words of MCP.
func succeeded(r *ferrule.Result) *mcp.CallToolResult {
	out := &mcp.CallToolResult{Content: []mcp.Content{}}
	value := bytes.TrimSpace(r.Value)
	if len(value) > 0 && value[0] == '{' {
		out.StructuredContent = json.RawMessage(value)
	}
	for _, c := range r.Content {
		out.Content = append(out.Content, content(c))
	}
	if r.Content == nil {
		out.Content = append(out.Content, &mcp.TextContent{Text: text(value)})
	}
	return out
}

// text is a value as a reader wants it: a text without its quotes.
func text(value []byte) string {
	var s string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

func content(c ferrule.Content) mcp.Content {
	switch c.Type {
	case ferrule.ImageContent:
		return &mcp.ImageContent{Data: c.Data, MIMEType: c.MIME}
	case ferrule.AudioContent:
		return &mcp.AudioContent{Data: c.Data, MIMEType: c.MIME}
	case ferrule.ResourceContent:
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: c.URI, MIMEType: c.MIME, Text: c.Text, Blob: c.Data}}
	}
	return &mcp.TextContent{Text: c.Text}
}

// failed is why a call did not succeed, in words that help a model go on: what
// happened, what it means for the hardware, and what to do next.
func failed(err error) *mcp.CallToolResult {
	e := ferrule.AsError(err)
	return &mcp.CallToolResult{
		IsError: true,
		Content: []mcp.Content{&mcp.TextContent{Text: words(e)}},
		Meta:    mcp.Meta{metaError: e},
	}
}

// hints are for models where those of the error are for people at a terminal.
var hints = map[ferrule.Code]string{
	ferrule.NotFound: catalog.Name("find_devices") + " finds devices, " + catalog.Name("find_tools") + " finds tools.",
	ferrule.Invalid:  catalog.Name("describe_tool") + " tells what a tool takes.",
}

// words says all that an error has to say.
func words(e *ferrule.Error) string {
	hint := e.Hint
	if h, ok := hints[e.Code]; ok && (hint == "" || strings.Contains(hint, "`ferrule ")) {
		hint = h
	}
	parts := []string{sentence(e.Message), e.Certainty(), sentence(hint)}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	if !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") {
		s += "."
	}
	return s
}
