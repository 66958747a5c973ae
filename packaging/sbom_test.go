package packaging_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSBOM checks that each SBOM is valid by the official CycloneDX schema, belongs to
// its program, and lists the modules that `go list` reports.
func TestSBOM(t *testing.T) {
	dist(t)
	schema := cyclonedx(t)
	for _, p := range platforms {
		t.Run(p.os+" "+p.arch, func(t *testing.T) {
			text := read(t, one(t, "ferrule_*_"+p.os+"_"+p.arch+".cdx.json"))
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(doc); err != nil {
				t.Error(err)
			}
			type component struct {
				Name, Version string
				Hashes        []struct{ Content string }
			}
			var bom struct {
				Metadata   struct{ Component component }
				Components []component
			}
			if err := json.Unmarshal([]byte(text), &bom); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(unpack(t, p.archive(t))[p.executable].data)
			if c := bom.Metadata.Component; c.Version != released(t) || c.Hashes[0].Content != hex.EncodeToString(sum[:]) {
				t.Errorf("the SBOM describes %+v", c)
			}
			var listed []string
			for _, c := range bom.Components {
				if c.Name != "std" {
					listed = append(listed, c.Name+" "+c.Version)
				}
			}
			slices.Sort(listed)
			if needed := modules(t, p); len(needed) < 5 || !slices.Equal(listed, needed) {
				t.Errorf("the SBOM lists\n%q\ngo list reports\n%q", listed, needed)
			}
		})
	}
}

// modules returns the modules that the program is built from, by `go list`.
func modules(t *testing.T, p platform) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./cmd/ferrule")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+strings.TrimSuffix(p.arch, "v7"), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
	slices.Sort(all)
	return slices.Compact(all)
}

// cyclonedx returns the CycloneDX schema from the folder FERRULE_CYCLONEDX.
func cyclonedx(t *testing.T) *jsonschema.Schema {
	t.Helper()
	const base = "http://cyclonedx.org/schema/"
	c := jsonschema.NewCompiler()
	for name, file := range map[string]string{
		"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		data, err := os.ReadFile(filepath.Join(os.Getenv("FERRULE_CYCLONEDX"), file))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(base+name, doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile(base + "bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
