package hardware

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exported returns the exported names of a package: functions, types, and methods and fields
// as TYPE.NAME. It also returns the functions whose first argument is a device.
func exported(t *testing.T, dir string) (names map[string]bool, adders []string) {
	t.Helper()
	names = make(map[string]bool)
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			switch d := declared.(type) {
			case *ast.FuncDecl:
				names[strings.TrimPrefix(receiver(d)+"."+d.Name.Name, ".")] = true
				if params := d.Type.Params.List; d.Recv == nil && d.Name.IsExported() && len(params) > 0 && isDevice(params[0].Type) {
					adders = append(adders, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						names[typ.Name.Name] = true
						addFields(names, typ)
					} else if values, ok := spec.(*ast.ValueSpec); ok {
						for _, v := range values.Names {
							names[v.Name] = true
						}
					}
				}
			}
		}
	}
	return names, adders
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	name, _ := typ.(*ast.Ident)
	return name.Name
}

func isDevice(typ ast.Expr) bool {
	star, ok := typ.(*ast.StarExpr)
	if !ok {
		return false
	}
	selected, ok := star.X.(*ast.SelectorExpr)
	return ok && selected.Sel.Name == "Device"
}

func addFields(names map[string]bool, typ *ast.TypeSpec) {
	structure, ok := typ.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		for _, name := range field.Names {
			names[typ.Name.Name+"."+name.Name] = true
		}
	}
}

// TestReference checks that the reference names every function that adds tools, and only names
// that exist.
func TestReference(t *testing.T) {
	page, err := os.ReadFile(filepath.FromSlash("../../docs/reference/thing.md"))
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{"thing": "..", "mcpserver": "../mcpserver", "hardware": "."}
	checked := 0
	for name, dir := range folders {
		names, adders := exported(t, dir)
		for _, m := range regexp.MustCompile("`"+name+`\.([A-Z][A-Za-z0-9.]*)`).FindAllStringSubmatch(string(page), -1) {
			if checked++; !names[m[1]] {
				t.Errorf("the reference names %s.%s, which does not exist", name, m[1])
			}
		}
		if name != "hardware" {
			continue
		}
		if len(adders) < 9 {
			t.Errorf("only %v add tools", adders)
		}
		for _, adder := range adders {
			if !strings.Contains(string(page), "| `hardware."+adder+"` |") {
				t.Errorf("the reference has no row of hardware.%s", adder)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d names were checked", checked)
	}
}
