package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// classPattern matches a class in which parts may be *.
var classPattern = regexp.MustCompile(`^([a-z0-9_]+|\*)(\.([a-z0-9_]+|\*))*$`)

// checkClasses checks the keys and values of Classes.
func (f *File) checkClasses() error {
	for class, t := range f.Classes {
		if !classPattern.MatchString(class) || len(class) > ferrule.MaxWord {
			return fmt.Errorf("classes: must be parts of a-z, 0-9 and _, or *, with dots between them, got %q", ferrule.Clean(class, ferrule.MaxWord))
		}
		if err := t.check(); err != nil {
			return errorIn(err, "classes", class)
		}
	}
	return nil
}

// patches returns what a file changes of a tool, weakest first: its classes, those with
// more * before others, and then the tool by its name.
func (f *File) patches(t *ferrule.Tool) (patches []Tool) {
	if t.Class != "" && len(f.Classes) > 0 {
		var matching []string
		for pattern := range maps.Keys(f.Classes) {
			if matchesClass(pattern, t.Class) {
				matching = append(matching, pattern)
			}
		}
		slices.SortFunc(matching, func(a, b string) int {
			return cmp.Or(cmp.Compare(strings.Count(b, "*"), strings.Count(a, "*")), cmp.Compare(a, b))
		})
		for _, pattern := range matching {
			patches = append(patches, f.Classes[pattern])
		}
	}
	if p, ok := f.Tools[t.Name]; ok {
		patches = append(patches, p)
	}
	return patches
}

// matchesClass reports whether a class has the parts of a pattern.
func matchesClass(pattern, class string) bool {
	for {
		want, patternRest, more := strings.Cut(pattern, ".")
		got, classRest, also := strings.Cut(class, ".")
		if want != "*" && want != got || more != also {
			return false
		}
		if !more {
			return true
		}
		pattern, class = patternRest, classRest
	}
}
