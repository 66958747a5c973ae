package schema_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/schema"
)

// basicCases are schemas with each keyword that some client cannot convert, and what becomes
// of them.
var basicCases = []struct{ name, schema, want string }{
	{"nothing", `{}`, `{"properties":{},"type":"object"}`},
	{"limits of a number", `{"type":"object","properties":{"t":{"type":"number","minimum":5,"maximum":30.5,"multipleOf":0.5,"description":"Target."}},"required":["t"],"additionalProperties":false}`,
		`{"additionalProperties":false,"properties":{"t":{"description":"Target. In steps of 0.5.","maximum":30.5,"minimum":5,"type":"number"}},"required":["t"],"type":"object"}`},
	{"exclusive limits", `{"properties":{"n":{"type":"integer","exclusiveMinimum":0}}}`, `{"properties":{"n":{"minimum":0,"type":"integer"}},"type":"object"}`},
	{"without a type", `{"properties":{"a":{},"b":true,"c":{"enum":["x","y"]},"d":{"const":5},"e":{"minimum":1},"f":{"properties":{"g":{}}},"h":{"const":null}}}`,
		`{"properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"description":"One of: x, y.","enum":["x","y"],"type":"string"},` +
			`"d":{"description":"One of: 5.","maximum":5,"minimum":5,"type":"integer"},"e":{"minimum":1,"type":"number"},"f":{"properties":{"g":{"type":"string"}},"type":"object"},"h":{"type":"string"}},"type":"object"}`},
	{"several types", `{"properties":{"a":{"type":["null","integer"]},"b":{"type":["string","number"]}}}`, `{"properties":{"a":{"type":"integer"},"b":{"type":"string"}},"type":"object"}`},
	{"arrays", `{"properties":{"a":{"type":"array"},"b":{"type":"array","items":{"type":"integer"},"minItems":3,"maxItems":3,"uniqueItems":true},"c":{"type":"array","prefixItems":[{"type":"integer"}]}}}`,
		`{"properties":{"a":{"items":{"type":"string"},"type":"array"},"b":{"items":{"type":"integer"},"type":"array"},"c":{"items":{"type":"string"},"type":"array"}},"type":"object"}`},
	{"any object", `{"properties":{"a":{"type":"object"},"b":{"type":"object","additionalProperties":{}},"c":{"type":"object","additionalProperties":false}}}`,
		`{"properties":{"a":{"additionalProperties":true,"properties":{},"type":"object"},"b":{"additionalProperties":true,"properties":{},"type":"object"},"c":{"additionalProperties":false,"properties":{},"type":"object"}},"type":"object"}`},
	{"texts", `{"properties":{"a":{"type":"string","pattern":"^\\p{L}+$","format":"date-time","minLength":1,"default":"x"}}}`,
		`{"properties":{"a":{"description":"Default: \"x\".","type":"string"}},"type":"object"}`},
	{"numbers as an enum", `{"properties":{"a":{"enum":[9,1,5]},"b":{"enum":[0.5,2]},"c":{"type":"boolean","enum":[true]}}}`,
		`{"properties":{"a":{"description":"One of: 9, 1, 5.","maximum":9,"minimum":1,"type":"integer"},"b":{"description":"One of: 0.5, 2.","maximum":2,"minimum":0.5,"type":"number"},"c":{"description":"One of: true.","type":"boolean"}},"type":"object"}`},
	{"alternatives", `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"Text."},"b":{"oneOf":[{"type":"integer"},{"type":"string"}]},"c":{"anyOf":[{"const":"x"},{"const":"y"}]},"d":{"anyOf":[{"type":"integer","minimum":1},{"type":"integer","minimum":1}]}}}`,
		`{"properties":{"a":{"description":"Text.","type":"string"},"b":{"oneOf":[{"type":"integer"},{"type":"string"}]},"c":{"description":"One of: x. One of: y.","enum":["x","y"],"type":"string"},"d":{"minimum":1,"type":"integer"}},"type":"object"}`},
	{"all of", `{"properties":{"a":{"allOf":[{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]},{"properties":{"y":{"type":"string"}},"required":["y"]}]}}}`,
		`{"properties":{"a":{"properties":{"x":{"type":"integer"},"y":{"type":"string"}},"required":["x","y"],"type":"object"}},"type":"object"}`},
	{"references", `{"$defs":{"p":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/p"}},"if":{"required":["a"]},"then":{"required":["b"]},"patternProperties":{"^x":{"type":"string"}}}`,
		`{"properties":{"a":{"type":"integer"}},"type":"object"}`},
}

// TestBasic: the basic form has only keywords that every client converts.
func TestBasic(t *testing.T) {
	for _, test := range basicCases {
		got := schema.Basic(compile(t, test.schema).Portable())
		if string(got) != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
		checkBasic(t, got)
	}
	if got := schema.Basic(json.RawMessage(`[`)); string(got) != `{"properties":{},"type":"object"}` {
		t.Errorf("an unreadable schema becomes %s", got)
	}
}

// checkBasic fails if a schema has more than the basic form.
func checkBasic(t *testing.T, text json.RawMessage) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if doc["type"] != "object" || doc["properties"] == nil || doc["additionalProperties"] == true {
		t.Errorf("the root is %s", text)
	}
	checkBasicPart(t, doc, text)
}

