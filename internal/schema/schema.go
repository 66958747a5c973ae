// Package schema makes untrusted JSON Schemas harmless and useful.
//
//	what a device gave ─▶ decode ─▶ inline ─▶ compile ─▶ Check: every violation
//	                      bounded   no $ref              named at once
//	                                      └─▶ Portable: what any client can read
//
// Of arguments, the portable form says rather more than the schema: what fits it
// fits. Of answers it says rather less: what the device may answer fits.
//
// A schema is bounded in size, depth and number of parts; a reference inside it
// is replaced by what it refers to, so that checking arguments costs no more
// than its size; a reference out of it, or of a part to itself, is an error.
package schema

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of a schema, after its references have been replaced.
const (
	maxSize     = ferrule.MaxSchema // bytes, before
	maxDepth    = 32
	maxNodes    = 4096
	maxBytes    = 2 * maxSize // of values
	maxPatterns = 4096        // instructions of all patterns
)

// maxChecks bounds the parts of a schema times the parts of the arguments that it
// checks: whoever wrote the one may have written the other.
const maxChecks = 100_000

// Schema is a compiled schema of the arguments of a tool, or of its answers. It is
// safe for use by many goroutines.
type Schema struct {
	parts    int
	plain    *plainSchema // nil if it is not plain
	compiled *jsonschema.Schema
	portable json.RawMessage
}

// Compile compiles the schema of a tool's arguments. Its errors are fit for
// showing to whoever wrote the schema. What it is given is hostile: whatever goes
// wrong with one schema, a panic in a library included, is an error of that one. The
// same text gives the same Schema as long as that is in use.
func Compile(raw []byte) (*Schema, error) {
	return sharedArguments.of(raw, func() (*Schema, error) {
		return compileDoc(raw, func(whole map[string]any) (map[string]any, error) {
			return portableRoot(whole), rootIsObject(whole)
		})
	})
}

// CompileAnswer compiles the schema of what a tool answers. Its portable form is
// nothing if answers need not be objects, which not every client can read.
func CompileOutput(raw []byte) (*Schema, error) {
	return sharedAnswers.of(raw, func() (*Schema, error) {
		return compileDoc(raw, func(whole map[string]any) (map[string]any, error) {
			if whole["type"] != "object" {
				return nil, nil
			}
			return widerRoot(whole), nil
		})
	})
}

// compileDoc compiles a schema; show makes its portable form.
func compileDoc(raw []byte, show func(whole map[string]any) (map[string]any, error)) (compiled *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, fmt.Errorf("it cannot be compiled: %v", r)
		}
	}()
	doc, err := decode(raw, bounds{size: maxSize, depth: maxDepth, nodes: maxNodes})
	if err != nil {
		return nil, err
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is %s, not an object", typeOf(doc))
	}
	draft := draftOf(object)
	whole, parts, err := inline(object, draft.alone)
	if err != nil {
		return nil, err
	}
	shown, err := show(whole)
	if err != nil {
		return nil, err
	}
	checks, err := compile(whole, draft.is)
	if err != nil || shown == nil {
		return &Schema{parts: parts, compiled: checks}, err
	}
	portable, err := Encode(shown)
	if err != nil {
		return nil, err
	}
	return &Schema{parts, newPlain(whole), checks, portable}, nil
}

// Portable is the schema as every client can read it: an object at the root,
// one type a part, no references and no keywords beyond the common ones. Where a
// part of arguments may have several types, it names one; of answers, none.
func (s *Schema) Portable() json.RawMessage { return s.portable }

// nowhere is a loader that loads nothing: no schema reaches outside itself.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) { return nil, fmt.Errorf("%s is outside of it", url) }

func compile(doc map[string]any, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	const url = "ferrule:schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
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
	part  string // of the $schema that names it
	is    *jsonschema.Draft
	alone bool // what stands beside a reference does not count
}

var drafts = []draft{
	{"draft-04", jsonschema.Draft4, true},
	{"draft-06", jsonschema.Draft6, true},
	{"draft-07", jsonschema.Draft7, true},
	{"2019-09", jsonschema.Draft2019, false},
}

// draftOf is the draft that a schema is written in: the newest unless it names
// another that is known.
func draftOf(doc map[string]any) draft {
	name, _ := doc["$schema"].(string)
	for _, d := range drafts {
		if strings.Contains(name, d.part) {
			return d
		}
	}
	return draft{is: jsonschema.Draft2020}
}

// rootIsObject refuses a schema that no arguments could fit.
func rootIsObject(doc map[string]any) error {
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
	return fmt.Errorf("its type is %s; arguments are always an object", brief(doc["type"]))
}
