// Package schema makes untrusted JSON Schemas safe and useful.
//
//	schema of a device -> decode -> inline -> compile -> Check: all violations
//	                      bounded   no $ref      |
//	                                             +-> Portable: for every client
//
// The portable form uses only common keywords. For arguments it is stricter than
// the schema: what matches the portable form matches the schema. For answers it
// is looser: what matches the schema matches the portable form.
//
// A schema is limited in size, depth and number of parts. References inside it
// are replaced by their targets, so that the cost of a check is bounded by the
// size of the schema. A reference to another document, and a cycle, are errors.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a schema, after its references were replaced.
const (
	maxSize     = ferrule.MaxSchema // bytes, before
	maxDepth    = 32
	maxNodes    = 4096
	maxBytes    = 2 * maxSize // of values
	maxPatterns = 4096        // instructions of all patterns
)

// maxChecks limits the product of the parts of a schema and the parts of the
// arguments: an attacker may have written both.
const maxChecks = 100_000

// Schema is a compiled schema of the arguments or the answers of a tool. It is
// safe for concurrent use.
type Schema struct {
	parts    int
	plain    *plainSchema // fast path; nil if the schema is not plain
	compiled *jsonschema.Schema
	portable json.RawMessage
}

// Compile compiles the schema of a tool's arguments. Its errors are meant for the
// author of the schema. The input may be hostile: even a panic in the library
// becomes an error. Equal texts share one Schema as long as it is in use.
func Compile(raw []byte) (*Schema, error) {
	return inputs.get(raw, func() (*Schema, error) {
		return compileDoc(raw, func(inlined map[string]any) (map[string]any, error) {
			return portableRoot(inlined), checkRoot(inlined)
		})
	})
}

// CompileOutput compiles the schema of a tool's answers. It has no portable form
// if an answer may be something else than an object, since not every client
// supports that.
func CompileOutput(raw []byte) (*Schema, error) {
	return outputs.get(raw, func() (*Schema, error) {
		return compileDoc(raw, func(inlined map[string]any) (map[string]any, error) {
			if inlined["type"] != "object" {
				return nil, nil
			}
			return looserRoot(inlined), nil
		})
	})
}

// compileDoc compiles a schema. The function show returns its portable form.
func compileDoc(raw []byte, show func(inlined map[string]any) (map[string]any, error)) (compiled *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, fmt.Errorf("does not compile: %v", r)
		}
		if err != nil { // it may quote the schema
			err = errors.New(ferrule.Clean(err.Error(), ferrule.MaxText))
		}
	}()
	doc, err := decode(raw, bounds{size: maxSize, depth: maxDepth, nodes: maxNodes})
	if err != nil {
		return nil, err
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be an object, got %s", typeOf(doc))
	}
	draft := draftOf(object)
	inlined, parts, err := inline(object, draft.refOnly)
	if err != nil {
		return nil, err
	}
	shown, err := show(inlined)
	if err != nil {
		return nil, err
	}
	checks, err := compile(inlined, draft.is)
	if err != nil || shown == nil {
		return &Schema{parts: parts, compiled: checks}, err
	}
	portable, err := Encode(shown)
	if err != nil {
		return nil, err
	}
	return &Schema{parts, newPlain(inlined), checks, portable}, nil
}

// Portable returns the schema in a form that every client understands: an object
// at the root, one type for each part, no references, only common keywords. If a
// part may have several types, arguments keep one of them and answers none.
func (s *Schema) Portable() json.RawMessage { return s.portable }

// noLoader refuses to load other documents.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to another document: %s", url)
}

func compile(doc map[string]any, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	const url = "ferrule:schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(newPattern)
	c.DefaultDraft(draft)
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, compileError(err)
	}
	return compiled, nil
}

// draft is a version of JSON Schema.
type draft struct {
	part    string // of $schema
	is      *jsonschema.Draft
	refOnly bool // keywords next to $ref are ignored
}

var drafts = []draft{
	{"draft-04", jsonschema.Draft4, true},
	{"draft-06", jsonschema.Draft6, true},
	{"draft-07", jsonschema.Draft7, true},
	{"2019-09", jsonschema.Draft2019, false},
}

// draftOf returns the draft of a schema: the one that it names, else the newest.
func draftOf(doc map[string]any) draft {
	name, _ := doc["$schema"].(string)
	for _, d := range drafts {
		if strings.Contains(name, d.part) {
			return d
		}
	}
	return draft{is: jsonschema.Draft2020}
}

// checkRoot rejects a schema that no arguments can match.
func checkRoot(doc map[string]any) error {
	switch t := doc["type"].(type) {
	case nil:
		return nil
	case string:
		if t == "object" {
			return nil
		}
	case []any:
		for _, e := range t {
			if e == "object" {
				return nil
			}
		}
	}
	return fmt.Errorf("type must be object, got %s", brief(doc["type"]))
}
