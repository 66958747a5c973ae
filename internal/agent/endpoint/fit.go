package endpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// envelope is how many bytes of a message are kept for what is around the entries of a
// list: the id, the cursor of the next page, the words of JSON-RPC.
const envelope = 1536

// fit is the answer to a request in at most limit bytes. What a tool said is cut, and
// says so; of anything else it is told that it does not fit.
func fit(r request, m message, limit int) []byte {
	answer := message{Version: "2.0", ID: r.id, Result: m.Result, Error: m.Error}
	whole := encode(answer)
	if len(whole) <= limit {
		return whole
	}
	var told toolResult
	if r.method == callTool && json.Unmarshal(m.Result, &told) == nil && m.Result != nil {
		return told.fit(answer, len(whole), limit)
	}
	answer.Result = nil
	answer.Error = failure(codeInternal, fmt.Sprintf("The answer has %d bytes, and this endpoint takes %d.", len(whole), limit)).Error
	return encode(answer)
}

// toolResult is what is told of a call, without what only larger clients look at.
type toolResult struct {
	Content []content `json:"content"`
	IsError bool      `json:"isError,omitempty"`
}

// content is one part of it. What is not a text is kept as it is.
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
	return encode(map[string]string{"type": "text", "text": c.text}), nil
}

// fit is the answer with as much of the result as fits: all of its content if that
// does, else its texts, cut. Whole is how long the answer was.
func (t toolResult) fit(answer message, whole, limit int) []byte {
	with := func(content ...content) []byte {
		answer.Result = encode(toolResult{content, t.IsError})
		return encode(answer)
	}
	if out := with(t.Content...); len(out) <= limit {
		return out
	}
	var texts []string
	for _, c := range t.Content {
		if c.kind != "text" {
			c.text = fmt.Sprintf("[Left out: %s of %d bytes.]", cmp.Or(c.kind, "something"), len(c.raw))
		}
		texts = append(texts, c.text)
	}
	text := strings.Join(texts, "\n")
	end := ""
	if t.IsError { // it ends with whether the call may have run
		end = last(text, errorEnd)
	}
	note := fmt.Sprintf("\n[Cut: the whole answer has %d bytes, and this endpoint takes %d. The rest cannot be told here.]\n", whole, limit)
	cut := func(n int) []byte { return with(content{text: first(text, n) + note + end}) }
	most := min(len(text)-len(end), limit) // a byte of text takes one at least
	return cut(sort.Search(most, func(n int) bool { return len(cut(n+1)) > limit }))
}

// errorEnd is how much of the end of an error stays when it is cut.
const errorEnd = 512

// first is the beginning of a text, of at most n bytes.
func first(text string, n int) string {
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:min(n, len(text))]
}

// last is the end of a text, of at most n bytes.
func last(text string, n int) string {
	at := max(0, len(text)-n)
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}
