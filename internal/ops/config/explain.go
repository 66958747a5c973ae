package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// explain turns an error about a file into one that says where the problem is and what is
// right, in the words of the file. It quotes no lines of the file: they may contain secrets.
// Known is a value of the type that the file was decoded into.
func explain(err error, data []byte, known any) error {
	var e yaml.Error
	var unknown *yaml.UnknownFieldError
	var wrong *yaml.TypeError
	var wrongJSON *json.UnmarshalTypeError
	var inOverlay *overlay.Error
	text := err.Error()
	switch {
	case errors.As(err, &unknown):
		key := quotedIn(unknown.Message)
		return at(unknown.Token, fmt.Sprintf("unknown key %s%s", hidden(strconv.Quote(key)), ferrule.DidYouMean(key, keysOf(reflect.TypeOf(known)))))
	case errors.As(err, &wrong):
		return at(wrong.Token, mustBe(keyBefore(wrong.Token), wrong.DstType))
	case errors.As(err, &e):
		return at(e.GetToken(), hidden(e.GetMessage()))
	case errors.As(err, &wrongJSON):
		key := wrongJSON.Field[strings.LastIndexByte(wrongJSON.Field, '.')+1:]
		return atLine(lineOfWord(data, key), mustBe(key, wrongJSON.Type))
	case errors.As(err, &inOverlay):
		return atLine(lineOf(data, inOverlay.Path), text)
	case strings.HasPrefix(text, "unknown field "):
		key := quotedIn(text)
		return atLine(lineOfWord(data, key), fmt.Sprintf("unknown key %s%s", hidden(strconv.Quote(key)), ferrule.DidYouMean(key, keysOf(reflect.TypeOf(known)))))
	}
	if path := keyPath.FindString(text); path != "" {
		return atLine(lineOf(data, strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]:", r) })), text)
	}
	return atLine(lineOfWord(data, quotedIn(text)), text)
}

// hidden returns a message of the YAML parser without what may be a secret: of the file it
// quotes only what looks like a key. A token may be in the wrong place.
func hidden(message string) string {
	return ferrule.MaskURLs(allQuoted.ReplaceAllStringFunc(message, func(word string) string {
		if plainKey.MatchString(strings.Trim(word, `"`)) {
			return word
		}
		return `"…"`
	}))
}

var (
	allQuoted = regexp.MustCompile(`(?s)".*"`) // the parser does not escape quotes
	plainKey  = regexp.MustCompile(`^[A-Za-z_]{1,24}$`)
)

// keyPath matches the key at the beginning of an error, such as endpoints[0].url:
var keyPath = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+|\[\d+\])*:`)

func at(t *token.Token, text string) error {
	if t == nil || t.Position == nil {
		return errors.New(text)
	}
	return atLine(t.Position.Line, text)
}

// atLine returns an error about a line, or about the whole file if line is 0.
func atLine(line int, text string) error {
	if line == 0 {
		return errors.New(text)
	}
	return fmt.Errorf("line %d: %s", line, text)
}

// quotedIn returns the last quoted word in a text, or "".
func quotedIn(text string) string {
	all := quoted.FindAllString(text, -1)
	if len(all) == 0 {
		return ""
	}
	word, err := strconv.Unquote(all[len(all)-1])
	if err != nil {
		return ""
	}
	return word
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// mustBe says which type a key must have, with an example from the sample file.
func mustBe(key string, want reflect.Type) string {
	kind := "text"
	switch want.Kind() {
	case reflect.Int, reflect.Int64:
		kind = "a whole number"
	case reflect.Float64:
		kind = "a number"
	case reflect.Bool:
		kind = "true or false"
	case reflect.Slice, reflect.Array:
		kind = "a list"
	case reflect.Struct, reflect.Map:
		kind = "a group of keys"
	}
	if key == "" {
		return "must be " + kind
	}
	example := regexp.MustCompile(`(?m)^[ #-]*` + regexp.QuoteMeta(key) + `: *([^\s#"\[{]+)`).FindSubmatch(Sample)
	if example == nil || kind == "true or false" {
		return fmt.Sprintf("%s must be %s", key, kind)
	}
	return fmt.Sprintf("%s must be %s, such as %s", key, kind, example[1])
}

// keyBefore returns the key of a value, or "" if the value is in a list.
func keyBefore(t *token.Token) string {
	if t == nil || t.Prev == nil || t.Prev.Type != token.MappingValueType || t.Prev.Prev == nil {
		return ""
	}
	return t.Prev.Prev.Value
}

// keysOf returns all keys that a file of a type may have, at any depth.
func keysOf(t reflect.Type) (keys []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return keysOf(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name := f.Tag.Get("yaml")
			if name == "" {
				name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
			}
			if name != "" {
				keys = append(append(keys, name), keysOf(f.Type)...)
			}
		}
	}
	return keys
}

// lineOf returns the line of the value at a path, or of the deepest part of the path that is
// in the file; 0 if there is none.
func lineOf(data []byte, path []string) (line int) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil || len(file.Docs) == 0 {
		return 0
	}
	node := file.Docs[0].Body
	for _, key := range path {
		next := ast.Node(nil)
		switch n := node.(type) {
		case *ast.MappingNode:
			for _, pair := range n.Values {
				if pair.Key.GetToken().Value == key {
					line, next = pair.Key.GetToken().Position.Line, pair.Value
				}
			}
		case *ast.SequenceNode:
			if i, err := strconv.Atoi(key); err == nil && i < len(n.Values) {
				line, next = n.Values[i].GetToken().Position.Line, n.Values[i]
			}
		}
		if next == nil {
			return line
		}
		node = next
	}
	return line
}

// lineOfWord returns the line of the first key or value with a text; 0 if there is none.
func lineOfWord(data []byte, word string) int {
	file, err := parser.ParseBytes(data, 0)
	if err != nil || len(file.Docs) == 0 || word == "" {
		return 0
	}
	found := finder{word: word}
	ast.Walk(&found, file.Docs[0].Body)
	return found.line
}

// finder finds the first token with a text.
type finder struct {
	word string
	line int
}

// Visit implements ast.Visitor.
func (f *finder) Visit(node ast.Node) ast.Visitor {
	if t := node.GetToken(); f.line == 0 && t != nil && t.Value == f.word {
		f.line = t.Position.Line
	}
	return f
}
