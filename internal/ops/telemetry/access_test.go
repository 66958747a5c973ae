package telemetry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestAccessEvents checks that every event has a counter of its own.
func TestAccessEvents(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../ferrule/journal.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := everything(t)
	events := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "AccessEvent" {
			event, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			o.Accessed(ferrule.AccessEvent(event), false)
			events++
		}
		return true
	})
	if text, _ := fetch(t, o); strings.Count(text, `result="ok"} 1`+"\n") != events || strings.Contains(text, `event="other"`) || events < 10 {
		t.Errorf("not all of %d events are counted by themselves", events)
	}
}