func checkBasicPart(t *testing.T, doc map[string]any, all json.RawMessage) {
	t.Helper()
	words := map[string][]string{
		"object": {"properties", "required", "additionalProperties"}, "array": {"items"}, "string": {"enum"},
		"integer": {"minimum", "maximum"}, "number": {"minimum", "maximum"}, "boolean": {}, "": {"oneOf"},
	}
	kind, _ := doc["type"].(string)
	allowed, known := words[kind]
	for word := range doc {
		if !known || word != "type" && word != "description" && !slices.Contains(allowed, word) {
			t.Fatalf("%q of a part with the type %q in %s", word, kind, all)
		}
	}
	properties, _ := doc["properties"].(map[string]any)
	for _, p := range properties {
		checkBasicPart(t, p.(map[string]any), all)
	}
	if kind == "array" {
		checkBasicPart(t, doc["items"].(map[string]any), all)
	}
	options, _ := doc["oneOf"].([]any)
	if kind == "" && len(options) < 2 {
		t.Fatalf("a part without a type in %s", all)
	}
	for _, option := range options {
		checkBasicPart(t, option.(map[string]any), all)
	}
}

// FuzzBasic: whatever the schema of a device, its basic form has no other keywords, and
// coerced arguments are JSON.
func FuzzBasic(f *testing.F) {
	for _, test := range basicCases {
		f.Add(test.schema, `{"a":"5","n":5.0,"t":"21.5"}`)
	}
	f.Fuzz(func(t *testing.T, text, args string) {
		s, err := schema.Compile([]byte(text))
		if err != nil {
			return
		}
		checkBasic(t, schema.Basic(s.Portable()))
		if values, sent, err := schema.DecodeArgs([]byte(args)); err == nil {
			coerced := schema.Coerce(s.Text(), sent)
			if !json.Valid(coerced) {
				t.Fatalf("%s becomes %s", args, coerced)
			}
			if len(s.Check(values)) > 0 {
				return
			}
			again, _, err := schema.DecodeArgs(coerced)
			if err != nil || len(s.Check(again)) > 0 {
				t.Fatalf("valid arguments %s become %s, which are not: %v %v", args, coerced, err, s.Check(again))
			}
		}
	})
}

// TestCoerce: arguments get the type that the schema wants, unless that changes their meaning.
func TestCoerce(t *testing.T) {
	const doc = `{"type":"object","properties":{"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"s":{"type":"string"},"u":{"type":["integer","string"]},` +
		`"list":{"type":"array","items":{"type":"integer"}},"in":{"type":"object","properties":{"i":{"type":"integer"}}}}}`
	for args, want := range map[string]string{
		`{"i":"5"}`: `{"i":5}`, `{"i":5.0}`: `{"i":5}`, `{"i":"5.00"}`: `{"i":5}`, `{"i":"-3"}`: `{"i":-3}`,
		`{"i":"5.5"}`: `{"i":"5.5"}`, `{"i":"05"}`: `{"i":"05"}`, `{"i":"five"}`: `{"i":"five"}`, `{"i":""}`: `{"i":""}`, `{"i":" 5"}`: `{"i":" 5"}`, `{"i":"1e3"}`: `{"i":"1e3"}`,
		`{"n":"21.5"}`: `{"n":21.5}`, `{"n":21.0}`: `{"n":21.0}`, `{"b":"true"}`: `{"b":true}`, `{"b":"yes"}`: `{"b":"yes"}`, `{"b":1}`: `{"b":1}`,
		`{"s":"5"}`: `{"s":"5"}`, `{"u":"5"}`: `{"u":"5"}`, `{"x":"5"}`: `{"x":"5"}`,
		`{"list":["1",2.0]}`: `{"list":[1,2]}`, `{"in":{"i":"7"}}`: `{"in":{"i":7}}`, `[1]`: `[1]`, ``: ``,
	} {
		if got := schema.Coerce(json.RawMessage(doc), json.RawMessage(args)); string(got) != want {
			t.Errorf("%s becomes %s, want %s", args, got, want)
		}
	}
}

// converter converts each schema as Home Assistant does, and back for a model.
const converter = `
import json, sys
from voluptuous_openapi import convert, convert_to_voluptuous
for name, schema in json.load(sys.stdin).items():
    try:
        convert(convert_to_voluptuous(schema))["properties"]
    except Exception as err:
        print(f"{name}: {err!r}: {json.dumps(schema)}")
`

// TestHomeConverter: the converter of Home Assistant takes the basic form of all of these
// schemas. It needs no running Home Assistant, only its packages.
func TestHomeConverter(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_HOMEASSISTANT")
	if dir == "" {
		t.Skip("FERRULE_TEST_HOMEASSISTANT is not set: see internal/testenv/homeassistant")
	}
	portable, basic := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	for _, test := range basicCases {
		portable[test.name] = compile(t, test.schema).Portable()
		basic[test.name] = schema.Basic(portable[test.name])
	}
	run := func(schemas map[string]json.RawMessage) string {
		t.Helper()
		in, err := json.Marshal(schemas)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(dir, "bin", "python"), "-c", converter)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if failed := run(basic); failed != "" {
		t.Errorf("not converted:\n%s", failed)
	}
	if run(portable) == "" {
		t.Error("the converter takes every schema: the basic form is not needed any more")
	}
}
