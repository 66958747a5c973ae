package describe_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/describe"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// selectorCase is a selector, its schema, and values that it allows or refuses.
type selectorCase struct {
	Selector json.RawMessage   `json:"selector"`
	Schema   map[string]any    `json:"schema,omitempty"`
	Hidden   bool              `json:"hidden,omitempty"` // it is not offered
	Values   []json.RawMessage `json:"values,omitempty"`
	// Differs says why Home Assistant's own converter has another schema, and Stricter why it
	// allows values that we refuse.
	Differs  string `json:"differs,omitempty"`
	Stricter string `json:"stricter,omitempty"`
	// Since is the release that the selector appeared in, if it is later than that of the tests.
	Since string `json:"since,omitempty"`
}

func selectorCases(t testing.TB) (cases []selectorCase) {
	t.Helper()
	data, err := os.ReadFile("testdata/selectors.json")
	if err == nil {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil || len(cases) < 50 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

// plain returns a schema as JSON has it.
func plain(t *testing.T, schema map[string]any) map[string]any {
	t.Helper()
	data, err := json.Marshal(schema)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSelectors(t *testing.T) {
	for _, c := range selectorCases(t) {
		got, ok := describe.Schema(c.Selector)
		if ok == c.Hidden {
			t.Errorf("%s: offered is %t", c.Selector, ok)
		}
		if ok && !reflect.DeepEqual(plain(t, got), c.Schema) {
			t.Errorf("%s: got %v, want %v", c.Selector, got, c.Schema)
		}
	}
}

// TestHomeSelectors compares schemas with what Home Assistant's code makes of the selectors, and
// values that they allow with what it accepts.
func TestHomeSelectors(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_HOMEASSISTANT")
	if dir == "" {
		t.Skip("FERRULE_TEST_HOMEASSISTANT is not set: see internal/testenv/homeassistant")
	}
	var known []selectorCase
	offered := make(map[string]bool)
	for _, c := range selectorCases(t) {
		if c.Since == "" {
			known = append(known, c)
			var names map[string]any
			json.Unmarshal(c.Selector, &names)
			for name := range names {
				offered[name] = true
			}
		}
	}
	input, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	oracle := exec.Command(filepath.Join(dir, "bin", "python"), "testdata/oracle.py")
	oracle.Env = append(os.Environ(), "HOME="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	oracle.Stdin = bytes.NewReader(input)
	output, err := oracle.Output()
	var said struct {
		Types   []string
		Answers []struct {
			Schema   map[string]any
			Accepted []bool
		}
	}
	if err == nil {
		err = json.Unmarshal(output, &said)
	}
	if err != nil || len(said.Answers) != len(known) {
		t.Fatalf("%d of %d answers, %v", len(said.Answers), len(known), err)
	}
	for _, name := range said.Types {
		if !offered[name] {
			t.Errorf("the selector %s of this release is not tested", name)
		}
	}
	for i, c := range known {
		got, ok := describe.Schema(c.Selector)
		if !ok {
			continue
		}
		if ours, theirs := essence(plain(t, got)), essence(said.Answers[i].Schema); c.Differs == "" && !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s: got %v, Home Assistant says %v", c.Selector, ours, theirs)
		}
		for n, value := range c.Values {
			if ours, theirs := allows(t, got, value), said.Answers[i].Accepted[n]; ours != theirs && (ours || c.Stricter == "") {
				t.Errorf("%s: %s: allowed is %t, Home Assistant says %t", c.Selector, value, ours, theirs)
			}
		}
	}
}

// essence returns what both converters say about a value.
func essence(schema map[string]any) map[string]any {
	out := map[string]any{"type": schema["type"]}
	for _, key := range []string{"enum", "minimum", "maximum", "minItems"} {
		if schema[key] != nil {
			out[key] = schema[key]
		}
	}
	if value, ok := schema["const"]; ok {
		out["enum"] = []any{value}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		out["items"] = items["enum"]
	}
	if required, ok := schema["required"].([]any); ok && len(required) > 0 {
		out["required"] = required
	}
	return out
}

// allows reports whether a schema allows a value as an argument.
func allows(t *testing.T, of map[string]any, value json.RawMessage) bool {
	t.Helper()
	text, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"x": of}})
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := schema.Compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	args, _, err := schema.DecodeArgs([]byte(`{"x":` + string(value) + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return len(compiled.Check(args)) == 0
}

// FuzzSchema checks that whatever a selector says, its schema can be used.
func FuzzSchema(f *testing.F) {
	for _, c := range selectorCases(f) {
		f.Add([]byte(c.Selector))
	}
	f.Add([]byte(`{"object":{"fields":{"a":{"selector":{"object":{"fields":{"a":{"selector":{"object":{"fields":{"a":{}}}}}}}}}}}}`))
	f.Add([]byte(`{"number":{"min":1e308,"max":-1}}`))
	for _, hidden := range []string{`{"select":{"options":["day","\u200b"]}}`, `{"constant":{"value":"\u200b"}}`, `{"object":{"fields":{"\u200b":{}}}}`} {
		f.Add([]byte(hidden))
	}
	f.Fuzz(func(t *testing.T, selector []byte) {
		got, ok := describe.Schema(selector)
		if !ok {
			return
		}
		text, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"x": got}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := schema.Compile(text); err != nil && len(text) < 4096 {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
