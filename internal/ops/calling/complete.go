package calling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/schema/form"
)

// Completion is a word that a shell offers, and what it means.
type Completion struct{ Word, Text string }

// Complete completes an argument of a tool: first its name, then its value. Given are the
// arguments before it. Open reports whether something follows the words, such as a value.
func Complete(about builtin.DescribeDeviceOutput, tool string, given []string, typed string) (words []Completion, open bool) {
	for _, t := range about.Tools {
		if t.Name != tool {
			continue
		}
		input := json.RawMessage(t.Input)
		if name, _, ok := strings.Cut(typed, "="); ok {
			return values(about, input, strings.TrimSuffix(name, ":")), false
		}
		properties := arguments.ParseInput(input).Properties
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if !plain(name) || slices.ContainsFunc(given, func(word string) bool { return strings.HasPrefix(word, name+"=") || strings.HasPrefix(word, name+":=") }) {
				continue
			}
			words = append(words, Completion{name + "=", shown(properties[name].Description, 60)})
		}
	}
	return words, true
}

// values returns the values of an argument that are known.
func values(about builtin.DescribeDeviceOutput, input json.RawMessage, name string) (words []Completion) {
	if !plain(name) {
		return nil
	}
	add := func(value, text string) {
		if plain(value) {
			words = append(words, Completion{name + "=" + value, shown(text, 60)})
		}
	}
	for _, field := range form.For(input).Fields {
		if field.Name != name {
			continue
		}
		switch {
		case field.Kind == form.Switch || isBoolean(field):
			add("true", "")
			add("false", "")
		case len(field.Options) > 0:
			for _, o := range field.Options {
				add(o.Label, pinText(about, name, o.Label))
			}
		case isPin(name):
			for _, p := range about.Pins {
				add(strconv.Itoa(p.Number), pinText(about, name, strconv.Itoa(p.Number)))
			}
		case field.Default != "":
			add(field.Default, "default")
		}
	}
	return words
}

// isBoolean reports whether a field is a boolean that may be left out.
func isBoolean(field form.Field) bool {
	return len(field.Options) == 2 && field.Options[0].Value == "true" && field.Options[1].Value == "false"
}

// isPin reports whether an argument is the number of a pin, by its name.
func isPin(name string) bool { return name == "pin" || strings.HasSuffix(name, "_pin") }

// pinText says what is at a pin.
func pinText(about builtin.DescribeDeviceOutput, name, value string) string {
	for _, p := range about.Pins {
		if isPin(name) && strconv.Itoa(p.Number) == value {
			return strings.TrimSpace(fmt.Sprintf("%s %s", p.Name, p.Text))
		}
	}
	return ""
}

// plain reports whether a word of a device can be offered to a shell: nothing in it has a
// meaning there.
func plain(word string) bool {
	return word != "" && len(word) <= 128 && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:/+@%,", r))
	})
}
