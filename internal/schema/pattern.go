package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxWork limits the work of texts in a check. One unit is one instruction of a
// pattern on one byte of text, and takes about 10 ns: a match takes time in
// proportion to the size of the pattern times the length of the text, and both may
// come from an attacker.
const maxWork = 10_000_000

// perByte is how many bytes of text without a pattern count as one unit.
const perByte = 16

// pattern is a regular expression with its size.
type pattern struct {
	*regexp.Regexp
	size int
}

// newPattern compiles a pattern of a schema. The library also calls it for values
// of the format regex, which have the same limits.
func newPattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("pattern has %d bytes; limit is %d", len(text), maxSize)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := patternSize(tree)
	if size > maxPatterns {
		return nil, errors.New("pattern is too large")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{re, 1 + size}, nil
}

// matchWork returns the work of matching a text.
func matchWork(re jsonschema.Regexp, text string) int64 {
	p, ok := re.(*pattern)
	if !ok {
		return 0
	}
	return int64(p.size) * int64(1+len(text))
}

// work returns an upper limit of the work that the texts in v cause in a check. A
// text that no pattern applies to costs little, however large the patterns next to
// it are.
func work(s *jsonschema.Schema, v any) (n int64) {
	if s == nil {
		return 0
	}
	add := func(v any, schemas ...*jsonschema.Schema) {
		for _, sub := range schemas {
			n += work(sub, v)
		}
	}
	add(v, s.Not, s.If, s.Then, s.Else)
	add(v, s.AllOf...)
	add(v, s.AnyOf...)
	add(v, s.OneOf...)
	switch v := v.(type) {
	case string:
		n += int64(len(v))/perByte + matchWork(s.Pattern, v)
	case []any:
		elements := append(subschemas(s.Items), subschemas(s.AdditionalItems)...)
		elements = append(elements, s.PrefixItems...)
		elements = append(elements, s.Items2020, s.UnevaluatedItems, s.Contains)
		for _, e := range v {
			add(e, elements...)
		}
	case map[string]any:
		for _, dependent := range s.Dependencies {
			add(v, subschemas(dependent)...)
		}
		for _, dependent := range s.DependentSchemas {
			add(v, dependent)
		}
		members := append(subschemas(s.AdditionalProperties), s.UnevaluatedProperties)
		for name, e := range v {
			add(name, s.PropertyNames)
			add(e, s.Properties[name])
			add(e, members...)
			for re, sub := range s.PatternProperties {
				n += matchWork(re, name)
				add(e, sub)
			}
		}
	}
	return n
}

// subschemas returns the schemas in a keyword that may hold one, several or none.
func subschemas(keyword any) []*jsonschema.Schema {
	switch k := keyword.(type) {
	case *jsonschema.Schema:
		return []*jsonschema.Schema{k}
	case []*jsonschema.Schema:
		return append([]*jsonschema.Schema(nil), k...)
	}
	return nil
}
