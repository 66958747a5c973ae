package xiaozhi

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/content"
	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// result returns what an answer means for the call, with the pictures that the device
// uploaded during the call.
func result(call *ferrule.Call, a answer, pictures []ferrule.Content) (*ferrule.Result, error) {
	if a.err != nil {
		return nil, jsonrpc.AnswerError(call, a.err, refused(a.err))
	}
	var r struct {
		Content []json.RawMessage `json:"content"`
		IsError bool              `json:"isError"`
	}
	if err := json.Unmarshal(a.result, &r); err != nil || r.Content == nil {
		return &ferrule.Result{Value: a.result, Content: pictures}, nil // not an MCP result: pass it on as it is
	}
	var parts []ferrule.Content
	for _, raw := range r.Content {
		parts = append(parts, parseContent(raw))
	}
	texts := content.Texts(parts)
	if r.IsError {
		return nil, jsonrpc.AnswerError(call, errors.New(ferrule.Clean(strings.Join(texts, " "), 256)), false)
	}
	out := &ferrule.Result{Content: append(parts, pictures...)}
	if len(texts) == 1 {
		out.Value = content.Value(texts[0])
	}
	if len(texts) == 1 && len(out.Content) == 1 {
		out.Content = nil // the value has it all
	}
	return out, nil
}

// part is one part of a result. Firmware puts an image a second time, as text, into the
// member image.
type part struct {
	Type     string  `json:"type"`
	Text     string  `json:"text"`
	Data     string  `json:"data"`
	MIME     string  `json:"mimeType"`
	Image    *string `json:"image"`
	Resource struct {
		URI  string `json:"uri"`
		Text string `json:"text"`
		Blob string `json:"blob"`
		MIME string `json:"mimeType"`
	} `json:"resource"`
}

// parseContent decodes one part of a result. A part that cannot be decoded becomes a
// text that says so.
func parseContent(raw []byte) ferrule.Content {
	var p part
	if err := json.Unmarshal(raw, &p); err != nil {
		return content.Unreadable("a part")
	}
	if p.Type == "image" && p.Image != nil {
		if err := json.Unmarshal([]byte(*p.Image), &p); err != nil {
			return content.Unreadable("an image")
		}
	}
	switch p.Type {
	case "text":
		return ferrule.Content{Type: ferrule.TextContent, Text: p.Text}
	case "image":
		return content.Binary(ferrule.ImageContent, "an image", p.Data, p.MIME)
	case "audio":
		return content.Binary(ferrule.AudioContent, "audio", p.Data, p.MIME)
	case "resource":
		r := p.Resource
		if r.Blob == "" {
			return ferrule.Content{Type: ferrule.ResourceContent, URI: r.URI, MIME: r.MIME, Text: r.Text}
		}
		c := content.Binary(ferrule.ResourceContent, "a resource", r.Blob, r.MIME)
		c.URI = r.URI
		return c
	}
	return content.Unreadable("a part")
}
