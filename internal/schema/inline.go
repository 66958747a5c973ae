package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// shape is how a keyword holds schemas.
type shape int

const (
	plain shape = iota // no schema
	one                // a schema, or in old drafts a list of schemas
	list               // a list of schemas
	named              // schemas by name
)

// keywords are the keywords that are kept. Others do not matter for a check and
// may have side effects in clients.
var keywords = map[string]shape{
	"title": plain, "description": plain, "default": plain, "examples": plain, "deprecated": plain,
	"type": plain, "enum": plain, "const": plain, "format": plain,
	"minimum": plain, "maximum": plain, "exclusiveMinimum": plain, "exclusiveMaximum": plain, "multipleOf": plain,
	"minLength": plain, "maxLength": plain, "pattern": plain,
	"minItems": plain, "maxItems": plain, "uniqueItems": plain, "minContains": plain, "maxContains": plain,
	"minProperties": plain, "maxProperties": plain, "required": plain, "dependentRequired": plain,

	"items": one, "additionalItems": one, "unevaluatedItems": one, "contains": one,
	"additionalProperties": one, "unevaluatedProperties": one, "propertyNames": one,
	"not": one, "if": one, "then": one, "else": one,

	"prefixItems": list, "allOf": list, "anyOf": list, "oneOf": list,

	"properties": named, "patternProperties": named, "dependentSchemas": named, "dependencies": named,
}

// inline copies a schema: it replaces references by their targets, cleans texts
// and drops unknown keywords. It also returns the number of parts of the copy. If
// refOnly is set, keywords next to a $ref are ignored.
func inline(root map[string]any, refOnly bool) (inlined map[string]any, parts int, err error) {
	in := &inliner{root: root, refOnly: refOnly}
	v, err := in.schema(root, 0)
	if err != nil {
		return nil, 0, err
	}
	inlined, ok := v.(map[string]any)
	if !ok {
		return nil, 0, fmt.Errorf("must be an object, got %s", typeOf(v))
	}
	return inlined, in.parts, nil
}

type inliner struct {
	root     map[string]any
	refOnly  bool
	within   []string // the references being replaced, outermost first
	parts    int      // schemas and values so far
	bytes    int      // of values so far
	patterns int      // size of all patterns so far
}

func (in *inliner) schema(v any, depth int) (any, error) {
	if in.parts++; in.parts > maxNodes {
		return nil, fmt.Errorf("has more than %d parts with references replaced", maxNodes)
	}
	if depth > maxDepth {
		return nil, errors.New("is nested too deeply with references replaced")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return v, nil // true, false, or invalid; compile decides
	}
	ref, refers := object["$ref"]
	out := make(map[string]any, len(object))
	for word, value := range object {
		if _, known := keywords[word]; !known && !forbidden[word] || refers && in.refOnly {
			continue
		}
		if (word == "default" || word == "examples") && !visible(value) {
			continue // it is not needed, and a changed value would mislead
		}
		kept, err := in.keyword(word, value, depth)
		if err != nil {
			return nil, err
		}
		out[word] = kept
	}
	if refers {
		target, err := in.refer(ref, depth)
		if err != nil {
			return nil, err
		}
		return mergeSiblings(out, target), nil
	}
	return out, nil
}

// forbidden are unsupported keywords that cannot be ignored.
var forbidden = map[string]bool{"$dynamicRef": true, "$recursiveRef": true}

// keyword returns the inlined value of a keyword.
func (in *inliner) keyword(word string, value any, depth int) (any, error) {
	if forbidden[word] {
		return nil, fmt.Errorf("%s is not supported", word)
	}
	switch word {
	case "title", "description":
		if text, ok := value.(string); ok {
			value = ferrule.Clean(text, ferrule.MaxText)
		}
	case "pattern":
		if err := in.pattern(value); err != nil {
			return nil, err
		}
	case "patternProperties":
		patterns, _ := value.(map[string]any)
		for p := range patterns {
			if err := in.pattern(p); err != nil {
				return nil, err
			}
		}
	}
	switch keywords[word] {
	case named:
		return in.named(value, depth)
	case list, one:
		if elements, ok := value.([]any); ok {
			return in.list(elements, depth)
		}
		return in.schema(value, depth+1)
	}
	if !visible(value) {
		return nil, fmt.Errorf("%s contains invisible characters", word)
	}
	return value, in.plain(value)
}

