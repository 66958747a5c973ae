package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The bounds of a call's arguments.
const (
	MaxArgs      = 64 << 10
	maxArgsNodes = 16 << 10
)

// bounds limits what decode accepts.
type bounds struct{ size, depth, nodes int }

// Object decodes the arguments of a call: one JSON object, of which each member
// then exists once; nothing stands for none. Numbers keep their digits.
func Object(args []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		return map[string]any{}, nil
	}
	v, err := decode(args, bounds{size: MaxArgs, depth: maxDepth, nodes: maxArgsNodes})
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("want an object, got %s", brief(v))
	}
	return object, nil
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
	mantissa, exp, found := strings.Cut(strings.ToLower(n), "e")
	if e, err := strconv.Atoi(exp); len(mantissa) > digits || found && (err != nil || e > exponent || e < -exponent) {
		return fmt.Errorf("the number %.20s… is out of range", n)
	}
	return nil
}

// kindOf names the type of a JSON value.
func kindOf(v any) string {
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
		return kindOf(v)
	}
	if len(data) > most {
		return strings.ToValidUTF8(string(data[:most]), "") + "…"
	}
	return string(data)
}
