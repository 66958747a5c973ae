package schema

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plainSchema is the fast path for the arguments of most tools: an object of
// integers, booleans and strings. It only accepts. If it does not accept, the
// library decides and explains.
type plainSchema struct {
	properties map[string]plainProperty
	required   []string
	closed     bool // no other properties
}

type plainProperty struct {
	want      string
	low, high int64   // of an integer
	enum      []int64 // nil for any
}

// plainWords are the keywords that a plain schema may use.
var plainWords = map[string]bool{
	"type": true, "properties": true, "required": true, "additionalProperties": true,
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true,
}

var plainPropertyWords = map[string]bool{
	"type": true, "minimum": true, "maximum": true, "enum": true,
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true,
}

// newPlain returns the plain form of an inlined schema, or nil if it has none.
func newPlain(doc map[string]any) *plainSchema {
	for word := range doc {
		if !plainWords[word] {
			return nil
		}
	}
	s := &plainSchema{properties: make(map[string]plainProperty)}
	switch more := doc["additionalProperties"].(type) {
	case nil:
	case bool:
		s.closed = !more
	default:
		return nil
	}
	required, _ := doc["required"].([]any)
	for _, name := range required {
		text, ok := name.(string)
		if !ok {
			return nil
		}
		s.required = append(s.required, text)
	}
	properties, _ := doc["properties"].(map[string]any)
	for name, v := range properties {
		object, _ := v.(map[string]any)
		p, ok := newPlainProperty(object)
		if !ok {
			return nil
		}
		s.properties[name] = p
	}
	return s
}

func newPlainProperty(doc map[string]any) (p plainProperty, ok bool) {
	for word := range doc {
		if !plainPropertyWords[word] {
			return p, false
		}
	}
	p.want, _ = doc["type"].(string)
	switch p.want {
	case "boolean", "string":
		return p, doc["minimum"] == nil && doc["maximum"] == nil && doc["enum"] == nil
	case "integer":
		return p, p.setLimits(doc)
	}
	return p, false
}

// setLimits reads the limits of an integer. It reports whether it understands them.
func (p *plainProperty) setLimits(doc map[string]any) (ok bool) {
	p.low, p.high = math.MinInt64, math.MaxInt64
	for word, bound := range map[string]*int64{"minimum": &p.low, "maximum": &p.high} {
		if v, said := doc[word]; said {
			if *bound, ok = integer(v); !ok {
				return false
			}
		}
	}
	v, said := doc["enum"]
	values, ok := v.([]any)
	if !said {
		return true
	}
	p.enum = []int64{}
	for _, e := range values {
		n, ok := integer(e)
		if !ok {
			return false
		}
		p.enum = append(p.enum, n)
	}
	return ok
}

// integer parses a number without fraction and exponent.
func integer(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok || strings.ContainsAny(string(n), ".eE") {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// accepts reports whether the arguments are certainly valid.
func (s *plainSchema) accepts(args map[string]any) bool {
	for _, name := range s.required {
		if _, ok := args[name]; !ok {
			return false
		}
	}
	for name, v := range args {
		p, known := s.properties[name]
		if !known && s.closed || known && !p.accepts(v) {
			return false
		}
	}
	return true
}

func (p plainProperty) accepts(v any) bool {
	switch p.want {
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "string":
		_, ok := v.(string)
		return ok
	}
	n, ok := integer(v)
	return ok && n >= p.low && n <= p.high && (p.enum == nil || slices.Contains(p.enum, n))
}
