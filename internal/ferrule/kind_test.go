package ferrule_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestKind compares testdata/kind: manifests, their common canonical form, and their
// Kind. Other implementations can be checked against these files.
func TestKind(t *testing.T) {
	files, err := filepath.Glob("testdata/kind/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	kinds := make(map[ferrule.Kind]string)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var canonical string
			var kind ferrule.Kind
			for _, f := range archive.Files {
				if !strings.HasPrefix(f.Name, "manifest") {
					continue
				}
				var m ferrule.Manifest
				if err := json.Unmarshal(f.Data, &m); err != nil {
					t.Fatalf("%s: %v", f.Name, err)
				}
				data, err := m.Canonical()
				if err != nil {
					t.Fatal(err)
				}
				k, err := m.Kind()
				if err != nil {
					t.Fatal(err)
				}
				if canonical != "" && (string(data) != canonical || k != kind) {
					t.Errorf("%s: %s\n%s", f.Name, k, data)
				}
				canonical, kind = string(data), k
			}
			if other, taken := kinds[kind]; taken {
				t.Errorf("it has the Kind of %s", other)
			}
			kinds[kind] = file
			expected := map[string]string{"canonical": canonical + "\n", "kind": string(kind) + "\n"}
			seen := 0
			for i, f := range archive.Files {
				got, known := expected[f.Name]
				if !known {
					continue
				}
				seen++
				if *update {
					archive.Files[i].Data = []byte(got)
				} else if string(f.Data) != got {
					t.Errorf("%s is\n%s", f.Name, got)
				}
			}
			if seen != len(expected) {
				t.Error("it must have one section canonical and one section kind")
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestKindIsComplete checks that manifests of one Kind are equal in all that a device
// can change: one of them is shared by all devices of the Kind.
func TestKindIsComplete(t *testing.T) {
	bounded := func(input, quarantine string) (ferrule.Manifest, ferrule.Kind) {
		m := ferrule.Manifest{Model: "lamp", Tools: []ferrule.Tool{{Name: "dim", Input: json.RawMessage(input), Quarantine: quarantine}}}
		m.Bound()
		kind, err := m.Kind()
		if err != nil {
			t.Fatal(err)
		}
		return m, kind
	}
	const usual = `{"properties":{"to":{"maximum":18446744073709551615,"minimum":0.5}},"type":"object"}`
	m, kind := bounded(usual, "")
	if got := string(m.Tools[0].Input); got != usual {
		t.Errorf("the schema became %s", got)
	}
	if _, other := bounded(usual, "it must be called as a task"); other == kind {
		t.Error("a tool in quarantine does not change the Kind")
	}
	_, one := bounded(usual, "no name")
	if _, other := bounded(usual, "another reason"); one != other {
		t.Error("the reason of a quarantine changes the Kind")
	}
	for _, input := range []string{
		strings.Replace(usual, "0.5", "0.5"+strings.Repeat("0", 100), 1),
		strings.Replace(usual, "0.5", "5E-1", 1),
		strings.Replace(usual, `"type":"object"`, `"type":"array","type":"\u006fbject"`, 1),
		strings.Replace(usual, `{`, `{ `, -1),
		usual + strings.Repeat(" ", ferrule.MaxSchema),
	} {
		if other, same := bounded(input, ""); same != kind || string(other.Tools[0].Input) != usual {
			t.Errorf("%s became %s with Kind %s", input, other.Tools[0].Input, same)
		}
	}
}

// TestCanonicalJSON checks the corner cases of RFC 8785.
func TestCanonicalJSON(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`{"b":1,"a":[true,false,null]}`, `{"a":[true,false,null],"b":1}`},
		{`[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]`, `[333333333.3333333,1e+30,4.5,0.002,1e-27]`},
		{`[0,-0,0.0,-1,1.0,10,100,1e2]`, `[0,0,0,-1,1,10,100,100]`},
		{`[1e21,1e20,1e-6,1e-7,123456789012345678901]`, `[1e+21,100000000000000000000,0.000001,1e-7,123456789012345680000]`},
		{`[1e400,-1e400]`, `[1e400,-1e400]`},
		{`"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/<>&\u2028"`, "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/<>&\u2028\""},
		{`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`, "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}"},
	} {
		got, err := ferrule.CanonicalJSON([]byte(test.in))
		if err != nil || string(got) != test.want {
			t.Errorf("%s\n got %s, %v\nwant %s", test.in, got, err, test.want)
		}
	}
	for _, bad := range []string{``, `{`, `{} {}`, `{}}`, `nul`} {
		if got, err := ferrule.CanonicalJSON([]byte(bad)); err == nil {
			t.Errorf("%q became %s", bad, got)
		}
	}
}

// addVectors gives a fuzz target the files of testdata/kind.
func addVectors(f *testing.F) {
	files, err := filepath.Glob("testdata/kind/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range archive.Files {
			f.Add(section.Data)
		}
	}
}

// FuzzCanonicalJSON checks that canonical JSON is a fixed point.
func FuzzCanonicalJSON(f *testing.F) {
	f.Add([]byte(`{"b":[1.50,-0,1e400,"\u001f\ud800"],"a":{"é":null}}`))
	f.Add([]byte(`[1e-7,1e21,123456789012345678901,0.1]`))
	addVectors(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := ferrule.CanonicalJSON(data)
		if err != nil {
			return
		}
		twice, err := ferrule.CanonicalJSON(once)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%s became %s, %v", once, twice, err)
		}
		if !json.Valid(once) {
			t.Fatalf("%s is not JSON", once)
		}
	})
}

// FuzzManifest checks that a bounded manifest can be hashed, stored and shown, and
// that bounding it again changes nothing.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"model":"m\u0007","tools":[{"name":"a","input":{"type":"object"}},{"name":"a"},{"name":""}],"pins":[{"number":1}]}`))
	f.Add([]byte(`{"tools":[{"name":"x","effect":"explodes","poll":"-1s","output":5}],"notes":["n"]}`))
	addVectors(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m ferrule.Manifest
		if json.Unmarshal(data, &m) != nil {
			return
		}
		m.Bound()
		kind, err := m.Kind()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var again ferrule.Manifest
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatal(err)
		}
		again.Bound()
		if k, err := again.Kind(); err != nil || k != kind {
			t.Errorf("%s became %s, %v", kind, k, err)
		}
		for _, tool := range m.Tools {
			if len(tool.Name) > ferrule.MaxToolName || len(tool.Text) > ferrule.MaxText || tool.Name == "" && tool.Quarantine == "" {
				t.Errorf("not bounded: %.100q", tool.Name)
			}
		}
	})
}
