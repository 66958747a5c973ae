package server

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Keys in the _meta of a result.
const (
	metaError = "ferrule/error" // an Error as JSON
	metaAge   = "ferrule/age"   // how long ago the device gave the value, if it is cached
)

// The SDK sets resultType, which is required from 2026-07-28 on, only on results of
// tools, resources and prompts that are registered with it. It has no setter, but a
// decoded result has the type, so results begin as a copy of one of these.
var (
	callResults   = decodeResults[mcp.CallToolResult]()
	readResults   = decodeResults[mcp.ReadResourceResult]()
	promptResults = decodeResults[mcp.GetPromptResult]()
)

// typedResults are empty results.
type typedResults[R any] struct{ untyped, complete, inputRequired R }

func decodeResults[R any]() (r typedResults[R]) {
	for text, to := range map[string]*R{`{"resultType":"complete"}`: &r.complete, `{"resultType":"input_required"}`: &r.inputRequired} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			panic(err)
		}
	}
	return r
}

// of returns an empty result for a protocol version with or without sessions.
func (r *typedResults[R]) of(stateless bool) R {
	if stateless {
		return r.complete
	}
	return r.untyped
}

// succeeded converts the result of a device.
func (v *view) succeeded(device string, r *ferrule.Result, stateless bool) *mcp.CallToolResult {
	out := callResults.of(stateless)
	out.Content = make([]mcp.Content, 0, max(1, len(r.Content)))
	value := plain(r.Value)
	// Structured content that is not an object exists only since 2026-07-28, and only
	// if the device gave it as such, with content in addition.
	if len(value) > 0 && (value[0] == '{' || stateless && r.Content != nil) && depth(value) <= maxDepth {
		out.StructuredContent = json.RawMessage(value)
	}
	if r.Age > 0 {
		out.Meta = mcp.Meta{metaAge: r.Age}
	}
	for _, c := range r.Content {
		out.Content = append(out.Content, v.content(device, c))
	}
	if r.Content == nil {
		out.Content = append(out.Content, &mcp.TextContent{Text: text(value)})
	}
	return &out
}

// maxDepth is the nesting limit of JSON from a device. Some clients end their session
// at JSON that is deeper than they can decode.
const maxDepth = 64

// plain returns a value in one line of valid UTF-8, so that a stray byte from a device
// does not end a client's session.
func plain(value []byte) []byte {
	value = bytes.ToValidUTF8(bytes.TrimSpace(value), []byte("\ufffd"))
	if bytes.ContainsAny(value, "\r\n") {
		var b bytes.Buffer
		if json.Compact(&b, value) == nil {
			return b.Bytes()
		}
	}
	return value
}

// depth returns the nesting depth of a JSON text.
func depth(text []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++ // occurs in strings only
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// text returns a value as text. A string loses its quotes.
func text(value []byte) string {
	var s string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// failed converts an error to a result that a model can act on: what happened, what it
// means for the hardware, and what to do next.
func (v *view) failed(device string, e *ferrule.Error, stateless bool) *mcp.CallToolResult {
	out := callResults.of(stateless)
	out.IsError = true
	for _, c := range e.Content {
		out.Content = append(out.Content, v.content(device, c))
	}
	rest := *e
	if rest.Content != nil {
		rest.Content, rest.Message = nil, "" // the content has the message
	}
	out.Content = append(out.Content, &mcp.TextContent{Text: rest.Explain()})
	rest.Message = e.Message
	out.Meta = mcp.Meta{metaError: &rest}
	return &out
}

// advice has hints for models, for errors whose own hint is for people at a terminal,
// or names a tool that the model does not see. The first that fits is used.
var advice = map[ferrule.Code][]string{
	ferrule.NotFound: {
		"find devices with " + catalog.Name("find_devices") + " and tools with " + catalog.Name("find_tools"),
		"find devices with " + catalog.Name("find_devices") + "; the list has all tools",
		"list devices with " + catalog.Name("status") + "; the list has all tools",
		"the list has all tools of this device",
	},
	ferrule.Invalid: {
		"read the arguments of a tool with " + catalog.Name("describe_tool"),
		"the schema in the tool list has the arguments",
	},
	ferrule.Denied: {
		"find tools that you may use with " + catalog.Name("find_tools"),
		"use the tools in the list",
	},
	ferrule.Busy: {"the device is taken back automatically"},
}

// advised returns an error with a hint that a model of this view can follow.
func (v *view) advised(e *ferrule.Error) *ferrule.Error {
	if v.canFollow(e.Hint) && (e.Hint != "" || e.Code == ferrule.Denied || e.Code == ferrule.Busy) {
		return e
	}
	advised := *e
	advised.Hint = ""
	if i := slices.IndexFunc(advice[e.Code], v.canFollow); i >= 0 {
		advised.Hint = advice[e.Code][i]
	}
	return &advised
}

// canFollow reports whether a model of this view can follow a hint.
func (v *view) canFollow(hint string) bool {
	if strings.Contains(hint, "`ferrule ") {
		return false
	}
	for _, name := range gatewayTool.FindAllString(hint, -1) {
		if !slices.ContainsFunc(v.list(v.server.parts.Catalog.All()), func(o ferrule.Offer) bool { return o.Name == name }) {
			return false
		}
	}
	return true
}

// gatewayTool matches the names of the gateway's own tools.
var gatewayTool = regexp.MustCompile(catalog.Name("[a-z_]+"))
