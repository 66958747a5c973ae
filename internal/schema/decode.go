package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

// The limits of a call's arguments, and of an answer that is checked.
const (
	MaxArgs        = 64 << 10
	maxArgsNodes   = 16 << 10
	MaxOutput      = 1 << 20
	maxOutputNodes = 64 << 10
)

// bounds are the limits of decode.
type bounds struct{ size, depth, nodes int }

// DecodeArgs decodes the arguments of a call: one JSON object, or nothing for an
// empty one. Numbers keep their digits. It also returns the text to send to the
// device, in which no member occurs twice: parsers disagree on which one counts.
func DecodeArgs(args []byte) (map[string]any, json.RawMessage, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		return map[string]any{}, json.RawMessage("{}"), nil
	}
	v, err := decode(args, bounds{size: MaxArgs, depth: maxDepth, nodes: maxArgsNodes})
	if err != nil {
		return nil, nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("must be an object, got %s", brief(v))
	}
	if err := distinct(object); err != nil {
		return nil, nil, err
	}
	if countMembers(v) == countColons(args) {
		return object, args, nil
	}
	unique, err := Encode(object)
	return object, unique, err
}

// distinct returns an error if two members of an object differ only in the case of letters:
// devices disagree on which one counts.
func distinct(object map[string]any) error {
	if len(object) < 2 {
		return nil
	}
	seen := make(map[string]bool, len(object))
	for name := range object {
		folded := strings.ToLower(name)
		if seen[folded] {
			return fmt.Errorf("has %q in upper and lower case", folded)
		}
		seen[folded] = true
	}
	return nil
}

// countMembers returns the number of members of all objects in a value.
func countMembers(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		for _, e := range v {
			n += countMembers(e)
		}
	case []any:
		for _, e := range v {
			n += countMembers(e)
		}
	}
	return n
}

// countColons returns the number of colons outside of strings in a JSON text,
// which is the number of members.
func countColons(text []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++ // occurs in strings only
		case c == ':' && !quoted:
			n++
		}
	}
	return n
}

// Encode returns a value as compact JSON, without HTML escapes.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

func decode(data []byte, b bounds) (any, error) {
	if len(data) > b.size {
		return nil, fmt.Errorf("has %d bytes; limit is %d", len(data), b.size)
	}
	d := decoders.Get().(*decoder)
	v, err := d.decode(data)
	if err != nil {
		return nil, err // d may be anywhere in the text
	}
	decoders.Put(d)
	nodes := 0
	return v, bounded(v, b.depth, &nodes, b.nodes)
}

// decoders are kept for reuse: a new one costs more than the arguments of a usual call.
var decoders = sync.Pool{New: func() any {
	d := &decoder{}
	d.json = json.NewDecoder(&d.text)
	d.json.UseNumber()
	return d
}}

// decoder decodes one text after another.
type decoder struct {
	text bytes.Reader
	json *json.Decoder
}

// decode returns the only value in a text. After an error, the decoder must not be used again.
func (d *decoder) decode(data []byte) (v any, err error) {
	data = bytes.TrimRight(data, " \t\r\n") // so that nothing is left for the next text
	d.text.Reset(data)
	start := d.json.InputOffset()
	if err := d.json.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if d.json.InputOffset()-start != int64(len(data)) {
		return nil, errors.New("not JSON: unexpected data after the value")
	}
	return v, nil
}

// bounded checks the depth and the size of a value, and the range of its numbers:
// an exponent of a billion takes only twelve bytes.
func bounded(v any, depth int, nodes *int, limit int) error {
	if *nodes++; *nodes > limit {
		return fmt.Errorf("has more than %d parts", limit)
	}
	if depth == 0 {
		return errors.New("is nested too deeply")
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if err := bounded(e, depth-1, nodes, limit); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := bounded(e, depth-1, nodes, limit); err != nil {
				return err
			}
		}
	case json.Number:
		return boundedNumber(string(v))
	}
	return nil
}

func boundedNumber(n string) error {
	const digits, exponent = 64, 400
	mantissa, exp := n, 0
	if i := strings.IndexAny(n, "eE"); i >= 0 {
		var err error
		if exp, err = strconv.Atoi(n[i+1:]); err != nil {
			exp = math.MaxInt
		}
		mantissa = n[:i]
	}
	if len(mantissa) > digits || exp > exponent || exp < -exponent {
		return fmt.Errorf("number %.20s… is out of range", n)
	}
	return nil
}

// typeOf returns the type of a JSON value with its article.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}

// brief returns a JSON value, shortened for a message.
func brief(v any) string {
	const limit = 60
	data, err := Encode(v)
	if err != nil {
		return typeOf(v)
	}
	if len(data) > limit {
		return strings.ToValidUTF8(string(data[:limit]), "") + "…"
	}
	return string(data)
}
