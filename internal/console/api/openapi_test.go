package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/schema"
)

var update = flag.Bool("update", false, "rewrite docs/reference/openapi.json")

// golden is the description in the documentation.
const golden = "../../../docs/reference/openapi.json"

// described returns the description of the API.
func described(t *testing.T) []byte {
	t.Helper()
	a, err := New(Parts{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(a.OpenAPI()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestOpenAPI checks that the documentation has the description of the API as it is, and
// that the description is the same each time.
func TestOpenAPI(t *testing.T) {
	got := described(t)
	if again := described(t); !bytes.Equal(got, again) {
		t.Error("two descriptions differ")
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/reference/openapi.json is not current, %v; run go test ./internal/console/api -run TestOpenAPI -update", err)
	}
}

// TestOperations checks what people and programs need to know of each operation.
func TestOperations(t *testing.T) {
	a, err := New(Parts{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a.all = append(a.all, testAPI(t).all...)
	sentence := regexp.MustCompile(`^[A-Z][^\n]*[.]$`)
	path := regexp.MustCompile(`^(/([a-z][a-z0-9_-]*|\{[a-z_]+\}))+$`)
	ids := make(map[string]bool)
	for _, o := range a.all {
		name := o.Method + " " + o.Path
		if !sentence.MatchString(o.Summary) || len(o.Summary) > 200 {
			t.Errorf("%s: the summary must be a sentence, got %q", name, o.Summary)
		}
		if !path.MatchString(o.Path) {
			t.Errorf("%s: the path must have plain words", name)
		}
		if ids[o.id()] {
			t.Errorf("%s: the id %s is not unique", name, o.id())
		}
		ids[o.id()] = true
		if err := o.schemas().err; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for kind, text := range map[string]json.RawMessage{"input": o.schemas().input, "output": o.schemas().output} {
			if s, err := schema.CompileOutput(text); err != nil || !bytes.Contains(s.Text(), []byte(`"object"`)) {
				t.Errorf("%s: the %s must be an object: %v %s", name, kind, err, text)
			}
		}
		for property, text := range o.schemas().takes.Properties {
			if _, words := withoutDescription(text); words == "" && !strings.HasPrefix(o.Path, "/things/") {
				t.Errorf("%s: %s needs a description", name, property)
			}
		}
		d := o.describe()
		for _, p := range d["parameters"].([]any) {
			if p := p.(map[string]any); p["in"] == "path" != strings.Contains(o.Path, "{"+p["name"].(string)+"}") || p["in"] == "path" && p["required"] != true {
				t.Errorf("%s: parameter %v", name, p)
			}
		}
	}
}

// TestOpenAPIValid checks the description with a validator of others.
func TestOpenAPIValid(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_CHECKERS")
	if dir == "" {
		t.Skip("FERRULE_TEST_CHECKERS is not set: see internal/testenv/browser")
	}
	for name, a := range map[string][]byte{"ours": described(t), "tests": func() []byte {
		data, err := json.Marshal(testAPI(t).OpenAPI())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}()} {
		file := filepath.Join(t.TempDir(), "openapi.json")
		if err := os.WriteFile(file, a, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("node", filepath.Join(dir, "node_modules/@seriousme/openapi-schema-validator/bin/validate-api-cli.js"), file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
