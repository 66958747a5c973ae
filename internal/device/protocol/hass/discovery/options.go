package discovery

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Options are the options of an entity.
type Options map[string]any

// Text returns an option as Python prints it (True, 5, 5.0), or a default if it is missing,
// null, a list or an object.
func (o Options) Text(key, otherwise string) string {
	if value, found := o[key]; found && value != nil {
		if text, ok := pythonText(value); ok {
			return text
		}
	}
	return otherwise
}

// Has reports whether an option is there and not null.
func (o Options) Has(key string) bool { return o[key] != nil }

// Number returns an option that is a number or a text with one, or a default.
func (o Options) Number(key string, otherwise float64) float64 {
	var text string
	switch value := o[key].(type) {
	case json.Number:
		text = value.String()
	case string:
		text = strings.TrimSpace(value)
	}
	// ParseFloat also knows 0x1p-2, 1_000 and Infinity.
	if strings.Trim(text, "+-.0123456789eE") != "" {
		return otherwise
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(number, 0) {
		return otherwise
	}
	return number
}

// Bool returns an option that is a boolean, or a number or text that Home Assistant takes
// for one, or a default.
func (o Options) Bool(key string, otherwise bool) bool {
	switch value := o[key].(type) {
	case bool:
		return value
	case json.Number:
		if number, err := value.Float64(); err == nil {
			return number != 0
		}
	case string:
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "1", "true", "yes", "on", "enable":
			return true
		case "0", "false", "no", "off", "disable":
			return false
		}
	}
	return otherwise
}

// List returns an option that is a list of texts, or a single one. Lists and objects in it
// are left out.
func (o Options) List(key string) []string {
	list, ok := o[key].([]any)
	if !ok {
		if !o.Has(key) {
			return nil
		}
		list = []any{o[key]}
	}
	texts := make([]string, 0, len(list))
	for _, each := range list {
		if text, ok := pythonText(each); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// Objects returns an option that is a list of objects, for example the availability.
func (o Options) Objects(key string) []Options {
	list, _ := o[key].([]any)
	var objects []Options
	for _, each := range list {
		if each, ok := each.(map[string]any); ok {
			objects = append(objects, each)
		}
	}
	return objects
}

// pythonText returns what Python's str makes of a JSON value. It reports false for lists
// and objects.
func pythonText(value any) (string, bool) {
	switch value := value.(type) {
	case nil:
		return "None", true
	case string:
		return value, true
	case bool:
		if value {
			return "True", true
		}
		return "False", true
	case json.Number:
		return pythonNumber(value.String()), true
	}
	return "", false
}

// pythonNumber returns a JSON number as Python prints it: an integer as it is, any other
// in the shortest form that has a point or an exponent.
func pythonNumber(text string) string {
	if !strings.ContainsAny(text, ".eE") {
		if text == "-0" {
			return "0"
		}
		return text
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	if size := math.Abs(number); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(number, 'e', -1, 64)
	}
	text = strconv.FormatFloat(number, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
