package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule"
)

// shape tells how a keyword holds schemas.
type shape int

const (
	plain shape = iota // it holds none
	one                // a schema, or in old drafts a list of them
	list               // a list of schemas
	named              // schemas by name
)

// keywords are those that are kept. Any other has no meaning for checking
// arguments, and may have one for somebody that nobody foresees.
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

// inline copies a schema with its references replaced by what they refer to,
// its texts cleaned, and only the keywords that are known.
func inline(root map[string]any) (map[string]any, error) {
	in := &inliner{root: root}
	whole, err := in.schema(root, 0)
	if err != nil {
		return nil, err
	}
	return whole.(map[string]any), nil
}

type inliner struct {
	root     map[string]any
	within   []string // the references being replaced, outermost first
	nodes    int
	patterns int
}

func (in *inliner) schema(v any, depth int) (any, error) {
	if in.nodes++; in.nodes > maxNodes {
		return nil, fmt.Errorf("with its references replaced it has more than %d parts", maxNodes)
	}
	if depth > maxDepth {
		return nil, errors.New("with its references replaced it is nested too deeply")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return v, nil // true, false, or something that does not compile
	}
	out := make(map[string]any, len(object))
	for word, value := range object {
		kept, err := in.keyword(word, value, depth)
		if err != nil {
			return nil, err
		}
		if kept != nil {
			out[word] = kept
		}
	}
	if ref, ok := object["$ref"]; ok {
		target, err := in.refer(ref, depth)
		if err != nil {
			return nil, err
		}
		return beside(out, target), nil
	}
	return out, nil
}

// keyword returns what a keyword becomes; nil if it is left out.
func (in *inliner) keyword(word string, value any, depth int) (any, error) {
	switch word {
	case "$dynamicRef", "$recursiveRef":
		return nil, fmt.Errorf("it uses %s, which is not supported", word)
	case "title", "description":
		if text, ok := value.(string); ok {
			return ferrule.Clean(text, ferrule.MaxText), nil
		}
		return value, nil
	case "pattern":
		return value, in.pattern(value)
	case "patternProperties":
		patterns, _ := value.(map[string]any)
		for p := range patterns {
			if err := in.pattern(p); err != nil {
				return nil, err
			}
		}
	}
	switch shape, known := keywords[word]; {
	case !known:
		return nil, nil
	case shape == named:
		return in.named(value, depth)
	case shape == list, shape == one:
		if elements, ok := value.([]any); ok {
			return in.list(elements, depth)
		}
		return in.schema(value, depth+1)
	}
	return value, nil
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
			return nil, fmt.Errorf("the name %q is too long or cannot be shown", brief(name))
		}
		var err error
		if out[name], err = in.schema(e, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pattern bounds a regular expression. Matching one takes linear time.
func (in *inliner) pattern(value any) error {
	text, _ := value.(string)
	if in.patterns++; in.patterns > maxPatterns {
		return fmt.Errorf("it has more than %d patterns", maxPatterns)
	}
	if len(text) > maxPattern {
		return fmt.Errorf("a pattern has %d bytes; at most %d are possible", len(text), maxPattern)
	}
	return nil
}

// refer returns what a reference stands for.
func (in *inliner) refer(ref any, depth int) (any, error) {
	text, ok := ref.(string)
	if !ok {
		return nil, errors.New("its $ref is not a string")
	}
	pointer, ok := strings.CutPrefix(text, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, fmt.Errorf("it refers to %s, which is outside of it", brief(text))
	}
	for _, outer := range in.within {
		if outer == pointer {
			return nil, fmt.Errorf("%s refers to itself", brief(text))
		}
	}
	target, err := lookUp(in.root, pointer)
	if err != nil {
		return nil, fmt.Errorf("it refers to %s: %w", brief(text), err)
	}
	if pointer == "" {
		return nil, errors.New("it refers to itself")
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
				return nil, errors.New("there is no such part")
			}
			v = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, errors.New("there is no such part")
			}
			v = at[i]
		default:
			return nil, errors.New("there is no such part")
		}
	}
	return v, nil
}

// beside joins what stood beside a reference with what the reference became.
func beside(siblings map[string]any, target any) any {
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
