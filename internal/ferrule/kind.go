package ferrule

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Kind is the hash of a canonical Manifest: 64 hexadecimal digits. Devices with
// the same firmware have the same Kind. A firmware that says something else
// about itself has another Kind.
type Kind string

// Short returns the first 12 digits, for lists.
func (k Kind) Short() string { return string(k[:min(12, len(k))]) }

// Valid reports whether k has the form of a Kind.
func (k Kind) Valid() bool {
	return len(k) == 2*sha256.Size && strings.Trim(string(k), "0123456789abcdef") == ""
}

// Kind returns the SHA-256 of the manifest's canonical form.
func (m *Manifest) Kind() (Kind, error) {
	data, err := m.Canonical()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return Kind(hex.EncodeToString(sum[:])), nil
}

// Canonical returns the bytes that the Kind is the hash of: what the device said,
// and which tools are in quarantine for it, as JSON in the form of RFC 8785. Tools
// and prompts are sorted by name, resources by URI and pins by number, because a
// device may list them in any order. Empty fields are omitted, so that adding a
// field to Manifest keeps existing Kinds.
//
// All devices of a Kind share one manifest, so whatever a device can change in it
// must change the Kind.
func (m *Manifest) Canonical() ([]byte, error) {
	said := *m
	said.Notes, said.Tools = nil, nil
	said.Resources = slices.Clone(m.Resources)
	slices.SortStableFunc(said.Resources, func(a, b Resource) int { return cmp.Compare(a.URI, b.URI) })
	said.Prompts = slices.Clone(m.Prompts)
	slices.SortStableFunc(said.Prompts, func(a, b Prompt) int { return cmp.Compare(a.Name, b.Name) })
	said.Operations = slices.Clone(m.Operations)
	slices.Sort(said.Operations)
	said.Pins = slices.Clone(m.Pins)
	slices.SortStableFunc(said.Pins, func(a, b Pin) int { return cmp.Compare(a.Number, b.Number) })
	members := make(map[string]json.RawMessage)
	data, err := json.Marshal(said)
	if err == nil {
		err = json.Unmarshal(data, &members)
	}
	if err == nil && len(m.Tools) > 0 {
		members["tools"], err = canonicalTools(m.Tools)
	}
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(members)) { // plain ASCII
		if i > 0 {
			out = append(out, ',')
		}
		value := members[name]
		if name != "tools" {
			if value, err = CanonicalJSON(value); err != nil {
				return nil, err
			}
		}
		out = append(append(AppendString(out, name), ':'), value...)
	}
	return append(out, '}'), nil
}

// canonicalTools returns the canonical list of tools. It decodes one tool at a time:
// a decoded schema takes many times the memory of its text.
func canonicalTools(tools []Tool) ([]byte, error) {
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	out := []byte{'['}
	for i, t := range tools {
		t.Deadline, t.Cache, t.Check = 0, nil, nil
		if t.Quarantine != "" {
			t.Quarantine = "yes" // the wording does not matter
		}
		data, err := json.Marshal(t)
		if err == nil {
			data, err = CanonicalJSON(data)
		}
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, data...)
	}
	return append(out, ']'), nil
}

// CanonicalJSON rewrites one JSON value in the form of RFC 8785: members sorted
// by UTF-16 name, no white space, numbers as ECMAScript prints a double. A
// number too large for a double keeps its digits.
func CanonicalJSON(data []byte) ([]byte, error) { return rewriteJSON(data, appendNumber) }

// normalJSON is CanonicalJSON that keeps all digits of integers of 64 bits: a limit or
// an ID in a schema must not be rounded.
func normalJSON(data []byte) ([]byte, error) {
	const maxDigits = 20
	return rewriteJSON(data, func(b []byte, n json.Number) []byte {
		if len(n) <= maxDigits && !strings.ContainsAny(string(n), ".eE") {
			return append(b, n...)
		}
		return appendNumber(b, n)
	})
}

func rewriteJSON(data []byte, number appendNumberFunc) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("canonical JSON: more than one value")
	}
	return appendCanonical(make([]byte, 0, len(data)), v, number), nil
}

type appendNumberFunc func(b []byte, n json.Number) []byte

func appendCanonical(b []byte, v any, number appendNumberFunc) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return number(b, v)
	case string:
		return AppendString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendCanonical(b, e, number)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, name := range sortedNames(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(AppendString(b, name), ':')
			b = appendCanonical(b, v[name], number)
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("ferrule: %T is not a JSON value", v))
}

func sortedNames(object map[string]any) []string {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	return names
}

// compareUTF16 orders strings as RFC 8785 requires. This differs from the order
// of bytes only beyond U+FFFF.
func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

func appendNumber(b []byte, n json.Number) []byte {
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return append(b, n...)
	}
	if f == 0 { // or -0
		return append(b, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	if n := len(b); b[n-2] == '0' && (b[n-3] == '-' || b[n-3] == '+') { // e-07 is e-7
		b = append(b[:n-2], b[n-1])
	}
	return b
}

// AppendString appends s as a JSON string with only the escapes that JSON requires.
func AppendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	plain := 0 // bytes that need no escape
	for plain < len(s) && s[plain] >= 0x20 && s[plain] < utf8.RuneSelf && s[plain] != '"' && s[plain] != '\\' {
		plain++
	}
	b = append(b, s[:plain]...)
	for _, r := range s[plain:] {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= 0x20:
			b = utf8.AppendRune(b, r)
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r == '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		}
	}
	return append(b, '"')
}
