package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxContent is how many parts an answer may have.
const maxContent = 1024

// untried is how devices that are written with thing/mcpserver say that a tool did
// not try.
const untried = "ferrule/untried"

// unclear is the error of an answer that cannot be read: what was asked for was done.
func unclear(call *ferrule.Call, err error) error {
	return ferrule.Errorf(ferrule.Failed, "%s did %s, and its answer makes no sense: %s", call.Device, call.Tool, reason(err))
}

// readTool reads what a tool gave.
func readTool(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
		Meta       map[string]any    `json:"_meta"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, unclear(call, err)
	}
	if string(r.Structured) == "null" {
		r.Structured = nil
	}
	all := contents(r.Content)
	texts := textsOf(all)
	if r.IsError {
		return nil, failed(call, r.Meta[untried] == true, strings.Join(texts, " "), all)
	}
	if r.Content == nil && r.Structured == nil {
		return &ferrule.Result{Value: result}, nil // it is no MCP, and is what was said
	}
	out := &ferrule.Result{Value: r.Structured, Content: all}
	if len(all) != 1 || len(texts) != 1 || all[0].Annotations != nil {
		return out, nil // a text beside something else is no value
	}
	value := valueOf(texts[0])
	if r.Structured == nil {
		out.Value = value
	}
	if same(out.Value, value) {
		out.Content = nil // it is all in the value
	}
	return out, nil
}

// failed is the error of a tool that says that it failed.
func failed(call *ferrule.Call, refused bool, text string, all []ferrule.Content) error {
	e := ferrule.Errorf(ferrule.Failed, "%s failed at %s: %s", call.Device, call.Tool, ferrule.Clean(text, ferrule.MaxText))
	if refused {
		e = ferrule.Errorf(ferrule.Refused, "%s refused %s: %s", call.Device, call.Tool, ferrule.Clean(text, ferrule.MaxText))
	}
	e.Content = all
	return e
}

// same tells whether two texts of JSON say the same.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// readResource reads what a resource is.
func readResource(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Contents []json.RawMessage `json:"contents"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, unclear(call, err)
	}
	out := &ferrule.Result{Content: []ferrule.Content{}}
	for _, raw := range r.Contents[:min(len(r.Contents), maxContent)] {
		var part resourceJSON
		if err := json.Unmarshal(raw, &part); err != nil {
			out.Content = append(out.Content, unreadable("part"))
			continue
		}
		out.Content = append(out.Content, part.content())
	}
	return out, nil
}

// readPrompt reads what a prompt is, with all its places filled in.
func readPrompt(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Description string `json:"description"`
		Messages    []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, unclear(call, err)
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

// maxValues is how many values a completion may have, as MCP says.
const maxValues = 100

// readCompletion reads what an argument may be.
func readCompletion(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error) {
	var r struct {
		Completion struct {
			Values []string `json:"values"`
			Total  int64    `json:"total"`
			More   bool     `json:"hasMore"`
		} `json:"completion"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, unclear(call, err)
	}
	c := r.Completion
	done := ferrule.CompletionResult{Values: []string{}, Total: int(max(0, c.Total)), More: c.More || len(c.Values) > maxValues}
	for _, value := range c.Values[:min(len(c.Values), maxValues)] {
		done.Values = append(done.Values, ferrule.Clean(value, ferrule.MaxText))
	}
	value, err := json.Marshal(done)
	if err != nil {
		return nil, fmt.Errorf("a completion cannot be written: %w", err)
	}
	return &ferrule.Result{Value: value}, nil
}

func contents(raw []json.RawMessage) (all []ferrule.Content) {
	for _, part := range raw[:min(len(raw), maxContent)] {
		all = append(all, parseContent(part))
	}
	if n := len(raw) - maxContent; n > 0 {
		all = append(all, ferrule.Content{Type: ferrule.TextContent, Text: fmt.Sprintf("(the device sent %d more parts, which were dropped)", n)})
	}
	return all
}

func textsOf(all []ferrule.Content) (texts []string) {
	for _, c := range all {
		if c.Type == ferrule.TextContent {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

// valueOf is a text as JSON: many devices write numbers, truths and objects as text.
func valueOf(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return ferrule.AppendString(nil, text)
}

// resourceJSON is what a resource is, as MCP has it.
type resourceJSON struct {
	URI  string  `json:"uri"`
	MIME string  `json:"mimeType"`
	Text string  `json:"text"`
	Blob *string `json:"blob"`
}

func (r resourceJSON) content() ferrule.Content {
	uri := ferrule.Clean(r.URI, ferrule.MaxURI)
	if r.Blob == nil {
		return ferrule.Content{Type: ferrule.ResourceContent, URI: uri, MIME: ferrule.Clean(r.MIME, ferrule.MaxWord), Text: r.Text}
	}
	if *r.Blob == "" {
		return ferrule.Content{Type: ferrule.ResourceContent, URI: uri, MIME: ferrule.Clean(r.MIME, ferrule.MaxWord)}
	}
	part := encoded(ferrule.ResourceContent, "resource", *r.Blob, r.MIME)
	part.URI = uri
	return part
}

// parseContent reads one part of an answer. What cannot be read is said in words.
func parseContent(raw []byte) ferrule.Content {
	var c struct {
		Type        string       `json:"type"`
		Text        string       `json:"text"`
		Data        string       `json:"data"`
		MIME        string       `json:"mimeType"`
		Resource    resourceJSON `json:"resource"`
		Annotations regardJSON   `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return unreadable("part")
	}
	var part ferrule.Content
	switch c.Type {
	case "text":
		part = ferrule.Content{Type: ferrule.TextContent, Text: c.Text}
	case "image":
		part = encoded(ferrule.ImageContent, "picture", c.Data, c.MIME)
	case "audio":
		part = encoded(ferrule.AudioContent, "sound", c.Data, c.MIME)
	case "resource":
		part = c.Resource.content()
	case "resource_link":
		link, ok := parseResource(raw, false)
		if !ok {
			return unreadable("link")
		}
		part = ferrule.Content{Type: ferrule.LinkContent, URI: link.URI, MIME: link.MIME, Link: &link}
	default:
		return unreadable("part")
	}
	part.Annotations = c.Annotations.regard()
	return part
}

func encoded(typ ferrule.ContentType, what, data, mime string) ferrule.Content {
	decoded, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(decoded) == 0 {
		return unreadable(what)
	}
	return ferrule.Content{Type: typ, Data: decoded, MIME: ferrule.Clean(mime, ferrule.MaxWord)}
}

// unreadable stands for a part of an answer that was lost.
func unreadable(what string) ferrule.Content {
	return ferrule.Content{Type: ferrule.TextContent, Text: "(the device sent a " + what + " that cannot be read)"}
}
