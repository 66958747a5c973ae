package form_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/schema"
	"github.com/ferrulehq/ferrule/internal/schema/form"
)

const arm = `{"type":"object","required":["joint","angle","torque"],"additionalProperties":false,"properties":{
	"joint":{"type":"string","enum":["base","elbow"]},
	"angle":{"type":"integer","minimum":-90,"maximum":80,"unit":"°"},
	"speed":{"type":"number","minimum":1,"maximum":120,"default":30,"title":"Speed"},
	"torque":{"type":"boolean"},
	"color":{"type":"string","pattern":"^#[0-9a-f]{6}$"},
	"note":{"type":"string","maxLength":32},
	"program":{"type":"string","contentEncoding":"base64","maxLength":400},
	"path":{"type":"array","items":{"type":"number"}}}}`

func kinds(f form.Form) map[string]form.Kind {
	all := make(map[string]form.Kind)
	for _, field := range f.Fields {
		all[field.Name] = field.Kind
	}
	return all
}

func TestFor(t *testing.T) {
	got := kinds(form.For(json.RawMessage(arm)))
	want := map[string]form.Kind{
		"joint": form.Select, "angle": form.Slider, "speed": form.Number, "torque": form.Switch,
		"color": form.Color, "note": form.Text, "program": form.File, "path": form.JSON,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	fields := form.For(json.RawMessage(arm)).Fields
	if angle := fields[1]; angle.Min != "-90" || angle.Max != "80" || angle.Step != "1" || angle.Unit != "°" || angle.Label != "Angle" || !angle.Required {
		t.Errorf("angle is %+v", angle)
	}
}

func TestControls(t *testing.T) {
	tests := []struct {
		property string
		required bool
		want     form.Kind
	}{
		{`{"type":"boolean"}`, true, form.Switch},
		{`{"type":"boolean"}`, false, form.Select}, // on, off, or not given
		{`{"type":"boolean","default":true}`, false, form.Switch},
		{`{"type":"integer","minimum":0,"maximum":1000}`, true, form.Slider},
		{`{"type":"integer","minimum":0,"maximum":1001}`, true, form.Number},
		{`{"type":"integer","minimum":0,"maximum":100}`, false, form.Number},
		{`{"type":"number","minimum":0,"maximum":1}`, true, form.Slider},
		{`{"type":"number","minimum":0,"exclusiveMaximum":1}`, true, form.Number},
		{`{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10}`, true, form.Slider},
		{`{"type":"number","minimum":1,"maximum":5,"multipleOf":2}`, true, form.Number},
		{`{"type":"number","minimum":-1e400,"maximum":5}`, true, form.Number},
		{`{"type":"integer","minimum":5,"maximum":5}`, true, form.Number},
		{`{"type":"string","format":"color"}`, true, form.Color},
		{`{"type":"string","maxLength":2000}`, true, form.LongText},
		{`{"type":["string","null"]}`, true, form.Text},
		{`{"anyOf":[{"type":"integer"},{"type":"null"}]}`, false, form.Number},
		{`{"anyOf":[{"type":"integer"},{"type":"string"}]}`, false, form.JSON},
		{`{"$ref":"#/x"}`, true, form.JSON},
		{`{"type":"object"}`, true, form.JSON},
		{`{"const":5}`, true, form.Select},
		{`true`, true, form.JSON},
		{`{"type":7,"enum":"x","minimum":"y"}`, true, form.JSON},
	}
	for _, test := range tests {
		required := "[]"
		if test.required {
			required = `["a"]`
		}
		got := form.For(json.RawMessage(fmt.Sprintf(`{"type":"object","required":%s,"properties":{"b":{"type":"string"},"a":%s}}`, required, test.property)))
		if kind := kinds(got)["a"]; kind != test.want {
			t.Errorf("%s, required %v: got %s, want %s", test.property, test.required, kind, test.want)
		}
	}
}

// A schema is hostile: it may have too much of anything.
func TestHostileSchemas(t *testing.T) {
	many := func(n int, property string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"p%d":%s`, i, property))
		}
		return `{"type":"object","properties":{` + strings.Join(all, ",") + `}}`
	}
	options := strings.TrimSuffix(strings.Repeat(`"x",`, form.MaxOptions+1), ",")
	for name, text := range map[string]string{
		"not JSON":        `{"type":`,
		"many properties": many(form.MaxFields+1, "{}"),
		"twice":           `{"properties":{"a":{},"a":{"type":"string"}}}`,
		"no object":       `{"properties":[1]}`,
		"alternatives":    `{"anyOf":[{"properties":{"a":{}}}]}`,
		"open":            `{"type":"object","additionalProperties":true}`,
		"empty name":      `{"properties":{"":{"type":"string"}}}`,
		"long":            `{"description":"` + strings.Repeat("x", 70<<10) + `"}`,
	} {
		f := form.For(json.RawMessage(text))
		if len(f.Fields) != 1 || f.Fields[0].Name != "" || f.Fields[0].Kind != form.JSON {
			t.Errorf("%s: got %+v, want one field for JSON", name, f.Fields)
		}
	}
	f := form.For(json.RawMessage(`{"properties":{"a":{"title":"x\u202ey\n\nz","description":"` + strings.Repeat("d", 4000) + `"},"b":{"type":"string","enum":[` + options + `]}}}`))
	if f.Fields[0].Label != "x y z" || len(f.Fields[0].Text) > 512 || f.Fields[1].Kind != form.Text {
		t.Errorf("got %+v", f.Fields)
	}
}

func check(t *testing.T, text string) func(map[string]any) []string {
	t.Helper()
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Check
}

func TestRead(t *testing.T) {
	f := form.For(json.RawMessage(arm))
	values := url.Values{"arg.joint": {`"elbow"`}, "arg.angle": {"−35"}, "arg.speed": {""}, "arg.torque": {"true"}, "arg.note": {"hi"}, "arg.path": {"[1, 2.50]"}}
	got := f.Read(values, upload(t, "arg.program", []byte("G1 X10")), check(t, arm))
	want := `{"angle":-35,"joint":"elbow","note":"hi","path":[1,2.50],"program":"RzEgWDEw","torque":true}`
	if !got.OK() || string(got.Arguments) != want {
		t.Errorf("got %s, %v, want %s", got.Arguments, got.All(), want)
	}
}

func TestReadReportsAll(t *testing.T) {
	f := form.For(json.RawMessage(arm))
	values := url.Values{"arg.joint": {`"tail"`}, "arg.angle": {"ten"}, "arg.speed": {"900"}, "arg.color": {"red"}, "arg.path": {"[1,"}}
	got := f.Read(values, upload(t, "arg.program", make([]byte, 500)), check(t, arm))
	want := map[string]string{
		"joint": `Joint has no value "\"tail\"".`, "angle": `Angle must be a number, got "ten".`, "speed": "Speed must be at most 120, got 900.",
		"color": `Color must match "^#[0-9a-f]{6}$", got "red".`, "program": "Program must be a file of at most 300 bytes, got 500.",
	}
	for name, text := range want {
		if got.Errors[name] != text {
			t.Errorf("%s: got %q, want %q", name, got.Errors[name], text)
		}
	}
	if !strings.HasPrefix(got.Errors["path"], "Path must be JSON: ") || got.Arguments != nil || len(got.Others) != 0 {
		t.Errorf("got %q, arguments %s, others %q", got.Errors["path"], got.Arguments, got.Others)
	}
	if got.Values["speed"] != "900" {
		t.Errorf("what was filled in is lost: %v", got.Values)
	}
}

func TestReadWhole(t *testing.T) {
	f := form.For(json.RawMessage(`{"type":"object","additionalProperties":true}`))
	if got := f.Read(url.Values{"arg.": {` {"a": 1} `}}, nil, nil); string(got.Arguments) != `{"a":1}` {
		t.Errorf("got %s, %v", got.Arguments, got.All())
	}
	if got := f.Read(url.Values{"arg.": {`[1]`}}, nil, nil); got.OK() {
		t.Errorf("a list is not arguments, got %s", got.Arguments)
	}
}

func upload(t *testing.T, name string, data []byte) map[string][]*multipart.FileHeader {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, _ := w.CreateFormFile(name, "program.txt")
	part.Write(data)
	w.Close()
	f, err := multipart.NewReader(&body, w.Boundary()).ReadForm(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return f.File
}

// FuzzFor checks that no schema makes a form that is too large or unusable.
func FuzzFor(f *testing.F) {
	f.Add(arm)
	f.Add(`{"properties":{"a":{"type":"number","minimum":0,"maximum":1e-300,"multipleOf":5e-324}}}`)
	f.Add(`{"properties":{"a":{"enum":[null,{"b":1},"c"],"default":"c"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		got := form.For(json.RawMessage(text))
		if len(got.Fields) > form.MaxFields {
			t.Fatalf("%d fields", len(got.Fields))
		}
		for _, field := range got.Fields {
			if len(field.Options) > form.MaxOptions || len(field.Label) > 200 || len(field.Text) > 512 {
				t.Fatalf("too large: %+v", field)
			}
			if field.Kind == form.Slider && (field.Min == "" || field.Max == "" || field.Step == "") {
				t.Fatalf("slider without ends: %+v", field)
			}
		}
		read(t, got, url.Values{})
	})
}

// FuzzRead checks that whatever is filled in is either valid JSON or an error.
func FuzzRead(f *testing.F) {
	f.Add("1", `"elbow"`, "true", "[1]")
	f.Add("1e999", "nan", "0x1p-2", "{\"a\":\"\\ud800\"}")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		read(t, form.For(json.RawMessage(arm)), url.Values{"arg.angle": {a}, "arg.speed": {a}, "arg.joint": {b}, "arg.torque": {c}, "arg.path": {d}, "arg.note": {d}, "arg.color": {b}})
		read(t, form.For(json.RawMessage(`{"additionalProperties":true}`)), url.Values{"arg.": {d}})
	})
}

func read(t *testing.T, f form.Form, values url.Values) {
	t.Helper()
	got := f.Read(values, nil, nil)
	if got.OK() != (got.Arguments != nil) {
		t.Fatalf("errors %v with arguments %s", got.All(), got.Arguments)
	}
	if got.OK() {
		if _, _, err := schema.DecodeArgs(got.Arguments); err != nil {
			t.Fatalf("%s: %v", got.Arguments, err)
		}
	}
}
