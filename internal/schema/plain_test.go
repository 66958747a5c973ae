package schema

import (
	"encoding/json"
	"testing"
)

// TestPlain checks which schemas take the fast path.
func TestPlain(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"type":"object","properties":{"pin":{"type":"integer","enum":[2,4]},"value":{"type":"boolean"}},"required":["pin"]}`: true,
		`{"properties":{"duty":{"type":"integer","minimum":0,"maximum":255,"description":"d"},"s":{"type":"string"}}}`:         true,
		`{"properties":{},"additionalProperties":false}`:                                                                       true,
		`{"properties":{"a":{"type":"number"}}}`:                                                                               false,
		`{"properties":{"a":{}}}`:                                                                                              false,
		`{"properties":{"a":true}}`:                                                                                            false,
		`{"properties":{"a":{"type":["integer","null"]}}}`:                                                                     false,
		`{"properties":{"a":{"type":"integer","enum":[1.0]}}}`:                                                                 false,
		`{"properties":{"a":{"type":"integer","minimum":0.5}}}`:                                                                false,
		`{"properties":{"a":{"type":"string","maxLength":3}}}`:                                                                 false,
		`{"properties":{"a":{"type":"string","enum":["x"]}}}`:                                                                  false,
		`{"additionalProperties":{"type":"integer"}}`:                                                                          false,
		`{"anyOf":[{"required":["a"]}]}`:                                                                                       false,
		`{"properties":{"a":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"integer"}}}`:                                           true,
	} {
		s, err := Compile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.checker().plain != nil; got != plain {
			t.Errorf("%s: plain is %t", text, got)
		}
	}
}

// FuzzPlain checks that an accepted schema compiles, and that the library accepts what
// the fast path accepts.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"pin":{"type":"integer","enum":[2,-4]},"value":{"type":"boolean"}},"required":["pin"]}`,
		`{"properties":{"pin":{"type":"integer","minimum":-1,"maximum":255}},"additionalProperties":false}`,
		`{"properties":{"pin":{"type":"string"}}}`,
	} {
		for _, args := range []string{`{"pin":2,"value":true}`, `{"pin":-0}`, `{"pin":2.0}`, `{"pin":"x"}`, `{"pin":99999999999999999999}`, `{}`} {
			f.Add([]byte(s), []byte(args))
		}
	}
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		s, err := Compile(raw)
		if err != nil {
			return
		}
		c := s.checker()
		if c.err != nil {
			t.Fatalf("%s is accepted but does not compile: %v", raw, c.err)
		}
		object, _, err := DecodeArgs(args)
		if err != nil || c.plain == nil || !c.plain.accepts(object) {
			return
		}
		if err := c.compiled.Validate(object); err != nil {
			shown, _ := json.Marshal(object)
			t.Errorf("%s fits %s, and the library says %v", shown, raw, err)
		}
	})
}
