package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/schema"
)

// TestOutput checks that what matches the schema of an answer matches its portable
// form, since clients check answers against it.
func TestOutput(t *testing.T) {
	for name, test := range map[string]struct {
		schema, portable string
		valid, invalid   string
	}{
		"an object": {
			`{"type":"object","properties":{"value":{"type":"integer"}},"required":["value"]}`,
			`{"properties":{"value":{"type":"integer"}},"required":["value"],"type":"object"}`,
			`{"value":1}`, `{"value":"x"}`,
		},
		"several types": {
			`{"type":"object","properties":{"value":{"type":["integer","null"]},"list":{"type":"array","items":{"type":["string","null"]}}}}`,
			`{"properties":{"list":{"items":{},"type":"array"},"value":{}},"type":"object"}`,
			`{"value":null,"list":[null]}`, `{"value":true}`,
		},
		"properties by pattern": {
			`{"type":"object","patternProperties":{"^pin":{"type":"integer"}},"additionalProperties":false}`,
			`{"properties":{},"type":"object"}`,
			`{"pin2":1}`, `{"other":1}`,
		},
		"either": {
			`{"type":"object","properties":{"v":{"anyOf":[{"type":["integer","null"]},{"type":"string"}]}}}`,
			`{"properties":{"v":{"anyOf":[{},{"type":"string"}]}},"type":"object"}`,
			`{"v":null}`, `{"v":true}`,
		},
		"one of": {
			`{"type":"object","properties":{"v":{"oneOf":[{"type":["integer","null"]},{"type":"string","format":"date"}]}}}`,
			`{"properties":{"v":{"anyOf":[{},{"type":"string"}]}},"type":"object"}`,
			`{"v":"x"}`, `{"v":true}`,
		},
		"first items": {
			`{"type":"object","properties":{"v":{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"}}}}`,
			`{"properties":{"v":{"type":"array"}},"type":"object"}`,
			`{"v":["x",1]}`, `{"v":[1]}`,
		},
		"a list": {`{"type":"array","items":{"type":"integer"}}`, ``, `[1,2]`, `["x"]`},
		"a word": {`{"type":"string"}`, ``, `"x"`, `1`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := schema.CompileOutput([]byte(test.schema))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(s.Portable()); got != test.portable {
				t.Errorf("portable is %s, want %s", got, test.portable)
			}
			if wrong := s.CheckOutput([]byte(test.valid)); wrong != nil {
				t.Errorf("%s is rejected: %q", test.valid, wrong)
			}
			if wrong := s.CheckOutput([]byte(test.invalid)); wrong == nil {
				t.Errorf("%s is accepted", test.invalid)
			}
			if test.portable == "" {
				return
			}
			shown, err := schema.CompileOutput(json.RawMessage(test.portable))
			if err != nil {
				t.Fatal(err)
			}
			if wrong := shown.CheckOutput([]byte(test.valid)); wrong != nil {
				t.Errorf("a client refuses %s: %q", test.valid, wrong)
			}
		})
	}
	s, err := schema.CompileOutput([]byte(`{"type":"object"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{"", "{", `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", `"` + strings.Repeat("x", schema.MaxOutput) + `"`} {
		if wrong := s.CheckOutput([]byte(answer)); wrong == nil {
			t.Errorf("%.20s is accepted", answer)
		}
	}
	for _, bad := range []string{"true", "null", `{"type":"object","properties":5}`, `{"$ref":"#"}`} {
		if _, err := schema.CompileOutput([]byte(bad)); err == nil {
			t.Errorf("%s compiles", bad)
		}
	}
}

// FuzzAnswer checks that what matches a schema also matches its portable form.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"value":{"type":["integer","null"]}}}`), []byte(`{"value":null}`))
	f.Add([]byte(`{"type":"object","patternProperties":{"^p":{}},"additionalProperties":false}`), []byte(`{"p":1}`))
	f.Add([]byte(`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"v":{"minimum":1,"exclusiveMinimum":true}}}`), []byte(`{"v":2}`))
	f.Add([]byte(`{"type":"object","properties":{"v":{"oneOf":[{"type":["integer","null"]},{"type":"string"}]}}}`), []byte(`{"v":"x"}`))
	f.Add([]byte(`{"type":"object","properties":{"v":{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}}}`), []byte(`{"v":["x",1]}`))
	f.Add([]byte(`{"type":"object","properties":{"a":true,"b":false},"additionalProperties":{"type":["string","null"]}}`), []byte(`{"a":1,"c":null}`))
	f.Fuzz(func(t *testing.T, raw, answer []byte) {
		s, err := schema.CompileOutput(raw)
		if err != nil || len(s.CheckOutput(answer)) > 0 || s.Portable() == nil {
			return
		}
		shown, err := schema.CompileOutput(s.Portable())
		if err != nil {
			t.Fatalf("%s became %s: %v", raw, s.Portable(), err)
		}
		if wrong := shown.CheckOutput(answer); wrong != nil {
			t.Errorf("%s matches %s but not %s: %q", answer, raw, s.Portable(), wrong)
		}
	})
}
