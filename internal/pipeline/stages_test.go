package pipeline

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestStages checks that the stages have the order drawn in the package comment.
func TestStages(t *testing.T) {
	source, err := os.ReadFile("pipeline.go")
	if err != nil {
		t.Fatal(err)
	}
	var drawn, built []string
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z]+)  +[a-z]`).FindAllStringSubmatch(string(source), -1) {
		drawn = append(drawn, m[1])
	}
	for _, s := range New(Parts{}).stages(Parts{}) {
		built = append(built, s.name)
	}
	if !slices.Equal(drawn, built) {
		t.Errorf("drawn is %q, built is %q", drawn, built)
	}
}
