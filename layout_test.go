package ferrule_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRoot checks that `ls` explains the program: five folders, the files that
// every Go project has, and no Go file but tests of the layout.
func TestRoot(t *testing.T) {
	known := []string{
		"cmd", "docs", "internal", "packaging", "thing",
		"CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "SECURITY.md",
		"go.mod", "go.sum", "staticcheck.conf",
		"ferrule", "ferrule.exe", "dist", // made by `make build` and `make release`
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "_test.go") && !slices.Contains(known, name) {
			t.Errorf("%s does not belong at the root", name)
		}
	}
}

// TestCommandIsThin checks that package main only parses flags and prints: what
// has logic of its own belongs in a package.
func TestCommandIsThin(t *testing.T) {
	const limit = 3500
	files, err := filepath.Glob("cmd/ferrule/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	if lines > limit {
		t.Errorf("cmd/ferrule has %d lines without tests; limit is %d", lines, limit)
	}
}

// groups are the parts of the drawing in CONTRIBUTING.md.
var groups = []string{"device", "agent", "measure", "cluster", "ops", "local"}

// TestGroups checks that no two groups import each other, directly or through others.
// The table in imports_test.go says what each package may import; this follows the
// imports that are there.
func TestGroups(t *testing.T) {
	imports := make(map[string]map[string]bool)
	err := filepath.WalkDir("internal", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		from := groupOf(path.Dir(filepath.ToSlash(file)))
		if from == "" {
			return nil
		}
		imported, err := importsOf(file)
		if err != nil {
			return err
		}
		for _, name := range imported {
			own, ok := strings.CutPrefix(name, module+"/")
			if to := groupOf(own); ok && to != "" && to != from {
				if imports[from] == nil {
					imports[from] = make(map[string]bool)
				}
				imports[from][to] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		if cycle := findCycle(imports, []string{group}); cycle != nil {
			t.Errorf("groups import each other: %s", strings.Join(cycle, " -> "))
		}
	}
}

// groupOf returns the group of a package, or "" for one that is in none.
func groupOf(dir string) string {
	rest, ok := strings.CutPrefix(dir, "internal/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || !slices.Contains(groups, name) {
		return ""
	}
	return name
}

// findCycle returns a way from the first group of trail back to it, or nil.
func findCycle(imports map[string]map[string]bool, trail []string) []string {
	for _, next := range slices.Sorted(maps.Keys(imports[trail[len(trail)-1]])) {
		if next == trail[0] {
			return append(trail, next)
		}
		if slices.Contains(trail, next) {
			continue
		}
		if cycle := findCycle(imports, append(slices.Clone(trail), next)); cycle != nil {
			return cycle
		}
	}
	return nil
}
