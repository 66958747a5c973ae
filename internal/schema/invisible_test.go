package schema_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// TestInvisible checks that no text of a schema reaches an agent with a character that
// people do not see. Where the text matters to the device, the schema is invalid.
func TestInvisible(t *testing.T) {
	var all []rune
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !ferrule.Visible(string(r)) && !unicode.Is(unicode.Co, r) {
			all = append(all, r)
		}
	}
	all = append(all, 0xe000) // one for all of private use
	if len(all) < 4000 {
		t.Fatalf("only %d characters", len(all))
	}
	const harmless, harmful = true, false
	for template, compiles := range map[string]bool{
		`{"title":"X"}`:                                    harmless,
		`{"description":"X"}`:                              harmless,
		`{"default":{"a":"X"}}`:                            harmless,
		`{"properties":{"a":{"default":"X"}}}`:             harmless,
		`{"properties":{"a":{"default":{"X":1}}}}`:         harmless,
		`{"properties":{"a":{"examples":["X"]}}}`:          harmless,
		`{"properties":{"a":{"title":"X"}}}`:               harmless,
		`{"properties":{"a":{"description":"X"}}}`:         harmless,
		`{"$comment":"X","x-note":{"X":"X"}}`:              harmless,
		`{"$defs":{"X":{"enum":["X"]}}}`:                   harmless,
		`{"properties":{"a":{"enum":["X"]}}}`:              harmful,
		`{"properties":{"a":{"enum":[{"X":1}]}}}`:          harmful,
		`{"properties":{"a":{"enum":[["X"]]}}}`:            harmful,
		`{"properties":{"a":{"const":"X"}}}`:               harmful,
		`{"properties":{"a":{"const":{"a":["X"]}}}}`:       harmful,
		`{"properties":{"a":{"pattern":"X"}}}`:             harmful,
		`{"properties":{"a":{"format":"X"}}}`:              harmful,
		`{"properties":{"a":{"type":"X"}}}`:                harmful,
		`{"properties":{"X":{}}}`:                          harmful,
		`{"properties":{"a":{"properties":{"X":{}}}}}`:     harmful,
		`{"properties":{"a":{"items":{"enum":["X"]}}}}`:    harmful,
		`{"patternProperties":{"X":{}}}`:                   harmful,
		`{"dependentSchemas":{"X":{}}}`:                    harmful,
		`{"dependentRequired":{"X":["a"]}}`:                harmful,
		`{"dependentRequired":{"a":["X"]}}`:                harmful,
		`{"required":["X"]}`:                               harmful,
		`{"$ref":"#/$defs/a","$defs":{"a":{"const":"X"}}}`: harmful,
		`{"$ref":"#/$defs/X"}`:                             harmful,
	} {
		chunk := 8
		if compiles {
			chunk = 100 // compiling takes longer than refusing
		}
		for from := 0; from < len(all); from += chunk {
			text := ferrule.AppendString(nil, "a"+string(all[from:min(from+chunk, len(all))]))
			raw := []byte(strings.ReplaceAll(template, "X", string(text[1:len(text)-1])))
			for name, compile := range map[string]func([]byte) (*schema.Schema, error){"input": schema.Compile, "output": schema.CompileOutput} {
				s, err := compile(raw)
				switch {
				case err != nil && (compiles || !ferrule.Visible(err.Error())):
					t.Fatalf("%s %q: %q", name, raw, err)
				case err == nil && !compiles:
					t.Fatalf("%s %q compiles", name, raw)
				case err == nil && !bytes.Equal(s.Portable(), ferrule.CleanJSON(s.Portable())):
					t.Fatalf("%s %q became %q", name, raw, s.Portable())
				}
			}
		}
	}
}

// TestInvisibleViolation checks that a message does not quote what people do not see.
func TestInvisibleViolation(t *testing.T) {
	s, err := schema.CompileOutput([]byte(`{"properties":{"v":{"type":"integer"}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range s.CheckOutput(json.RawMessage(`{"v":"\u200b\ud83d\ude00","\udb40\udc41\u3164":1}`)) {
		if !ferrule.Visible(wrong) {
			t.Errorf("got %q", wrong)
		}
	}
}
