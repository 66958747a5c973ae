package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// slow is a pattern that needs ten microseconds for each byte of a text.
const slow = `(?:a?){1000}b`

// TestPatternWork checks that the size of patterns times the length of texts is
// limited, wherever in a schema the pattern stands.
func TestPatternWork(t *testing.T) {
	long := strings.Repeat("a", 100<<10)
	text, list, named := `{"v":"`+long+`"}`, `{"v":["x","`+long+`"]}`, `{"`+long+`":1}`
	const there = `{"pattern":"` + slow + `"}`
	longest := time.Duration(0)
	for _, test := range []struct{ schema, answer string }{
		{`{"properties":{"v":` + there + `}}`, text},
		{`{"additionalProperties":` + there + `}`, text},
		{`{"unevaluatedProperties":` + there + `}`, text},
		{`{"patternProperties":{"v":` + there + `}}`, text},
		{`{"patternProperties":{"` + slow + `":{}}}`, named},
		{`{"propertyNames":` + there + `}`, named},
		{`{"properties":{"v":{"not":` + there + `}}}`, text},
		{`{"properties":{"v":{"if":` + there + `}}}`, text},
		{`{"properties":{"v":{"if":{},"then":` + there + `}}}`, text},
		{`{"properties":{"v":{"if":false,"else":` + there + `}}}`, text},
		{`{"properties":{"v":{"allOf":[` + there + `]}}}`, text},
		{`{"properties":{"v":{"anyOf":[{"type":"null"},` + there + `]}}}`, text},
		{`{"properties":{"v":{"oneOf":[{"type":"null"},` + there + `]}}}`, text},
		{`{"properties":{"v":{"items":` + there + `}}}`, list},
		{`{"properties":{"v":{"prefixItems":[{},` + there + `]}}}`, list},
		{`{"properties":{"v":{"contains":` + there + `}}}`, list},
		{`{"properties":{"v":{"unevaluatedItems":` + there + `}}}`, list},
		{`{"dependentSchemas":{"v":{"properties":{"v":` + there + `}}}}`, text},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"v":{"properties":{"v":` + there + `}}}}`, text},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"v":{"items":[{},` + there + `]}}}`, list},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"v":{"items":[{}],"additionalItems":` + there + `}}}`, list},
		{`{"$defs":{"p":` + there + `},"properties":{"v":{"$ref":"#/$defs/p"}}}`, text},
		{`{"properties":{"v":{"anyOf":[` + strings.Repeat(`{"minLength":2000000},`, 2000) + `{}]}}}`, text}, // each counts characters
	} {
		s, err := schema.CompileOutput([]byte(test.schema))
		if err != nil {
			t.Fatalf("%.200s: %v", test.schema, err)
		}
		start := time.Now()
		wrong := fmt.Sprint(s.CheckOutput(json.RawMessage(test.answer)))
		longest = max(longest, time.Since(start))
		if !strings.Contains(wrong, "too large to check") {
			t.Errorf("%.200s: got %.200s", test.schema, wrong)
		}
	}
	figure.AtMost(t, "refusing an answer with much work", longest, 5*time.Second)
	input, err := schema.Compile([]byte(`{"properties":{"v":` + there + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	if wrong := fmt.Sprint(input.Check(map[string]any{"v": long[:60<<10]})); !strings.Contains(wrong, "too large to check") {
		t.Errorf("arguments: %.200s", wrong)
	}
}

// TestPatternNextToText checks that a long text does not matter to a pattern that
// does not apply to it.
func TestPatternNextToText(t *testing.T) {
	const id = `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	s, err := schema.CompileOutput([]byte(`{"properties":{"id":{"pattern":"` + id + `"},"log":{"type":"string","minLength":1},"all":{"items":{"pattern":"` + id + `"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	const one = "01234567-89ab-cdef-0123-456789abcdef"
	all := strings.Repeat(`"`+one+`",`, 999) + `"` + one + `"`
	answer := fmt.Sprintf(`{"id":%q,"log":"%s","all":[%s]}`, one, strings.Repeat("line ", 150<<10), all)
	if wrong := s.CheckOutput([]byte(answer)); wrong != nil {
		t.Errorf("got %.300q", wrong)
	}
	if wrong := s.CheckOutput([]byte(strings.Replace(answer, one, "x", 1))); len(wrong) != 1 || !strings.Contains(wrong[0], "id must match") {
		t.Errorf("got %.300q", wrong)
	}
}

// TestRegexFormat checks that a text of the format regex, which old drafts check by
// compiling it, has the limits of a pattern.
func TestRegexFormat(t *testing.T) {
	s, err := schema.CompileOutput([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"v":{"format":"regex"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	longest := time.Duration(0)
	for text, ok := range map[string]bool{"a+": true, "(": false, strings.Repeat("x{1000}", 100): false, strings.Repeat("a.", 100<<10): false} {
		start := time.Now()
		wrong := s.CheckOutput(json.RawMessage(`{"v":"` + text + `"}`))
		longest = max(longest, time.Since(start))
		if (wrong == nil) != ok {
			t.Errorf("%.40s: got %.200q", text, wrong)
		}
	}
	figure.AtMost(t, "checking a text of the format regex", longest, 5*time.Second)
}

// TestOutputPattern checks that clients do not match the answers of a device against
// its patterns.
func TestOutputPattern(t *testing.T) {
	s, err := schema.CompileOutput([]byte(`{"type":"object","properties":{"v":{"type":"string","pattern":"^(a+)+$"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Portable()); got != `{"properties":{"v":{"type":"string"}},"type":"object"}` {
		t.Errorf("got %s", got)
	}
}
