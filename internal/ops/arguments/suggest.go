package arguments

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Suggest adds to the error of a call with wrong arguments the names that were probably
// meant. The words are key=value and key:=json, as in Parse.
func Suggest(e *ferrule.Error, words []string, schema json.RawMessage) {
	if e.Code != ferrule.Invalid {
		return
	}
	declared := ParseInput(schema).Properties
	for _, word := range words {
		name, _, _ := strings.Cut(word, "=")
		name = strings.TrimSuffix(name, ":")
		if _, ok := declared[name]; ok {
			continue
		}
		if near := ferrule.Nearest(name, slices.Sorted(maps.Keys(declared))); near != "" {
			e.Hint = strings.TrimSpace(fmt.Sprintf("Did you mean %s instead of %s? %s", near, name, e.Hint))
		}
	}
}
