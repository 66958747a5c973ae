package ferrule_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks checks that every relative link of a document leads to a file of this tree, and
// every anchor to a heading.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	checked, anchors := 0, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(path, ".") && path != "." {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if m[2] == "" {
				continue
			}
			anchors++
			page, err := os.ReadFile(target)
			if err != nil {
				return err
			}
			if !hasAnchor(string(page), m[2]) {
				t.Errorf("%s links to #%s, and %s has no such heading", path, m[2], target)
			}
		}
		return nil
	})
	if err != nil || checked == 0 || anchors == 0 {
		t.Errorf("%d links and %d anchors checked, %v", checked, anchors, err)
	}
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	unlinked = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// hasAnchor reports whether a page has a heading with this anchor, as GitHub derives it.
func hasAnchor(page, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		text := unlinked.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		if strings.ReplaceAll(text, " ", "-") == anchor {
			return true
		}
	}
	return false
}
