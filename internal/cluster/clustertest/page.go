package clustertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// PagePath is the reference page of subjects, buckets and streams, from the root of the
// module.
const PagePath = "docs/reference/cluster.md"

// Page is the text of the reference page.
type Page struct {
	t     *testing.T
	text  string
	words string // with single spaces
}

// OpenPage reads the page.
func OpenPage(t *testing.T) Page {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("the test does not run inside the module")
		}
		dir = up
	}
	data, err := os.ReadFile(filepath.Join(dir, PagePath))
	if err != nil {
		t.Fatal(err)
	}
	return Page{t, string(data), strings.Join(strings.Fields(string(data)), " ")}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Says checks that the page contains texts.
func (p Page) Says(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.words, text) {
			p.t.Errorf("%s does not contain %s", PagePath, text)
		}
	}
}

// Names checks that the page contains names, formatted as code.
func (p Page) Names(names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.Says("`" + name + "`")
	}
}

// Shows checks that the page has examples, as nodes write them, on lines of their own.
func (p Page) Shows(examples ...any) {
	p.t.Helper()
	for _, example := range examples {
		text, err := json.Marshal(example)
		if err != nil {
			p.t.Fatal(err)
		}
		if !strings.Contains(p.text, "\n"+string(text)+"\n") {
			p.t.Errorf("%s does not show\n%s", PagePath, text)
		}
	}
}

// Explains checks that the page mentions every JSON field of structs.
func (p Page) Explains(structs ...any) {
	p.t.Helper()
	for _, s := range structs {
		for field := range reflect.TypeOf(s).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(p.text, `"`+name+`":`) && !strings.Contains(p.text, "`"+name+"`") {
				p.t.Errorf("%s does not mention %s of %T", PagePath, name, s)
			}
		}
	}
}
