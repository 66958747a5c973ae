package ferrule_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// banned are phrases that made the prose hard to read. CONTRIBUTING.md says what to
// write instead. Each has a part in lower case, which is found faster.
var banned = []struct {
	part   string
	phrase *regexp.Regexp
}{
	{"anew", regexp.MustCompile(`(?i)\banew\b`)},
	{"tells ", regexp.MustCompile(`(?i)\btells (whether|what|how|of|which|who|where|when|why)\b`)},
	{"what is asked", regexp.MustCompile(`(?i)\bwhat is asked\b`)},
	{"who comes", regexp.MustCompile(`(?i)\bwho comes\b`)},
	{"is no ", regexp.MustCompile(`(?i)\bis no (?:[a-z]+\b)`)},
	{"of which", regexp.MustCompile(`(?i)\bof which\b`)},
	{"that is meant", regexp.MustCompile(`(?i)\bthat is meant\b`)},
	{"whoever", regexp.MustCompile(`(?i)\bwhoever\b`)},
	{"so that nobody", regexp.MustCompile(`(?i)\bso that nobody\b`)},
	{"does not any more", regexp.MustCompile(`(?i)\bdoes not any more\b`)},
	{"at most ", regexp.MustCompile(`(?i)\bat most \S+ are possible\b`)},
	{"tells more", regexp.MustCompile(`(?i)\btells more\b`)},
}

// allowed are ordinary uses that look like banned ones.
var allowed = []string{"is no longer", "is no more than", "there is no ", "is no different", "is no need"}

// TestWords checks that no banned phrase is left in code, messages and docs.
func TestWords(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "fuzz" || d.Name() == "node_modules" || d.Name() != "." && d.Name() != ".ci" && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		switch filepath.Ext(file) {
		case ".go", ".md", ".txtar", ".yaml", ".txt", ".golden", ".json", ".sh":
		default:
			if !strings.HasPrefix(filepath.ToSlash(file), ".ci/") || d.IsDir() {
				return nil
			}
		}
		if file == "words_test.go" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		checked++
		for n, line := range strings.Split(string(text), "\n") {
			lower := strings.ToLower(line)
			for _, b := range banned {
				if !strings.Contains(lower, b.part) {
					continue
				}
				for _, at := range b.phrase.FindAllStringIndex(line, -1) {
					if !slices.ContainsFunc(allowed, func(a string) bool { return around(line, at, a) }) {
						t.Errorf("%s:%d: %q: %s", file, n+1, line[at[0]:at[1]], strings.TrimSpace(line))
					}
				}
			}
		}
		return nil
	})
	if err != nil || checked < 100 {
		t.Errorf("%d files checked, %v", checked, err)
	}
}

// around reports whether a phrase found at a place of a line is part of an allowed one.
func around(line string, at []int, allowed string) bool {
	line = strings.ToLower(line)
	for from := 0; ; {
		i := strings.Index(line[from:], allowed)
		if i < 0 {
			return false
		}
		if start := from + i; start <= at[0] && start+len(allowed) >= at[0]+len("is no ") {
			return true
		}
		from += i + 1
	}
}
