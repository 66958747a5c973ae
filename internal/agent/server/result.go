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

// What is told of an answer beside it.
const (
	metaError = "ferrule/error" // an Error as JSON
	metaAge   = "ferrule/age"   // how long ago the device said it, if that was before
)

// succeeded is an answer of a device in the words of MCP.
func (v *view) succeeded(device string, r *ferrule.Result, modern bool) *mcp.CallToolResult {
	out := &mcp.CallToolResult{Content: []mcp.Content{}}
	value := plain(r.Value)
	// Only the newer era has structured content that is no object: where the device
	// gave it as such, with contents beside it.
	if len(value) > 0 && (value[0] == '{' || modern && r.Content != nil) && depth(value) <= maxDepth {
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
	return out
}

// maxDepth is how deep JSON of a device may be for clients to take it apart. Some end
// their session at what they cannot.
const maxDepth = 64

// plain is a value in one line of text, whatever a device made of it: a stray
// byte in it is no reason for a client to give up.
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

// depth is how deep a JSON text is.
func depth(text []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++ // it only stands in strings
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

// text is a value as a reader wants it: a text without its quotes.
func text(value []byte) string {
	var s string
	if len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// failed is why a call did not succeed, in words that help a model go on: what
// happened, what it means for the hardware, and what to do next.
func (v *view) failed(device string, e *ferrule.Error) *mcp.CallToolResult {
	out := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{}}
	for _, c := range e.Content {
		out.Content = append(out.Content, v.content(device, c))
	}
	told := *e
	if told.Content != nil {
		told.Content, told.Message = nil, "" // the device has said it
	}
	out.Content = append(out.Content, &mcp.TextContent{Text: words(&told)})
	told.Message = e.Message
	out.Meta = mcp.Meta{metaError: &told}
	return out
}

// words says all that an error has to say.
func words(e *ferrule.Error) string {
	parts := []string{sentence(e.Message), e.Certainty(), capital(sentence(e.Hint))}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// sentence ends with a full stop.
func sentence(s string) string {
	if s != "" && !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "?") {
		s += "."
	}
	return s
}

// capital begins with a capital letter, unless that would change a name.
func capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsFunc(first, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// advice is what a model can do next, where the hint of an error is for people at
// a terminal or of a tool that the model does not see: the first that it can
// follow.
var advice = map[ferrule.Code][]string{
	ferrule.NotFound: {
		catalog.Name("find_devices") + " finds devices, " + catalog.Name("find_tools") + " finds tools",
		catalog.Name("find_devices") + " finds devices; all tools are in the list",
		catalog.Name("status") + " tells which devices are there; all tools are in the list",
		"all its tools are in the list",
	},
	ferrule.Invalid: {
		catalog.Name("describe_tool") + " tells what a tool takes",
		"its schema in the list tells what it takes",
	},
	ferrule.Denied: {
		catalog.Name("find_tools") + " finds the tools that can be used",
		"the tools in the list can be used",
	},
	ferrule.Busy: {"it is taken back by itself"},
}

// advised is an error whose hint a model here can follow.
func (v *view) advised(e *ferrule.Error) *ferrule.Error {
	if v.followable(e.Hint) && (e.Hint != "" || e.Code == ferrule.Denied || e.Code == ferrule.Busy) {
		return e
	}
	told := *e
	told.Hint = ""
	if i := slices.IndexFunc(advice[e.Code], v.followable); i >= 0 {
		told.Hint = advice[e.Code][i]
	}
	return &told
}

// followable tells whether a hint is one that a model here can follow.
func (v *view) followable(hint string) bool {
	if strings.Contains(hint, "`ferrule ") {
		return false
	}
	for _, name := range ownTool.FindAllString(hint, -1) {
		if !slices.ContainsFunc(v.list(), func(o ferrule.Offer) bool { return o.Name == name }) {
			return false
		}
	}
	return true
}

// ownTool is the name of one of the gateway's own tools.
var ownTool = regexp.MustCompile(catalog.Name("[a-z_]+"))
