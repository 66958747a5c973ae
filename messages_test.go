package ferrule_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/reference/messages.txt")

// messagesFile lists all error messages and hints, so that a reviewer sees them in
// one place.
const messagesFile = "docs/reference/messages.txt"

// TestMessages compares the error messages and hints in the source with
// docs/reference/messages.txt.
func TestMessages(t *testing.T) {
	messages := make(map[string]map[string]bool) // by package
	for _, root := range []string{"cmd", "internal", "thing"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return filepath.SkipDir
			case !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
				return nil
			}
			source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			dir := path.Dir(filepath.ToSlash(file))
			ast.Inspect(source, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if text := message(source.Name.Name, call); text != "" {
						if messages[dir] == nil {
							messages[dir] = make(map[string]bool)
						}
						messages[dir][text] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	b.WriteString("# Error messages and hints by package. Generated: go test -run TestMessages . -update\n")
	for _, dir := range slices.Sorted(maps.Keys(messages)) {
		fmt.Fprintf(&b, "\n## %s\n\n", dir)
		for _, text := range slices.Sorted(maps.Keys(messages[dir])) {
			b.WriteString(text + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(messagesFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(messagesFile)
	if err != nil {
		t.Fatal(err)
	}
	if line, ok := firstDifference(b.String(), string(want)); !ok {
		t.Errorf("%s is outdated at %q; run go test -run TestMessages . -update", messagesFile, line)
	}
}

// message returns the text of a call that makes an error or sets a hint, or "".
func message(pkg string, call *ast.CallExpr) string {
	var name string
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		if pkg == "ferrule" {
			name = "ferrule." + fn.Name
		}
	case *ast.SelectorExpr:
		if x, ok := fn.X.(*ast.Ident); ok {
			name = x.Name + "."
		}
		name += fn.Sel.Name
		if fn.Sel.Name == "WithHint" {
			name = "WithHint"
		}
	}
	format := 0
	switch name {
	case "errors.New", "fmt.Errorf":
	case "WithHint":
	case "ferrule.Errorf":
		format = 1
	default:
		return ""
	}
	if format >= len(call.Args) {
		return ""
	}
	text, literal := literalText(call.Args[format])
	if !literal {
		return ""
	}
	if name == "WithHint" {
		return "hint: " + text
	}
	return text
}

// literalText returns the text of an expression and reports whether a part of it is
// a string literal. Other parts are shown as {}.
func literalText(e ast.Expr) (text string, literal bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return strings.ReplaceAll(text, "\n", `\n`), true
		}
	case *ast.BinaryExpr:
		left, a := literalText(e.X)
		right, b := literalText(e.Y)
		return left + right, a || b
	case *ast.ParenExpr:
		return literalText(e.X)
	}
	return "{}", false
}

// firstDifference returns the first line that differs, and reports whether there is
// none.
func firstDifference(got, want string) (line string, equal bool) {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return b[i], false
		case i >= len(b) || a[i] != b[i]:
			return a[i], false
		}
	}
	return "", true
}
