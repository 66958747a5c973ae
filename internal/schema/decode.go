package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The bounds of a call's arguments, and of an answer that is to be checked.
const (
	MaxArgs        = 64 << 10
	maxArgsNodes   = 16 << 10
	MaxOutput      = 1 << 20
	maxAnswerNodes = 64 << 10
)

// bounds limits what decode accepts.
type bounds struct{ size, depth, nodes int }

// Object decodes the arguments of a call: one JSON object; nothing stands for
// none. Numbers keep their digits. It also returns a text of the object that
// means the same to every reader: of a member that is given twice, one reader
// takes the first and another the last.
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
		return nil, nil, fmt.Errorf("want an object, got %s", brief(v))
	}
	if membersOf(v) == membersIn(args) {
		return object, args, nil
	}
	unique, err := Encode(object)
	return object, unique, err
}

// membersOf counts the members of the objects in a value.
func membersOf(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		for _, e := range v {
			n += membersOf(e)
		}
	case []any:
		for _, e := range v {
			n += membersOf(e)
		}
	}
	return n
}

// membersIn counts the members in a text that is JSON: the colons outside of
// strings.
func membersIn(text []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++ // it only stands in strings
		case c == ':' && !quoted:
			n++
		}
	}
	return n
}

// Encode writes a value as compact JSON, without escapes that only a browser
// needs.
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
		return nil, fmt.Errorf("it has %d bytes; at most %d are possible", len(data), b.size)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("it is not JSON: something follows the value")
	}
	nodes := 0
	return v, bounded(v, b.depth, &nodes, b.nodes)
}

// bounded checks how deep and how large a value is, and that its numbers can be
// worked with: an exponent of a billion fits in twelve bytes.
func bounded(v any, depth int, nodes *int, most int) error {
	if *nodes++; *nodes > most {
		return fmt.Errorf("it has more than %d parts", most)
	}
	if depth == 0 {
		return errors.New("it is nested too deeply")
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if err := bounded(e, depth-1, nodes, most); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := bounded(e, depth-1, nodes, most); err != nil {
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
		return fmt.Errorf("the number %.20s… is out of range", n)
	}
	return nil
}

// typeOf names the type of a JSON value.
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

// brief is a JSON value, shortened for a message.
func brief(v any) string {
	const most = 60
	data, err := Encode(v)
	if err != nil {
		return typeOf(v)
	}
	if len(data) > most {
		return strings.ToValidUTF8(string(data[:most]), "") + "…"
	}
	return string(data)
}
