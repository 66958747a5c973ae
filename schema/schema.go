// Package schema makes untrusted JSON Schemas harmless and useful.
//
//	what a device gave ─▶ decode ─▶ inline ─▶ compile ─▶ Check: every violation
//	                      bounded   no $ref              named at once
//	                                      └─▶ Portable: what any client can read
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
)

// The bounds of a schema, after its references have been replaced.
const (
	maxSize     = 64 << 10 // bytes, before
	maxDepth    = 32
	maxNodes    = 4096
	maxPatterns = 64
	maxPattern  = 512 // bytes of one pattern
)

// Schema is a compiled schema of the arguments of a tool. It is safe for use by
// many goroutines.
type Schema struct {
	plain    *plainSchema // nil if it is not plain
	compiled *jsonschema.Schema
	portable json.RawMessage
}

// Compile compiles the schema of a tool's arguments. Its errors are fit for
// showing to whoever wrote the schema.
func Compile(raw []byte) (*Schema, error) {
	doc, err := decode(raw, bounds{size: maxSize, depth: maxDepth, nodes: maxNodes})
	if err != nil {
		return nil, err
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is %s, not an object", kindOf(doc))
	}
	draft := draftOf(object)
	whole, err := inline(object)
	if err != nil {
		return nil, err
	}
	if err := rootIsObject(whole); err != nil {
		return nil, err
	}
	compiled, err := compile(whole, draft)
	if err != nil {
		return nil, err
	}
	portable, err := Encode(portableRoot(whole))
	if err != nil {
		return nil, err
	}
	return &Schema{newPlain(whole), compiled, portable}, nil
}

// Portable is the schema as every client can read it: an object at the root,
// one type a part, no references and no keywords beyond the common ones. It may
// say less than the schema; where a part may have several types, it names one.
func (s *Schema) Portable() json.RawMessage { return s.portable }

// nowhere is a loader that loads nothing: no schema reaches outside itself.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) { return nil, fmt.Errorf("%s is outside of it", url) }

func compile(doc map[string]any, draft *jsonschema.Draft) (compiled *jsonschema.Schema, err error) {
	defer func() { // the library is given hostile input here, once, and must not take the process along
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be compiled: %v", r)
		}
	}()
	const url = "ferrule:schema"
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	c.DefaultDraft(draft)
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	compiled, err = c.Compile(url)
	if err != nil {
		return nil, compileError(err)
	}
	return compiled, nil
}

// drafts maps a part of a $schema to the draft that it names.
var drafts = []struct {
	part  string
	draft *jsonschema.Draft
}{
	{"draft-04", jsonschema.Draft4},
	{"draft-06", jsonschema.Draft6},
	{"draft-07", jsonschema.Draft7},
	{"2019-09", jsonschema.Draft2019},
}

// draftOf is the draft that a schema is written in: the newest unless it names
// another that is known.
func draftOf(doc map[string]any) *jsonschema.Draft {
	name, _ := doc["$schema"].(string)
	for _, d := range drafts {
		if strings.Contains(name, d.part) {
			return d.draft
		}
	}
	return jsonschema.Draft2020
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
