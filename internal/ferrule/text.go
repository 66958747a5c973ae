package ferrule

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Clean makes s safe to show to a person or a model. It returns valid UTF-8
// without control, invisible and direction-changing characters, at most limit
// bytes long. Line breaks and tabs stay.
func Clean(s string, limit int) string {
	if len(s) <= limit && clean(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			r = ' '
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func clean(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || hidden(r) {
			return false
		}
	}
	return true
}

// Visible reports whether Clean would replace no character of s.
func Visible(s string) bool { return !strings.ContainsFunc(s, hidden) }

// unseen are the characters that a reader does not see, or that change how others
// look. A model reads them all the same, so they can carry a text for it that no
// person reviews. The tables include every character with the Unicode property
// Default_Ignorable_Code_Point.
var unseen = []*unicode.RangeTable{
	unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp,
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point,
}

// hidden reports whether a reader would not see r, or whether it changes how
// other characters look.
func hidden(r rune) bool {
	const brailleBlank = '\u2800' // a pattern without dots
	if r < unicode.MaxASCII {     // fast path
		return r < ' ' && r != '\n' && r != '\t'
	}
	return r == brailleBlank || unicode.In(r, unseen...)
}

// CleanJSON replaces each hidden character in the strings and names of a JSON text
// by a space, as Clean does. It changes nothing else: numbers keep their digits and
// members their order.
func CleanJSON(text json.RawMessage) json.RawMessage {
	var out []byte
	copied := 0 // bytes of text that are in out
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		switch {
		case text[i] == '\\': // occurs in strings only
			r, size = unescape(text[i:])
		case text[i] >= utf8.RuneSelf:
			r, size = utf8.DecodeRune(text[i:])
		case text[i] < ' ':
			r = ' ' // white space between values
		}
		if hidden(r) {
			out = append(append(out, text[copied:i]...), ' ')
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return text
	}
	return append(out, text[copied:]...)
}

// unescape returns the character of the escape sequence at the beginning of a JSON
// text, and the length of the sequence.
func unescape(text []byte) (r rune, size int) {
	if len(text) < 2 {
		return utf8.RuneError, len(text)
	}
	switch text[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'r':
		return '\r', 2
	case 'u':
		r = unit(text)
		if !utf16.IsSurrogate(r) {
			return r, min(6, len(text))
		}
		if pair := utf16.DecodeRune(r, unit(text[min(6, len(text)):])); pair != utf8.RuneError {
			return pair, 12
		}
		return utf8.RuneError, min(6, len(text))
	}
	return ' ', 2 // a line break, a tab or a character that is seen
}

// unit returns the number in the sequence \uXXXX at the beginning of a text.
func unit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}

// Clean removes from a result what a reader does not see.
func (r *Result) Clean() {
	r.Value, r.Text = CleanJSON(r.Value), Clean(r.Text, math.MaxInt)
	CleanContent(r.Content)
}

// CleanContent removes from parts of an answer what a reader does not see.
func CleanContent(parts []Content) {
	for i := range parts {
		c := &parts[i]
		c.Text, c.MIME, c.URI = Clean(c.Text, math.MaxInt), Clean(c.MIME, math.MaxInt), Clean(c.URI, math.MaxInt)
		if c.Link != nil {
			c.Link.bound()
			c.Link.URI = Clean(c.Link.URI, MaxURI)
		}
		c.Annotations = c.Annotations.bound()
	}
}

// EscapeHidden returns a JSON text in which characters that people do not see, or that a
// terminal obeys, are escaped. Its value is the same.
func EscapeHidden(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < utf8.RuneSelf || !hidden(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}
