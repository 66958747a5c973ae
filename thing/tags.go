package thing

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// otherEncodings are the keys of struct tags that say nothing about arguments.
var otherEncodings = []string{
	"avro", "bson", "cbor", "csv", "db", "env", "form", "gorm", "header", "hcl", "ini", "mapstructure",
	"msgpack", "param", "parquet", "protobuf", "query", "toml", "uri", "url", "xml", "yaml",
}

// jsonOptions are the options of a json tag.
var jsonOptions = []string{"", "omitempty", "omitzero", "string"}

// keyword matches a description that was meant as a keyword, such as minimum=1.
var keyword = regexp.MustCompile(`^[^ \t\n]*=`)

// checkTags returns an error if a struct tag in a type has no meaning. Otherwise a limit or a
// description that is written in the wrong way would silently be missing.
func checkTags(t reflect.Type) error { return checkTypeTags(t, make(map[reflect.Type]bool)) }

func checkTypeTags(t reflect.Type, seen map[reflect.Type]bool) error {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] || encodesItself(t) {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		field := t.Field(i)
		if !field.IsExported() && !field.Anonymous {
			continue
		}
		if err := checkTag(field.Tag); err != nil {
			return fmt.Errorf("field %s: %w", field.Name, err)
		}
		if field.Tag.Get("json") == "-" {
			continue
		}
		if err := checkTypeTags(field.Type, seen); err != nil {
			return fmt.Errorf("field %s: %w", field.Name, err)
		}
	}
	return nil
}

// encodesItself reports whether a type has its own form in JSON.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

func checkTag(tag reflect.StructTag) error {
	for rest := strings.TrimSpace(string(tag)); rest != ""; rest = strings.TrimSpace(rest) {
		key, after, ok := strings.Cut(rest, ":")
		quoted, err := strconv.QuotedPrefix(after)
		if !ok || err != nil || strings.ContainsAny(key, " \t") {
			return fmt.Errorf("tag `%s` is malformed, want `json:\"name\" jsonschema:\"description\"`", tag)
		}
		rest = after[len(quoted):]
		value, _ := strconv.Unquote(quoted) // QuotedPrefix returned it
		switch {
		case key == "json":
			options := strings.Split(value, ",")[1:]
			for _, option := range options {
				if !slices.Contains(jsonOptions, option) {
					return fmt.Errorf("json tag has the unknown option %q, want omitempty, omitzero or string", option)
				}
			}
		case key == "jsonschema" && value == "":
			return fmt.Errorf("jsonschema tag is empty, want a description")
		case key == "jsonschema" && keyword.MatchString(value):
			return fmt.Errorf("jsonschema tag %q begins with a keyword, but it is the description; give limits with WithSchema", value)
		case key == "jsonschema", slices.Contains(otherEncodings, key):
		default:
			return fmt.Errorf("tag %q is unknown; the description is the jsonschema tag, and limits are given with WithSchema", key)
		}
	}
	return nil
}
