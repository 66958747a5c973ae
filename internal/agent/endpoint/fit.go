package endpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
)

// envelope is the size reserved for the part of a message around the entries of a list:
// id, cursor and JSON-RPC members.
const envelope = 1536

// fit encodes a response in at most limit bytes. The content of a tool result is
// truncated with a note; any other result becomes an error.
func fit(r request, m rpc.Message, limit int) []byte {
	answer := rpc.Message{Version: "2.0", ID: r.id, Result: m.Result, Error: m.Error}
	var result toolResult
	isResult := r.method == methodCallTool && m.Result != nil && json.Unmarshal(m.Result, &result) == nil
	if isResult && result.IsError {
		answer.Result = withError(m.Result, result.text())
	}
	whole := rpc.Encode(answer)
	if len(whole) <= limit {
		return whole
	}
	if isResult {
		return result.fit(answer, len(whole), limit)
	}
	answer.Result = nil
	answer.Error = failure(rpc.CodeInternal, fmt.Sprintf("The result has %d bytes; this endpoint allows %d.", len(whole), limit)).Error
	return rpc.Encode(answer)
}

// toolResult is a tools/call result without structured content.
type toolResult struct {
	Content []content `json:"content"`
	IsError bool      `json:"isError,omitempty"`
	// Error is the text of a result that is an error. It is not part of MCP, but
	// xiaozhi-esp32-server reads nothing else of such a result, and what it says, for
	// example that the action may have run, must reach the model.
	Error string `json:"error,omitempty"`
}

// withError adds the error to a result.
func withError(result json.RawMessage, text string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return result
	}
	members["error"] = rpc.Encode(text)
	return rpc.Encode(members)
}

// text returns the content as text.
func (t toolResult) text() string {
	var texts []string
	for _, c := range t.Content {
		if c.kind != "text" {
			c.text = fmt.Sprintf("[Omitted: %s of %d bytes.]", cmp.Or(c.kind, "content"), len(c.raw))
		}
		texts = append(texts, c.text)
	}
	return strings.Join(texts, "\n")
}

// content is one part of a result. Parts other than text are kept as they are.
type content struct {
	text string
	kind string
	raw  json.RawMessage
}

func (c *content) UnmarshalJSON(data []byte) error {
	var part struct{ Type, Text string }
	if err := json.Unmarshal(data, &part); err != nil {
		return err
	}
	c.raw = append(json.RawMessage{}, data...)
	c.kind, c.text = part.Type, part.Text
	return nil
}

func (c content) MarshalJSON() ([]byte, error) {
	if c.raw != nil {
		return c.raw, nil
	}
	return rpc.Encode(map[string]string{"type": "text", "text": c.text}), nil
}

// fit encodes as much of the result as possible: all content, else its text, truncated.
// Whole is the full size of the response.
func (t toolResult) fit(answer rpc.Message, whole, limit int) []byte {
	with := func(content ...content) []byte {
		short := toolResult{Content: content, IsError: t.IsError}
		if t.IsError {
			short.Error = short.text()
		}
		answer.Result = rpc.Encode(short)
		return rpc.Encode(answer)
	}
	if out := with(t.Content...); len(out) <= limit {
		return out
	}
	text, end := t.text(), ""
	if t.IsError { // the end says whether the action may have run
		end = last(text, errorEnd)
	}
	note := fmt.Sprintf("\n[Truncated: the result has %d bytes; this endpoint allows %d.]\n", whole, limit)
	cut := func(n int) []byte { return with(content{kind: "text", text: first(text, n) + note + end}) }
	for size := errorEnd; t.IsError && len(cut(0)) > limit && size > 0; { // the text is there twice, and may be escaped
		size /= 2
		end = last(text, size)
	}
	longest := min(len(text)-len(end), limit) // a byte of text needs at least one
	return cut(sort.Search(longest, func(n int) bool { return len(cut(n+1)) > limit }))
}

// errorEnd is how much of the end of an error is kept when it is truncated.
const errorEnd = 512

// first returns the beginning of a text, at most n bytes.
func first(text string, n int) string {
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:min(n, len(text))]
}

// last returns the end of a text, at most n bytes.
func last(text string, n int) string {
	at := max(0, len(text)-n)
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}
