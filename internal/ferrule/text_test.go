package ferrule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// invisible returns every character that no text of a device may contain. The ranges
// are those of Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt,
// and then characters without that property that are not seen either.
func invisible() (all []rune) {
	for _, r := range [][2]rune{
		{0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f},
		{0x200b, 0x200f}, {0x202a, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
		{0xffa0, 0xffa0}, {0xfff0, 0xfff8}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},

		{0, 8}, {0xb, 0x1f}, {0x7f, 0x9f}, // controls
		{0x2028, 0x2029}, {0x2800, 0x2800}, // separators; Braille without dots
		{0xfff9, 0xfffb}, {0x13430, 0x1343f}, // interlinear annotations; Egyptian format controls
		{0xe000, 0xe000}, {0xf8ff, 0xf8ff}, {0xf0000, 0xf0000}, {0x10fffd, 0x10fffd}, // private use
		{0xfdd0, 0xfdd0}, {0xffff, 0xffff}, {0x10ffff, 0x10ffff}, // not characters
	} {
		for c := r[0]; c <= r[1]; c++ {
			all = append(all, c)
		}
	}
	return all
}

func TestInvisible(t *testing.T) {
	for _, r := range invisible() {
		text := "a" + string(r) + "b"
		if got := ferrule.Clean(text, 100); got != "a b" || ferrule.Visible(text) {
			t.Errorf("%U: got %q, visible is %t", r, got, ferrule.Visible(text))
		}
		for _, written := range []string{string(ferrule.AppendString(nil, text)), fmt.Sprintf(`"a%sb"`, escaped(r))} {
			if got := ferrule.CleanJSON(json.RawMessage(written)); string(got) != `"a b"` {
				t.Errorf("%U: %s became %s", r, written, got)
			}
		}
	}
	for _, text := range []string{"Grüße", "日本\u3000語", "e\u0301", "☀ 21\u00a0°C", "🌡", "नमस्ते", "\t\n", "�"} {
		if got := ferrule.Clean(text, 100); got != text || !ferrule.Visible(text) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// escaped returns a character as escape sequences of JSON.
func escaped(r rune) string {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// full returns a manifest in which every text is set.
func full() *ferrule.Manifest {
	icons := func() []ferrule.Icon {
		return []ferrule.Icon{{Source: "https://x", MIME: "image/png", Sizes: []string{"any"}, Theme: "dark"}}
	}
	return &ferrule.Manifest{
		Model: "m", Version: "v", Platform: "p", Instructions: "i", Title: "t", Icons: icons(), PartOf: "k",
		Tools: []ferrule.Tool{{Name: "n", Text: "t", Title: "t", Icons: icons(), Effect: ferrule.Reads, Task: ferrule.TaskSlow, Class: "c", Secrets: []string{"s"}, Quarantine: "q"}},
		Pins:  []ferrule.Pin{{Name: "n", Type: "t", Text: "t", Abilities: []string{"buffer"}, Sampling: &ferrule.Sampling{}}},
		Resources: []ferrule.Resource{{
			URI: "any:x", Name: "n", Title: "t", Text: "t", MIME: "m", Icons: icons(),
			Annotations: &ferrule.Annotations{Audience: []string{"user"}, Priority: new(float64), Modified: "m"},
		}},
		Prompts: []ferrule.Prompt{{
			Name: "n", Title: "t", Text: "t", Icons: icons(),
			Arguments: []ferrule.PromptArgument{{Name: "n", Title: "t", Text: "t"}},
		}},
		Operations: []ferrule.Operation{ferrule.Complete},
		Notes:      []string{"n"},
	}
}

// texts returns every string in a value that is stored as JSON, with its path.
func texts(path string, v reflect.Value, all map[string]reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		all[path] = v
	case reflect.Pointer:
		if !v.IsNil() {
			texts(path, v.Elem(), all)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // a schema; internal/schema handles it
		}
		if v.Len() == 0 {
			all[path] = v
		}
		for i := range v.Len() {
			texts(fmt.Sprintf("%s[%d]", path, i), v.Index(i), all)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.Tag.Get("json") != "-" {
				texts(path+"."+field.Name, v.Field(i), all)
			}
		}
	}
}

// TestBoundInvisible checks that no text of a manifest keeps an invisible character.
func TestBoundInvisible(t *testing.T) {
	fields := make(map[string]reflect.Value)
	texts("", reflect.ValueOf(full()).Elem(), fields)
	for path, v := range fields {
		if v.Len() == 0 {
			t.Fatalf("%s is not set, so it is not tested", path)
		}
	}
	for path := range fields {
		for chunk := range slices.Chunk(invisible(), 30) { // short enough for every field
			m := full()
			set := make(map[string]reflect.Value)
			texts("", reflect.ValueOf(m).Elem(), set)
			set[path].SetString(set[path].String() + string(chunk))
			m.Bound()
			stored, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if cleaned := ferrule.CleanJSON(stored); !bytes.Equal(cleaned, stored) {
				t.Errorf("%s: passed with %U: %q", path, chunk, stored)
				break
			}
		}
	}
}

func TestCleanJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a\u200bb":[1.50,"x\\u200b","y\ud83d\ude00"]}`:   `{"a b":[1.50,"x\\u200b","y\ud83d\ude00"]}`,
		"{\r\n\t\"a\" : \"\\r\\n\\t\\b\\f\\/\\\"\u2067\"}": "{\r\n\t\"a\" : \" \\n\\t  \\/\\\" \"}",
		`"\udb40\udc41"`:       `" "`,             // a tag character
		`"\udb40x\udc41"`:      `"\udb40x\udc41"`, // halves of one
		`"\udb40\u200b\udc41"`: `"\udb40 \udc41"`,
		``:                     ``,
		`null`:                 `null`,
		`"\`:                   `"\`, // not JSON
		`"\u20`:                `"\u20`,
	} {
		if got := ferrule.CleanJSON(json.RawMessage(text)); string(got) != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

// FuzzCleanJSON checks that a cleaned text has the same tokens, and that its strings
// are clean.
func FuzzCleanJSON(f *testing.F) {
	f.Add([]byte(`{"a\u200b":["\udb40\udc41",1e5,"\\\ud800","` + "\u2800" + `"]}`))
	f.Add([]byte(`[" ` + "\u202e" + `","\r"]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		cleaned := ferrule.CleanJSON(text)
		if !bytes.Equal(before, text) {
			t.Fatal("the input was changed")
		}
		if !json.Valid(text) {
			return
		}
		if got, want := tokens(t, cleaned), tokens(t, text); got != want {
			t.Errorf("%s became %s", text, cleaned)
		}
		if again := ferrule.CleanJSON(cleaned); !bytes.Equal(again, cleaned) {
			t.Errorf("%s became %s", cleaned, again)
		}
	})
}

// tokens returns the tokens of a JSON text, with clean strings.
func tokens(t *testing.T, text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var all strings.Builder
	for {
		token, err := dec.Token()
		if err != nil {
			return all.String()
		}
		if s, ok := token.(string); ok {
			token = ferrule.Clean(s, 4*len(s))
		}
		fmt.Fprintf(&all, "%T %v\n", token, token)
	}
}