// visible reports whether a reader sees all texts in a value. Those of most keywords
// cannot be cleaned: the device would not recognize a changed value of an enum.
func visible(v any) bool {
	switch v := v.(type) {
	case string:
		return ferrule.Visible(v)
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !visible(e) })
	case map[string]any:
		for name, e := range v {
			if !ferrule.Visible(name) || !visible(e) {
				return false
			}
		}
	}
	return true
}

// plain counts a value that is copied as it is. A value that is referenced often
// is counted as often.
func (in *inliner) plain(v any) error {
	parts, bytes := sizeOf(v)
	in.parts += parts
	in.bytes += bytes
	if in.parts > maxNodes || in.bytes > maxBytes {
		return fmt.Errorf("has more than %d parts or %d bytes with references replaced", maxNodes, maxBytes)
	}
	return nil
}

// sizeOf returns the number of parts of a JSON value and the bytes of its texts.
func sizeOf(v any) (parts, bytes int) {
	parts = 1
	switch v := v.(type) {
	case string:
		bytes = len(v)
	case json.Number:
		bytes = len(v)
	case []any:
		for _, e := range v {
			p, b := sizeOf(e)
			parts, bytes = parts+p, bytes+b
		}
	case map[string]any:
		for name, e := range v {
			p, b := sizeOf(e)
			parts, bytes = parts+p, bytes+b+len(name)
		}
	}
	return parts, bytes
}

func (in *inliner) list(elements []any, depth int) (any, error) {
	out := make([]any, len(elements))
	for i, e := range elements {
		var err error
		if out[i], err = in.schema(e, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (in *inliner) named(value any, depth int) (any, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return value, nil
	}
	out := make(map[string]any, len(object))
	for name, e := range object {
		if ferrule.Clean(name, ferrule.MaxWord) != name {
			return nil, fmt.Errorf("name %s is too long or contains invisible characters", brief(name))
		}
		var err error
		if out[name], err = in.schema(e, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pattern limits the compiled size of a regular expression. The time of a match
// is proportional to it, and a short expression can be large.
func (in *inliner) pattern(value any) error {
	text, _ := value.(string)
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return fmt.Errorf("invalid pattern: %w", err)
	}
	if in.patterns += 1 + patternSize(re); in.patterns > maxPatterns {
		return fmt.Errorf("patterns are too large: %s", brief(text))
	}
	return nil
}

// patternSize estimates the number of instructions of a pattern.
func patternSize(re *syntax.Regexp) int {
	n := max(1, len(re.Rune))
	for _, sub := range re.Sub {
		n += patternSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return min(n, maxPatterns+1)
}

// refer returns the inlined target of a reference.
func (in *inliner) refer(ref any, depth int) (any, error) {
	text, ok := ref.(string)
	if !ok {
		return nil, errors.New("$ref must be a string")
	}
	pointer, ok := strings.CutPrefix(text, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, fmt.Errorf("refers to another document: %s", brief(text))
	}
	for _, outer := range in.within {
		if outer == pointer {
			return nil, fmt.Errorf("%s refers to itself", brief(text))
		}
	}
	target, err := lookUp(in.root, pointer)
	if err != nil {
		return nil, fmt.Errorf("refers to %s: %w", brief(text), err)
	}
	if pointer == "" {
		return nil, errors.New("refers to itself")
	}
	in.within = append(in.within, pointer)
	defer func() { in.within = in.within[:len(in.within)-1] }()
	return in.schema(target, depth+1)
}

// lookUp follows a JSON pointer.
func lookUp(v any, pointer string) (any, error) {
	if pointer == "" {
		return v, nil
	}
	for _, step := range strings.Split(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return nil, errors.New("not found")
			}
			v = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, errors.New("not found")
			}
			v = at[i]
		default:
			return nil, errors.New("not found")
		}
	}
	return v, nil
}

// mergeSiblings merges the keywords next to a reference with its target.
func mergeSiblings(siblings map[string]any, target any) any {
	if len(siblings) == 0 {
		return target
	}
	object, ok := target.(map[string]any)
	for word := range siblings {
		switch word {
		case "title", "description", "default", "examples", "deprecated":
		default:
			ok = false
		}
	}
	if !ok { // both must hold
		all, _ := siblings["allOf"].([]any)
		siblings["allOf"] = append(all, target)
		return siblings
	}
	for word, value := range object {
		if _, said := siblings[word]; !said {
			siblings[word] = value
		}
	}
	return siblings
}
