package schema

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// maxViolations is how many are named one by one.
const maxViolations = 20

// Check names everything that is wrong with a call's arguments, each as "where:
// what was wanted, what came". It returns nothing if they fit.
func (s *Schema) Check(args map[string]any) []string {
	if s.plain != nil && s.plain.fits(args) {
		return nil
	}
	return s.check(args)
}

// CheckAnswer names everything that is wrong with a tool's answer.
func (s *Schema) CheckOutput(answer []byte) []string {
	value, err := decode(answer, bounds{size: MaxOutput, depth: maxDepth, nodes: maxAnswerNodes})
	if err != nil {
		return []string{err.Error()}
	}
	return s.check(value)
}

func (s *Schema) check(args any) []string {
	if n, _ := sizeOf(args); n*s.parts > maxChecks {
		return []string{fmt.Sprintf("they are too large to be checked: %d parts against a schema of %d", n, s.parts)}
	}
	err := s.compiled.Validate(args)
	if err == nil {
		return nil
	}
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []string{err.Error()}
	}
	var found []string
	for _, leaf := range leaves(failed, nil) {
		found = append(found, words(leaf, args)...)
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if n := len(found); n > maxViolations {
		found = append(found[:maxViolations-1], fmt.Sprintf("and %d more", n-maxViolations+1))
	}
	return found
}

// leaves collects the errors that say something by themselves: of alternatives
// none of which fits, the reasons of each would only confuse.
func leaves(e *jsonschema.ValidationError, found []*jsonschema.ValidationError) []*jsonschema.ValidationError {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Not:
		return append(found, e)
	}
	if len(e.Causes) == 0 {
		return append(found, e)
	}
	for _, cause := range e.Causes {
		found = leaves(cause, found)
	}
	return found
}

// words says what is wrong, for a reader who knows the tool and not the
// language of schemas.
func words(e *jsonschema.ValidationError, args any) []string {
	got := brief(valueAt(args, e.InstanceLocation))
	say := func(format string, a ...any) []string {
		return []string{at(e.InstanceLocation) + fmt.Sprintf(format, a...)}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return say("want %s, got %s", strings.Join(k.Want, " or "), got)
	case *kind.Required:
		var missing []string
		for _, name := range k.Missing {
			missing = append(missing, at(append(slices.Clone(e.InstanceLocation), name))+"missing")
		}
		return missing
	case *kind.AdditionalProperties:
		var unknown []string
		for _, name := range k.Properties {
			unknown = append(unknown, at(append(slices.Clone(e.InstanceLocation), name))+"not known to this tool")
		}
		return unknown
	case *kind.Enum:
		return say("want %s, got %s", oneOf(k.Want), got)
	case *kind.Const:
		return say("want %s, got %s", brief(k.Want), got)
	case *kind.Minimum:
		return say("want at least %s, got %s", decimal(k.Want), got)
	case *kind.Maximum:
		return say("want at most %s, got %s", decimal(k.Want), got)
	case *kind.ExclusiveMinimum:
		return say("want more than %s, got %s", decimal(k.Want), got)
	case *kind.ExclusiveMaximum:
		return say("want less than %s, got %s", decimal(k.Want), got)
	case *kind.MinLength:
		return say("want at least %d characters, got %s", k.Want, got)
	case *kind.MaxLength:
		return say("want at most %d characters, got %s", k.Want, got)
	case *kind.MinItems:
		return say("want at least %d elements, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return say("want at most %d elements, got %d", k.Want, k.Got)
	case *kind.Pattern:
		return say("want text that matches %s, got %s", brief(k.Want), got)
	case *kind.AnyOf, *kind.OneOf, *kind.Not:
		return say("%s is none of the forms that are possible here", got)
	}
	return say("%s", e.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
}

// at is where in the arguments, ready to be followed by what; nothing at the
// root.
func at(location []string) string {
	if len(location) == 0 {
		return ""
	}
	return strings.Join(location, ".") + ": "
}

func oneOf(values []any) string {
	const most = 16
	if len(values) == 1 {
		return brief(values[0])
	}
	var names []string
	for _, v := range values[:min(most, len(values))] {
		names = append(names, brief(v))
	}
	if len(values) > most {
		names = append(names, fmt.Sprintf("… %d more", len(values)-most))
	}
	return "one of " + strings.Join(names, ", ")
}

func decimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// valueAt is the part of the arguments that a violation is about.
func valueAt(v any, location []string) any {
	for _, step := range location {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(at) {
				return nil
			}
			v = at[i]
		}
	}
	return v
}

// compileError says in one line what is wrong with a schema.
func compileError(err error) error {
	var failed *jsonschema.ValidationError
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &failed) {
		if found := leaves(failed, nil); len(found) > 0 {
			leaf := found[0]
			what := leaf.ErrorKind.LocalizedString(message.NewPrinter(language.English))
			return fmt.Errorf("it is no JSON Schema: %s%s", at(leaf.InstanceLocation), what)
		}
	}
	return fmt.Errorf("it is no JSON Schema: %w", err)
}
