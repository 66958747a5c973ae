package schema_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

var update = flag.Bool("update", false, "rewrite testdata")

func compile(t *testing.T, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func TestCheck(t *testing.T) {
	const gpio = `{"type":"object","properties":{"pin":{"type":"integer","enum":[2,4]},"value":{"type":"boolean"}},"required":["pin","value"]}`
	for _, test := range []struct{ schema, args, want string }{
		{gpio, `{"pin":2,"value":true}`, ``},
		{gpio, `{"pin":2.0,"value":true}`, ``},
		{gpio, `{"pin":2,"value":true,"more":1}`, ``},
		{gpio, `{"pin":"two","value":"maybe"}`, `pin must be an integer, got "two"; value must be true or false, got "maybe"`},
		{gpio, `{"pin":258,"value":1}`, `pin must be one of 2, 4, got 258; value must be true or false, got 1`},
		{gpio, ``, `pin is missing; value is missing`},
		{`{"properties":{"d":{"minimum":0,"maximum":255}},"additionalProperties":false}`, `{"d":256,"e":1}`, `d must be at most 255, got 256; e is unknown`},
		{`{"properties":{"d":{"minimum":0.5}}}`, `{"d":-1}`, `d must be at least 0.5, got -1`},
		{`{"properties":{"d":{"exclusiveMinimum":0,"exclusiveMaximum":9}}}`, `{"d":0}`, `d must be more than 0, got 0`},
		{`{"properties":{"d":{"exclusiveMinimum":0,"exclusiveMaximum":9}}}`, `{"d":9}`, `d must be less than 9, got 9`},
		{`{"properties":{"d":{"const":"on"}}}`, `{"d":"off"}`, `d must be "on", got "off"`},
		{`{"properties":{"d":{"enum":["on"]}}}`, `{"d":"off"}`, `d must be "on", got "off"`},
		{`{"properties":{"d":{"type":["string","null"]}}}`, `{"d":1}`, `d must be null or a string, got 1`},
		{`{"properties":{"d":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"d":1}`, `d has none of the allowed forms, got 1`},
		{`{"properties":{"a":{"items":{"type":"integer"}}}}`, `{"a":[1,"x",3]}`, `a.1 must be an integer, got "x"`},
		{`{"properties":{"a":{"properties":{"b":{}},"required":["b"]}}}`, `{"a":{}}`, `a.b is missing`},
		{`{"properties":{"s":{"maxLength":2}}}`, `{"s":"abc"}`, `s must have at most 2 characters, got "abc"`},
		{`{"properties":{"s":{"minLength":2}}}`, `{"s":"a"}`, `s must have at least 2 characters, got "a"`},
		{`{"properties":{"s":{"pattern":"^a$"}}}`, `{"s":"b"}`, `s must match "^a$", got "b"`},
		{`{"properties":{"s":{"minItems":1,"maxItems":1}}}`, `{"s":[]}`, `s must have at least 1 elements, got 0`},
		{`{"properties":{"s":{"minItems":1,"maxItems":1}}}`, `{"s":[1,2]}`, `s must have at most 1 elements, got 2`},
		{`{"properties":{"n":{"const":null}}}`, `{"n":1}`, `n must be null, got 1`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"p":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/p","maxLength":1}}}`, `{"a":"xx"}`, ``},
		{`{"$defs":{"p":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/p","maxLength":1}}}`, `{"a":"xx"}`, `a must have at most 1 characters, got "xx"`},
		{`{"required":["x"],"minProperties":2}`, `{}`, `minProperties: got 0, want 2; x is missing`},
	} {
		args, _, err := schema.DecodeArgs([]byte(test.args))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(compile(t, test.schema).Check(args), "; "); got != test.want {
			t.Errorf("%s\n of %s\n got %s\nwant %s", test.args, test.schema, got, test.want)
		}
	}
}

func TestMaxViolations(t *testing.T) {
	args := make(map[string]any)
	for i := range 1000 {
		args[strings.Repeat("x", i+1)] = 1
	}
	if got := compile(t, `{"additionalProperties":false}`).Check(args); len(got) != 20 || got[19] != "and 981 more" {
		t.Errorf("%d violations, the last %q", len(got), got[len(got)-1])
	}
}

// TestMaxChecks checks that a schema and arguments made for each other are not
// expensive.
func TestMaxChecks(t *testing.T) {
	s := compile(t, `{"properties":{"a":{"items":{"allOf":[`+strings.Repeat(`{"type":"string"},`, 1000)+`{}]}}}}`)
	args, _, err := schema.DecodeArgs([]byte(`{"a":[` + strings.Repeat("1,", 1000) + `1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Check(args); len(got) != 1 || !strings.HasPrefix(got[0], "too large to check") {
		t.Errorf("got %d violations, the first %q", len(got), got[0])
	}
}

// invalidSchema is a schema that does not compile, and the error.
type invalidSchema struct{ name, schema, want string }

func invalidSchemas() []invalidSchema {
	deep := strings.Repeat(`{"properties":{"a":`, 40) + "{}" + strings.Repeat("}}", 40)
	wide := `{"properties":{` + strings.TrimSuffix(strings.Repeat(`"a":{},`, 10), ",") + `},"enum":[` + strings.Repeat("1,", 5000) + "1]}"
	bomb := `{"$defs":{"a":{}`
	for c := 'b'; c <= 'n'; c++ {
		bomb += `,"` + string(c) + `":{"anyOf":[{"$ref":"#/$defs/` + string(c-1) + `"},{"$ref":"#/$defs/` + string(c-1) + `"}]}`
	}
	bomb += `},"properties":{"x":{"$ref":"#/$defs/n"}}}`
	return []invalidSchema{
		{"nothing", ``, "not JSON"},
		{"no JSON", `{"type":`, "not JSON"},
		{"two values", `{} {}`, "unexpected data after the value"},
		{"null", `null`, "must be an object, got null"},
		{"true", `true`, "must be an object, got a boolean"},
		{"a list", `[]`, "must be an object, got an array"},
		{"another type", `{"type":"string"}`, `type must be object, got "string"`},
		{"other types", `{"type":["string","null"]}`, "type must be object"},
		{"a bad type", `{"properties":{"a":{"type":"int"}}}`, "not a JSON Schema: properties.a.type:"},
		{"properties that are none", `{"type":"object","properties":5,"required":"x"}`, "not a JSON Schema"},
		{"a bad pattern", `{"properties":{"a":{"pattern":"("}}}`, "invalid pattern"},
		{"draft 4 without saying so", `{"properties":{"a":{"exclusiveMinimum":true}}}`, "not a JSON Schema"},
		{"itself", `{"properties":{"a":{"$ref":"#"}}}`, "refers to itself"},
		{"a loop", `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, "refers to itself"},
		{"a tree", `{"$defs":{"n":{"properties":{"l":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}`, "refers to itself"},
		{"outside", `{"properties":{"a":{"$ref":"http://127.0.0.1/x.json"}}}`, "refers to another document"},
		{"a file", `{"$ref":"file:///etc/passwd"}`, "refers to another document"},
		{"an anchor", `{"$defs":{"a":{"$anchor":"x"}},"$ref":"#x"}`, "refers to another document"},
		{"nowhere", `{"$ref":"#/$defs/none"}`, "not found"},
		{"a dynamic reference", `{"$dynamicRef":"#a"}`, "$dynamicRef is not supported"},
		{"a reference that is none", `{"$ref":5}`, "$ref must be a string"},
		{"too deep", deep, "nested too deeply"},
		{"too wide", wide, "more than 4096 parts"},
		{"too large", `{"description":"` + strings.Repeat("x", 70<<10) + `"}`, "limit is 65536"},
		{"a bomb", bomb, "more than 4096 parts"},
		{"a huge number", `{"properties":{"a":{"maximum":1e1000000000}}}`, "out of range"},
		{"a tiny number", `{"properties":{"a":{"multipleOf":1e-1000000000}}}`, "out of range"},
		{"many patterns", `{"allOf":[` + strings.Repeat(`{"pattern":"abcdefgh"},`, 500) + `{}]}`, "patterns are too large"},
		{"a long pattern", `{"properties":{"a":{"pattern":"` + strings.Repeat("a", 5000) + `"}}}`, "patterns are too large"},
		{"a pattern that is larger than it looks", `{"properties":{"a":{"pattern":"(?:` + strings.Repeat("a", 500) + `){1000}"}}}`, "patterns are too large"},
		{"such names", `{"patternProperties":{"(?:` + strings.Repeat("a", 500) + `){1000}":{}}}`, "patterns are too large"},
		{"a pattern that explodes", `{"properties":{"a":{"pattern":"((a{1,1000}){1,1000}){1,1000}"}}}`, "invalid pattern"},
		{"true by reference", `{"$ref":"#/$defs/a","$defs":{"a":true}}`, "must be an object, got a boolean"},
		{"null by reference", `{"$ref":"#/$defs/a","$defs":{"a":null}}`, "must be an object, got null"},
		{"a number by reference", `{"$ref":"#/$defs/a","$defs":{"a":5}}`, "must be an object, got a number"},
		{"a value by many references", `{"$defs":{"a":{"enum":["` + strings.Repeat("x", 30000) + `"]}},"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/a"},`, 100) + `{}]}`, "parts or 131072 bytes"},
		{"deep by reference", `{"$defs":{"a":` + strings.Repeat(`{"items":`, 20) + `{}` + strings.Repeat(`}`, 20) + `,"b":` + strings.Repeat(`{"items":`, 20) + `{"$ref":"#/$defs/a"}` + strings.Repeat(`}`, 20) + `},"properties":{"x":{"$ref":"#/$defs/b"}}}`, "is nested too deeply"},
		{"a name with a bell", `{"properties":{"a\u0007":{}}}`, "invisible characters"},
	}
}

func TestCompileInvalid(t *testing.T) {
	longest := time.Duration(0)
	for _, test := range invalidSchemas() {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			_, err := schema.Compile([]byte(test.schema))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			longest = max(longest, time.Since(start))
		})
	}
	figure.AtMost(t, "compiling an invalid schema", longest, 10*time.Second)
}

// TestLetterCase: an argument that differs from another one, or from a declared one, only in
// the case of letters is refused. Many devices decode it as that one.
func TestLetterCase(t *testing.T) {
	s, err := schema.Compile([]byte(`{"type":"object","properties":{"level":{"type":"integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		`{"level":10}`:               "",
		`{"other":10}`:               "",
		`{"LEVEL":99}`:               "[LEVEL must be written level]",
		`{"other":1,"\u004cevel":9}`: "[Level must be written level]",
		`{"level":10,"Level":99}`:    `has "level" in upper and lower case`,
	} {
		decoded, _, err := schema.DecodeArgs([]byte(args))
		got := ""
		if err != nil {
			got = err.Error()
		} else if found := s.Check(decoded); found != nil {
			got = fmt.Sprint(found)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

func TestDecodeArgs(t *testing.T) {
	for _, test := range []struct{ args, want, err string }{
		{``, `{}`, ``},
		{` {} `, ` {} `, ``},
		{`{"b":18446744073709551615,"a":"<&>:\\\":"}`, `{"b":18446744073709551615,"a":"<&>:\\\":"}`, ``},
		{`{"b":1,"a":"<&>","b":2}`, `{"a":"<&>","b":2}`, ``},
		{`{"a":[{"b":1,"\u0062":2}]}`, `{"a":[{"b":2}]}`, ``},
		{`[1]`, ``, `must be an object, got [1]`},
		{`null`, ``, `must be an object, got null`},
		{`{"a":1`, ``, `not JSON`},
		{`{"a":1e999999999}`, ``, `out of range`},
		{strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100), ``, `nested too deeply`},
		{`{"a":"` + strings.Repeat("x", 70<<10) + `"}`, ``, `limit is 65536`},
	} {
		_, text, err := schema.DecodeArgs([]byte(test.args))
		switch {
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%.80s: got error %v, want %q", test.args, err, test.err)
		case test.err == "" && (err != nil || string(text) != test.want):
			t.Errorf("%.80s: got %s, %v, want %s", test.args, text, err, test.want)
		}
	}
}

// FuzzObject checks that the text for the device means what was checked, whether
// its parser takes the first or the last of two members with the same name.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"a":1,"a":2,"b":[{"c":"\":","c":1}]}`))
	f.Add([]byte(`{"\u0061":1,"a":2}`))
	f.Fuzz(func(t *testing.T, args []byte) {
		object, text, err := schema.DecodeArgs(args)
		if err != nil {
			return
		}
		again, same, err := schema.DecodeArgs(text)
		if err != nil || string(same) != string(text) {
			t.Fatalf("%s became %s, %v", text, same, err)
		}
		if !reflect.DeepEqual(object, again) {
			t.Errorf("%s was read as %v and as %v", args, object, again)
		}
		seen := make(map[string]bool)
		dec := json.NewDecoder(bytes.NewReader(text))
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			if seen[name.(string)] {
				t.Errorf("%s has %s twice", text, name)
			}
			seen[name.(string)] = true
			var skip json.RawMessage
			if err := dec.Decode(&skip); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestPortable compares schemas in testdata/portable with their portable form.
func TestPortable(t *testing.T) {
	files, err := filepath.Glob("testdata/portable/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var shown any
			if err := json.Unmarshal(compile(t, string(archive.Files[0].Data)).Portable(), &shown); err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(shown, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			if *update {
				archive.Files[1].Data = got
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if string(got) != string(archive.Files[1].Data) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestFor(t *testing.T) {
	type input struct {
		Pin   int    `json:"pin" jsonschema:"number of the pin"`
		Label string `json:"label,omitempty"`
	}
	raw, err := schema.For[input]()
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, string(raw))
	if got := strings.Join(s.Check(map[string]any{"label": json.Number("1"), "x": true}), "; "); got != `label must be a string, got 1; pin is missing; x is unknown` {
		t.Errorf("got %s", got)
	}
}

// FuzzCompile compiles hostile schemas and checks hostile arguments. The portable
// form of what compiles must compile to itself.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"pin":{"type":"integer"}},"required":["pin"]}`,
		`{"type":"object","required":[],"properties":{}}`,
		`{"$defs":{"a":{"type":["integer","null"]}},"properties":{"x":{"$ref":"#/$defs/a","description":"d"}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"a":{"minimum":1,"exclusiveMinimum":true}}}`,
		`{"anyOf":[true,false,{"not":{}}],"properties":{"a":true,"b":false},"x-mcp-header":"X"}`,
		`{"properties":{"a":{"$ref":"#/properties/a"}}}`,
		`{"type":"object","properties":5,"required":"x"}`,
		`{"patternProperties":{"^a":{"items":[{}]}},"dependencies":{"a":["b"]}}`,
	} {
		f.Add([]byte(s), []byte(`{"pin":"two","x":null,"a":[1]}`))
	}
	for _, test := range invalidSchemas() {
		if len(test.schema) < 1000 {
			f.Add([]byte(test.schema), []byte(`{}`))
		}
	}
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		s, err := schema.Compile(raw)
		if err != nil {
			return
		}
		again, err := schema.Compile(s.Portable())
		if err != nil {
			t.Fatalf("what is shown does not compile: %v\n%s", err, s.Portable())
		}
		if string(again.Portable()) != string(s.Portable()) {
			t.Errorf("shown twice:\n%s\n%s", s.Portable(), again.Portable())
		}
		if object, _, err := schema.DecodeArgs(args); err == nil {
			s.Check(object)
		}
	})
}
