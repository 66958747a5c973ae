package model

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNames checks that the code names each step of the model where it makes it, once, and
// names no other. Steps whose name begins with env_ are made by the world.
func TestNames(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`(?m)^\s*// model: (\w+)$`)
	places := make(map[string][]string)
	err := filepath.WalkDir("../../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text := read(t, file)
		if !strings.Contains(text, "// model: ") {
			return nil
		}
		for _, m := range comment.FindAllStringSubmatch(text, -1) {
			places[m[1]] = append(places[m[1]], file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := slices.DeleteFunc(transitions(t), func(name string) bool { return strings.HasPrefix(name, "env_") })
	for _, name := range names {
		if len(places[name]) != 1 {
			t.Errorf("the comment `// model: %s` must be in the code once; it is in %v", name, places[name])
		}
	}
	for name, files := range places {
		if !slices.Contains(names, name) {
			t.Errorf("%v: the model has no step %s", files, name)
		}
	}
}
