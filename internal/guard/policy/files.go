package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// file is a file with rules or with tests.
type file struct {
	name  string // without the directory
	rules bool
	text  []byte
}

// The endings of files with rules and with tests.
const (
	RulesExt = ".cedar"
	TestsExt = ".test.yaml"
)

// readFiles reads the rules and tests in a directory, in the order of their names. What
// looks like rules or tests and would be ignored is an error.
func readFiles(dir string, required bool) ([]file, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		if !required {
			return nil, nil
		}
		return nil, fmt.Errorf("policy.dir: %s does not exist; without its rules, more might be permitted than its owner wants. Restore it, or create it empty to have no rules", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("policy.dir: %w", err)
	}
	var files []file
	for _, e := range entries {
		name := e.Name()
		f := file{name: name, rules: strings.HasSuffix(name, RulesExt)}
		switch ext := filepath.Ext(name); {
		case strings.HasPrefix(name, "."):
			continue
		case e.IsDir():
			return nil, fmt.Errorf("policy.dir: %s is a directory; rules are only read from %s itself", filepath.Join(dir, name), dir)
		case f.rules, strings.HasSuffix(name, TestsExt):
		case ext == ".yaml", ext == ".yml":
			return nil, fmt.Errorf("policy.dir: %s must end with %s; otherwise it would not be run as a test", filepath.Join(dir, name), TestsExt)
		default:
			continue
		}
		if f.text, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("policy.dir: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}
