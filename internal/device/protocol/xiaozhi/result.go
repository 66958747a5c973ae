package xiaozhi

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// result translates what a device said, and adds the pictures that it sent
// meanwhile.
func result(call *ferrule.Call, o outcome, pictures []ferrule.Content) (*ferrule.Result, error) {
	if o.err != nil {
		return nil, ferrule.Errorf(ferrule.Unanswered, "%s did not answer %s: %w", call.Device, call.Tool, o.err)
	}
	if e := o.answer.err; e != nil {
		if e.refused() {
			return nil, ferrule.Errorf(ferrule.Refused, "%s refused %s: %s", call.Device, call.Tool, e)
		}
		return nil, ferrule.Errorf(ferrule.Failed, "%s failed at %s: %s", call.Device, call.Tool, e)
	}
	var r struct {
		Content []json.RawMessage `json:"content"`
		IsError bool              `json:"isError"`
	}
	if err := json.Unmarshal(o.answer.result, &r); err != nil || r.Content == nil {
		return &ferrule.Result{Value: o.answer.result, Content: pictures}, nil // it is no MCP, and is what was said
	}
	var all []ferrule.Content
	for _, raw := range r.Content {
		all = append(all, parseContent(raw))
	}
	texts := textsOf(all)
	if r.IsError {
		return nil, ferrule.Errorf(ferrule.Failed, "%s failed at %s: %s", call.Device, call.Tool, ferrule.Clean(strings.Join(texts, " "), 256))
	}
	out := &ferrule.Result{Content: append(all, pictures...)}
	if len(texts) == 1 {
		out.Value = valueOf(texts[0])
	}
	if len(texts) == 1 && len(out.Content) == 1 {
		out.Content = nil // it is all in the value
	}
	return out, nil
}

func textsOf(all []ferrule.Content) (texts []string) {
	for _, c := range all {
		if c.Type == ferrule.TextContent {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

// valueOf is a text as JSON: firmware writes numbers, truths and objects as text.
func valueOf(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return ferrule.AppendString(nil, text)
}

// contentJSON is one part of a result as MCP has it, and a picture as firmware
// has it: the same again as a text in its member image.
type contentJSON struct {
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

// parseContent reads one part of a result. What cannot be read is said in words.
func parseContent(raw []byte) ferrule.Content {
	var c contentJSON
	if err := json.Unmarshal(raw, &c); err != nil {
		return unreadable("part")
	}
	if c.Type == "image" && c.Image != nil {
		if err := json.Unmarshal([]byte(*c.Image), &c); err != nil {
			return unreadable("picture")
		}
	}
	switch c.Type {
	case "text":
		return ferrule.Content{Type: ferrule.TextContent, Text: c.Text}
	case "image":
		return encoded(ferrule.ImageContent, "picture", c.Data, c.MIME)
	case "audio":
		return encoded(ferrule.AudioContent, "sound", c.Data, c.MIME)
	case "resource":
		r := c.Resource
		if r.Blob == "" {
			return ferrule.Content{Type: ferrule.ResourceContent, URI: r.URI, MIME: r.MIME, Text: r.Text}
		}
		part := encoded(ferrule.ResourceContent, "resource", r.Blob, r.MIME)
		part.URI = r.URI
		return part
	}
	return unreadable("part")
}

func encoded(typ ferrule.ContentType, what, data, mime string) ferrule.Content {
	decoded, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(decoded) == 0 {
		return unreadable(what)
	}
	return ferrule.Content{Type: typ, Data: decoded, MIME: ferrule.Clean(mime, ferrule.MaxWord)}
}

// unreadable stands for a part of a result that was lost.
func unreadable(what string) ferrule.Content {
	return ferrule.Content{Type: ferrule.TextContent, Text: "(the device sent a " + what + " that cannot be read)"}
}
