package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/content"
	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxContent is how many parts of a result are kept.
const maxContent = 1024

// untried is the _meta key with which devices written with thing/mcpserver say that a
// tool was not tried.
const untried = "ferrule/untried"

// invalidResult is the error of a result that cannot be decoded. The call has run.
func invalidResult(call *ferrule.Call, err error) error {
	return ferrule.Errorf(ferrule.Failed, "%s ran %s, but its result is invalid: %s", call.Device, call.Tool, jsonrpc.Reason(err))
}

// readTool decodes the result of tools/call.
func readTool(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
		Meta       map[string]any    `json:"_meta"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, invalidResult(call, err)
	}
	if string(r.Structured) == "null" {
		r.Structured = nil
	}
	all := parseParts(r.Content)
	texts := content.Texts(all)
	if r.IsError {
		text := ferrule.Clean(strings.Join(texts, " "), ferrule.MaxText)
		e := jsonrpc.AnswerError(call, errors.New(text), r.Meta[untried] == true)
		e.Content = all
		return nil, e
	}
	if r.Content == nil && r.Structured == nil {
		return &ferrule.Result{Value: result}, nil // not an MCP result: pass it on as it is
	}
	out := &ferrule.Result{Value: r.Structured, Content: all}
	if len(all) != 1 || len(texts) != 1 || all[0].Annotations != nil {
		return out, nil // a text among other parts is not the value
	}
	value := content.Value(texts[0])
	if r.Structured == nil {
		out.Value = value
	}
	if equalJSON(out.Value, value) {
		out.Content = nil // the value has it all
	}
	return out, nil
}

// equalJSON reports whether two JSON texts have the same value.
func equalJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// readResource decodes the result of resources/read.
func readResource(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Contents []json.RawMessage `json:"contents"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, invalidResult(call, err)
	}
	out := &ferrule.Result{Content: []ferrule.Content{}}
	for _, raw := range r.Contents[:min(len(r.Contents), maxContent)] {
		var part resourceJSON
		if err := json.Unmarshal(raw, &part); err != nil {
			out.Content = append(out.Content, content.Unreadable("a part"))
			continue
		}
		out.Content = append(out.Content, part.content())
	}
	return out, nil
}

// readPrompt decodes the result of prompts/get.
func readPrompt(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Description string `json:"description"`
		Messages    []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, invalidResult(call, err)
	}
	out := &ferrule.Result{Text: ferrule.Clean(r.Description, ferrule.MaxText), Content: []ferrule.Content{}}
	for _, m := range r.Messages[:min(len(r.Messages), maxContent)] {
		part := parseContent(m.Content)
		if part.Role = m.Role; part.Role != "assistant" {
			part.Role = "user"
		}
		out.Content = append(out.Content, part)
	}
	return out, nil
}

// maxValues is how many values MCP allows in a completion.
const maxValues = 100

// readCompletion decodes the result of completion/complete.
func readCompletion(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Completion struct {
			Values []string `json:"values"`
			Total  int64    `json:"total"`
			More   bool     `json:"hasMore"`
		} `json:"completion"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, invalidResult(call, err)
	}
	c := r.Completion
	done := ferrule.CompletionResult{Values: []string{}, Total: int(max(0, c.Total)), More: c.More || len(c.Values) > maxValues}
	for _, value := range c.Values[:min(len(c.Values), maxValues)] {
		done.Values = append(done.Values, ferrule.Clean(value, ferrule.MaxText))
	}
	value, err := json.Marshal(done)
	if err != nil {
		return nil, fmt.Errorf("marshaling a completion: %w", err)
	}
	return &ferrule.Result{Value: value}, nil
}

func parseParts(raw []json.RawMessage) (all []ferrule.Content) {
	for _, part := range raw[:min(len(raw), maxContent)] {
		all = append(all, parseContent(part))
	}
	if n := len(raw) - maxContent; n > 0 {
		all = append(all, ferrule.Content{Type: ferrule.TextContent, Text: fmt.Sprintf("(%d more parts were dropped)", n)})
	}
	return all
}

// resourceJSON is the content of a resource in MCP.
type resourceJSON struct {
	URI  string          `json:"uri"`
	MIME string          `json:"mimeType"`
	Text string          `json:"text"`
	Blob *string         `json:"blob"`
	Meta json.RawMessage `json:"_meta"`
}

func (r resourceJSON) content() ferrule.Content {
	part := r.document()
	if ferrule.IsView(part.URI) {
		part.View = viewHints(r.Meta)
	}
	return part
}

func (r resourceJSON) document() ferrule.Content {
	uri := ferrule.Clean(r.URI, ferrule.MaxURI)
	if r.Blob == nil {
		return ferrule.Content{Type: ferrule.ResourceContent, URI: uri, MIME: ferrule.Clean(r.MIME, ferrule.MaxWord), Text: r.Text}
	}
	if *r.Blob == "" {
		return ferrule.Content{Type: ferrule.ResourceContent, URI: uri, MIME: ferrule.Clean(r.MIME, ferrule.MaxWord)}
	}
	part := content.Binary(ferrule.ResourceContent, "a resource", *r.Blob, r.MIME)
	part.URI = uri
	return part
}

// parseContent decodes one part of a result. A part that cannot be decoded becomes a text
// that says so.
func parseContent(raw []byte) ferrule.Content {
	var c struct {
		Type        string          `json:"type"`
		Text        string          `json:"text"`
		Data        string          `json:"data"`
		MIME        string          `json:"mimeType"`
		Resource    resourceJSON    `json:"resource"`
		Annotations annotationsJSON `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return content.Unreadable("a part")
	}
	var part ferrule.Content
	switch c.Type {
	case "text":
		part = ferrule.Content{Type: ferrule.TextContent, Text: c.Text}
	case "image":
		part = content.Binary(ferrule.ImageContent, "an image", c.Data, c.MIME)
	case "audio":
		part = content.Binary(ferrule.AudioContent, "audio", c.Data, c.MIME)
	case "resource":
		part = c.Resource.content()
	case "resource_link":
		link, ok := parseResource(raw, false)
		if !ok {
			return content.Unreadable("a link")
		}
		part = ferrule.Content{Type: ferrule.LinkContent, URI: link.URI, MIME: link.MIME, Link: &link}
	default:
		return content.Unreadable("a part")
	}
	part.Annotations = c.Annotations.bounded()
	return part
}
