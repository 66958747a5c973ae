package schema

import (
	"cmp"
	"encoding/json"
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

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxViolations is the number of violations that are listed.
const maxViolations = 20

// Check returns all violations in a call's arguments, for example "pin must be 2,
// got 258". It returns nil if the arguments are valid.
func (s *Schema) Check(args map[string]any) []string {
	c := s.checker()
	if misspelled := c.misspelled(args); len(misspelled) > 0 {
		return misspelled
	}
	if c.plain != nil && c.plain.accepts(args) {
		return nil
	}
	return c.check(args)
}

// misspelled returns a violation for each argument that differs from a declared one only in
// the case of letters. Many devices take it for the declared one, but rules and limits
// do not see it.
func (s *checker) misspelled(args map[string]any) (found []string) {
	for name := range args {
		if s.properties[name] {
			continue
		}
		for declared := range s.properties {
			if strings.EqualFold(name, declared) {
				found = append(found, fmt.Sprintf("%s must be written %s", ferrule.Clean(name, ferrule.MaxToolName), ferrule.Clean(declared, ferrule.MaxToolName)))
			}
		}
	}
	slices.Sort(found)
	return found
}

// CheckOutput returns all violations in a tool's answer.
func (s *Schema) CheckOutput(answer json.RawMessage) []string {
	value, err := decode(answer, bounds{size: MaxOutput, depth: maxDepth, nodes: maxOutputNodes})
	if err != nil {
		return []string{err.Error()}
	}
	return s.checker().check(value)
}

func (s *checker) check(args any) []string {
	if s.err != nil {
		return []string{"the schema of the tool is unusable: " + s.err.Error()}
	}
	n, bytes := sizeOf(args)
	if n*s.parts > maxChecks {
		return []string{fmt.Sprintf("too large to check: %d parts against a schema of %d", n, s.parts)}
	}
	if bytes > maxWork/maxPatterns && work(s.compiled, args) > maxWork {
		return []string{fmt.Sprintf("too large to check: %d bytes against the patterns of its schema", bytes)}
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
		for _, text := range describe(leaf, args) {
			found = append(found, ferrule.Clean(text, ferrule.MaxText))
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if n := len(found); n > maxViolations {
		found = append(found[:maxViolations-1], fmt.Sprintf("and %d more", n-maxViolations+1))
	}
	return found
}

// leaves returns the errors that are useful on their own. It does not descend into
// alternatives: the reasons against each of them would only confuse.
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

// describe describes a violation to a reader who knows the tool but not JSON Schema.
func describe(e *jsonschema.ValidationError, args any) []string {
	got := brief(valueAt(args, e.InstanceLocation))
	say := func(format string, a ...any) []string {
		return []string{at(e.InstanceLocation) + fmt.Sprintf(format, a...)}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return say("must be %s, got %s", types(k.Want), got)
	case *kind.Required:
		var missing []string
		for _, name := range k.Missing {
			missing = append(missing, at(append(slices.Clone(e.InstanceLocation), name))+"is missing")
		}
		return missing
	case *kind.AdditionalProperties:
		var unknown []string
		for _, name := range k.Properties {
			unknown = append(unknown, at(append(slices.Clone(e.InstanceLocation), name))+"is unknown")
		}
		return unknown
	case *kind.Enum:
		return say("must be %s, got %s", oneOf(k.Want), got)
	case *kind.Const:
		return say("must be %s, got %s", brief(k.Want), got)
	case *kind.Minimum:
		return say("must be at least %s, got %s", decimal(k.Want), got)
	case *kind.Maximum:
		return say("must be at most %s, got %s", decimal(k.Want), got)
	case *kind.ExclusiveMinimum:
		return say("must be more than %s, got %s", decimal(k.Want), got)
	case *kind.ExclusiveMaximum:
		return say("must be less than %s, got %s", decimal(k.Want), got)
	case *kind.MinLength:
		return say("must have at least %d characters, got %s", k.Want, got)
	case *kind.MaxLength:
		return say("must have at most %d characters, got %s", k.Want, got)
	case *kind.MinItems:
		return say("must have at least %d elements, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return say("must have at most %d elements, got %d", k.Want, k.Got)
	case *kind.Pattern:
		return say("must match %s, got %s", brief(k.Want), got)
	case *kind.AnyOf, *kind.OneOf, *kind.Not:
		return say("has none of the allowed forms, got %s", got)
	}
	return say("%s", e.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
}

// at returns the path of a part with a space behind it, or "" at the root.
func at(location []string) string {
	if len(location) == 0 {
		return ""
	}
	return strings.Join(location, ".") + " "
}

// types joins the names of types with their articles.
func types(names []string) string {
	var all []string
	for _, name := range names {
		switch name {
		case "boolean":
			name = "true or false"
		case "integer", "object", "array":
			name = "an " + name
		case "number", "string":
			name = "a " + name
		}
		all = append(all, name)
	}
	return strings.Join(all, " or ")
}

func oneOf(values []any) string {
	const limit = 16
	if len(values) == 1 {
		return brief(values[0])
	}
	var names []string
	for _, v := range values[:min(limit, len(values))] {
		names = append(names, brief(v))
	}
	if len(values) > limit {
		names = append(names, fmt.Sprintf("… %d more", len(values)-limit))
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

// valueAt returns the part of the arguments at a location.
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

// compileError describes in one line why a schema is invalid.
func compileError(err error) error {
	var failed *jsonschema.ValidationError
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		err = invalid.Err
	}
	if errors.As(err, &failed) {
		if found := leaves(failed, nil); len(found) > 0 {
			leaf := found[0]
			what := leaf.ErrorKind.LocalizedString(message.NewPrinter(language.English))
			return fmt.Errorf("not a JSON Schema: %s: %s", cmp.Or(strings.Join(leaf.InstanceLocation, "."), "root"), what)
		}
	}
	return fmt.Errorf("not a JSON Schema: %w", err)
}
