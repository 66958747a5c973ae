package ferrule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// waysToDevice are the functions and fields that lead to a device.
var waysToDevice = []string{
	"fleet.Fleet.Target", "fleet.Fleet.Own", "fleet.Record.Handler", // the fleet
	"pipeline.Fleet.Target", "pipeline.Fleet.Own",
	"ferrule.Target.Handler", "ferrule.Target.Handle",
	"protocol.Session.Invoke", "protocol.JobSession.Job", // the connection
	"cluster.Cluster.Forward", "calls.Calls.Forward", // another node
}

// callersOfDevices says who uses them, and why no call gets past the policy there. A new
// entry needs such a reason. Everything else passes its calls to the pipeline.
var callersOfDevices = map[string]string{
	"pipeline.resolve uses pipeline.Fleet.Target":        "a stage before authorize",
	"pipeline.resolve uses pipeline.Fleet.Own":           "the same, for a call from another node",
	"pipeline.follower.about uses pipeline.Fleet.Target": "polls or cancels the job of a call that has passed authorize and approve",
	"pipeline.follower.about uses pipeline.Fleet.Own":    "the same, for a call from another node",
	"pipeline.mayReturn uses ferrule.Target.Handler":     "only looks whether there is a way",
	"pipeline.send uses ferrule.Target.Handle":           "the end of the pipeline, after authorize and approve",
	"ferrule.Target.Handle uses ferrule.Target.Handler":  "used by pipeline.send only",

	"fleet.Fleet.Target uses fleet.Record.Handler":   "makes the Target",
	"fleet.Fleet.Own uses fleet.Record.Handler":      "makes the Target",
	"fleet.Fleet.Target uses ferrule.Target.Handler": "makes the Target",
	"fleet.Fleet.Own uses ferrule.Target.Handler":    "makes the Target",
	"gateway.Gateway.find uses fleet.Record.Handler": "a record of another node's device for the fleet",

	"gateway.Gateway.ownTargets uses fleet.Fleet.Own":       "looks for the stop tools of devices, which it calls through the pipeline",
	"gateway.Gateway.ExplainPolicy uses fleet.Fleet.Target": "says what the policy would decide, and calls nothing",

	"dock.invoke uses protocol.Session.Invoke":               "used by sendOnce only, the handler that the dock gives to the fleet",
	"dock.invoke uses protocol.JobSession.Job":               "the same, for a job of a call that was permitted",
	"dock.invokeFor uses protocol.Session.Invoke":            "the tool that the owner's overlay names for a job of a call that was permitted",
	"dock.supervisor.subscribe uses protocol.Session.Invoke": "used by sendOnce only",
	"dock.supervisor.sweep uses protocol.Session.Invoke":     "ends a subscription whose subscriber is gone",
	"protocoltest.device.call uses protocol.Session.Invoke":  "a suite for tests",

	"gateway.Gateway.forward uses cluster.Cluster.Forward":   "a built-in tool: the call has passed this pipeline, and passes that of the other node",
	"gateway.approvals.others uses cluster.Cluster.Forward":  "the same: the tool list_approvals",
	"gateway.watches.addOthers uses cluster.Cluster.Forward": "the same: the tool list_watches",
	"cluster.Cluster.Forward uses calls.Calls.Forward":       "used by these only",
}

// TestOnlyPipelineCallsDevices checks that there is no other way to a device than through
// the pipeline, where the policy is asked.
func TestOnlyPipelineCallsDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	found := make(map[string]token.Position)
	exists := make(map[string]bool)
	ways := make(map[types.Object]string)
	wayOf := func(obj types.Object) string {
		way, known := ways[obj]
		if !known {
			way = wayOf(obj)
			ways[obj] = way
		}
		return way
	}
	eachPackage(t, func(pkg *types.Package, info *types.Info, fset *token.FileSet, files []*ast.File) {
		for _, file := range files {
			for _, decl := range file.Decls {
				where := pkg.Name() + "." + declared(decl)
				ast.Inspect(decl, func(n ast.Node) bool {
					id, ok := n.(*ast.Ident)
					switch {
					case !ok:
					case info.Defs[id] != nil:
						exists[wayOf(info.Defs[id])] = true
					case info.Uses[id] != nil:
						if way := wayOf(info.Uses[id]); slices.Contains(waysToDevice, way) {
							found[where+" uses "+way] = fset.Position(id.Pos())
						}
					}
					return true
				})
			}
		}
	})
	for _, use := range slices.Sorted(maps.Keys(found)) {
		if callersOfDevices[use] == "" {
			t.Errorf("%s: %s: it must call the pipeline, which asks the policy; or add it to callersOfDevices with a reason", found[use], use)
		}
	}
	for _, use := range slices.Sorted(maps.Keys(callersOfDevices)) {
		if _, is := found[use]; !is {
			t.Errorf("callersOfDevices: %s is not true any longer", use)
		}
	}
	for _, way := range waysToDevice {
		if !exists[way] {
			t.Errorf("waysToDevice: there is no %s", way)
		}
	}
}

// wayOf returns a method or field as package.Type.Name.
func wayOf(obj types.Object) string {
	if obj.Pkg() == nil || !strings.HasPrefix(obj.Pkg().Path(), module) {
		return ""
	}
	switch obj := obj.(type) {
	case *types.Func:
		if recv := obj.Signature().Recv(); recv != nil {
			t := recv.Type()
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if named, ok := t.(*types.Named); ok {
				return obj.Pkg().Name() + "." + named.Obj().Name() + "." + obj.Name()
			}
		}
	case *types.Var:
		if !obj.IsField() {
			return ""
		}
		for _, name := range obj.Pkg().Scope().Names() { // the struct that has the field
			s, ok := obj.Pkg().Scope().Lookup(name).Type().Underlying().(*types.Struct)
			for i := 0; ok && i < s.NumFields(); i++ {
				if s.Field(i) == obj {
					return obj.Pkg().Name() + "." + name + "." + obj.Name()
				}
			}
		}
	}
	return ""
}

// declared returns the name of a function, with its receiver, or what else is declared.
func declared(decl ast.Decl) string {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok {
		return "declaration"
	}
	if fn.Recv == nil {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	return fmt.Sprint(recv) + "." + fn.Name.Name
}

// eachPackage calls fn with every package of this module, without its tests, type-checked
// against the compiled packages that it imports.
func eachPackage(t *testing.T, fn func(pkg *types.Package, info *types.Info, fset *token.FileSet, files []*ast.File)) {
	t.Helper()
	for _, dir := range []string{"cmd", "internal", "thing"} { // so that a new file makes a cached result stale
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,Module", "./...")
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, failed.String())
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		Module                  *struct{ Path string }
	}
	var own []listed
	exports := make(map[string]string)
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := in.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Path == module {
			own = append(own, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range own {
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
		pkg, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info)
		if err != nil {
			t.Fatal(err)
		}
		fn(pkg, info, fset, files)
	}
}
