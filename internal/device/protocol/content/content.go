// Package content reads the parts of an MCP result that the protocols xiaozhi and mcp
// have in common: text, and data in base64.
package content

import (
	"encoding/base64"
	"encoding/json"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Texts returns the texts among the parts.
func Texts(parts []ferrule.Content) (texts []string) {
	for _, c := range parts {
		if c.Type == ferrule.TextContent {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

// Value returns a text as JSON. Many devices write numbers, booleans and objects as
// text; any other text becomes a string.
func Value(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return ferrule.AppendString(nil, text)
}

// Binary returns a part with data in base64. Name is what to call it if the data
// cannot be decoded, or is empty.
func Binary(typ ferrule.ContentType, name, data, mime string) ferrule.Content {
	decoded, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(decoded) == 0 {
		return Unreadable(name)
	}
	return ferrule.Content{Type: typ, Data: decoded, MIME: ferrule.Clean(mime, ferrule.MaxWord)}
}

// Unreadable returns a text in place of a part that cannot be decoded.
func Unreadable(name string) ferrule.Content {
	return ferrule.Content{Type: ferrule.TextContent, Text: "(the device sent " + name + " that cannot be decoded)"}
}
