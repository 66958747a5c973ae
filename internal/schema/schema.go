// Package schema makes untrusted JSON Schemas safe and useful.
//
//	schema of a device -> decode -> inline -> valid? -> Portable: for every client
//	                      bounded   no $ref     |
//	                                            +-> compile -> Check: all violations
//	                                                at the first call
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
	"sync"

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

// Schema is a valid schema of the arguments or the answers of a tool. It is compiled
// when it is first used: a compiled schema takes a hundred times as much memory as
// its text, and most tools are never called. It is safe for concurrent use.
type Schema struct {
	raw      []byte
	portable json.RawMessage
	checker  func() *checker
}

// checker is a compiled schema.
type checker struct {
	parts    int
	plain    *plainSchema // fast path; nil if the schema is not plain
	compiled *jsonschema.Schema
	err      error // nothing is valid then
	// properties are the declared arguments.
	properties map[string]bool
}

// Text returns the text of the schema. It must not be changed.
func (s *Schema) Text() json.RawMessage { return s.raw }

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

// compileDoc reads and checks a schema. The function show returns its portable form.
func compileDoc(raw []byte, show func(inlined map[string]any) (map[string]any, error)) (compiled *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, fmt.Errorf("does not compile: %v", r)
		}
		if err != nil { // it may quote the schema
			err = errors.New(ferrule.Clean(err.Error(), ferrule.MaxText))
		}
	}()
	inlined, _, draft, err := parse(raw)
	if err != nil {
		return nil, err
	}
	shown, err := show(inlined)
	if err != nil {
		return nil, err
	}
	if err := checkValid(inlined, draft); err != nil {
		return nil, err
	}
	return newSchema(raw, shown)
}

// newSchema returns a schema with a portable form; nil for none.
func newSchema(raw json.RawMessage, portable map[string]any) (s *Schema, err error) {
	s = &Schema{raw: raw}
	s.checker = sync.OnceValue(s.compile)
	if portable != nil {
		s.portable, err = Encode(portable)
	}
	return s, err
}

// parse decodes a schema and replaces its references.
func parse(raw []byte) (inlined map[string]any, parts int, draft draft, err error) {
	doc, err := decode(raw, bounds{size: maxSize, depth: maxDepth, nodes: maxNodes})
	if err != nil {
		return nil, 0, draft, err
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, 0, draft, fmt.Errorf("must be an object, got %s", typeOf(doc))
	}
	draft = draftOf(object)
	inlined, parts, err = inline(object, draft.refOnly)
	return inlined, parts, draft, err
}

// compile compiles the schema. An error is rare, since the schema is valid; a panic in
// the library becomes one.
func (s *Schema) compile() (c *checker) {
	defer func() {
		if r := recover(); r != nil {
			c = &checker{err: fmt.Errorf("does not compile: %v", r)}
		}
	}()
	inlined, parts, draft, err := parse(s.raw)
	if err != nil {
		return &checker{err: err}
	}
	checks, err := compile(inlined, draft.is)
	if err != nil {
		return &checker{err: err}
	}
	c = &checker{parts: parts, compiled: checks, properties: make(map[string]bool)}
	properties, _ := inlined["properties"].(map[string]any)
	for name := range properties {
		c.properties[name] = true
	}
	if s.portable != nil {
		c.plain = newPlain(inlined)
	}
	return c
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

// checkValid checks a schema against the schema of schemas, without compiling it.
func checkValid(doc map[string]any, draft draft) error {
	meta, err := metaschema(draft.is)
	if err == nil {
		err = meta.Validate(doc)
	}
	if err != nil {
		return compileError(err)
	}
	return nil
}

var (
	metaMu      sync.Mutex
	metaschemas = make(map[*jsonschema.Draft]*jsonschema.Schema)
)

// metaschema returns the schema of the schemas of a draft.
func metaschema(draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	metaMu.Lock()
	defer metaMu.Unlock()
	if known := metaschemas[draft]; known != nil {
		return known, nil
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat() // a pattern must be a regular expression
	meta, err := c.Compile(draft.String())
	if err == nil {
		metaschemas[draft] = meta
	}
	return meta, err
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
