package overlay_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func parse(t *testing.T, text string) *overlay.File {
	t.Helper()
	f, err := overlay.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// board is a device with a tool of each sort.
func board() *ferrule.Manifest {
	return &ferrule.Manifest{
		Model: "board",
		Tools: []ferrule.Tool{
			{Name: "write", Text: "as the device says", Input: json.RawMessage(`{"type":"object","properties":{"pin":{"type":"string","description":"which"}}}`)},
			{Name: "plain"},
			{Name: "broken", Input: json.RawMessage(`{"type":"object","properties":5}`)},
			{Name: "declared", Effect: ferrule.Reads},
			{Name: "gone", Quarantine: "listed twice"},
			{Name: "measure", Effect: ferrule.Reads, Output: json.RawMessage(`{"type":"object","properties":{"v":{"type":["integer","null"]}}}`)},
			{Name: "vague", Effect: ferrule.Reads, Output: json.RawMessage(`{"type":"array"}`)},
			{Name: "odd", Effect: ferrule.Reads, Output: json.RawMessage(`{"$ref":"#"}`)},
		},
		Pins: []ferrule.Pin{
			{Number: 2, Name: "led", Type: "digital_output"},
			{Number: 4, Type: "digital_output"},
			{Number: 34, Name: "light", Type: "adc_input", Abilities: []string{"buffer"}},
			{Number: 35, Name: "heat", Type: "adc_input"},
		},
	}
}

// said is a tool as JSON, so that tests can compare it.
func said(t *testing.T, m *ferrule.Manifest, name string) string {
	t.Helper()
	data, err := json.Marshal(m.Tool(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLay(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		tool  string
		want  string
	}{
		"nothing is known": {
			nil, "plain", `{"name":"plain","effect":"changes"}`,
		},
		"the device's own effect counts": {
			nil, "declared", `{"name":"declared","effect":"reads"}`,
		},
		"the overlay's effect counts more": {
			[]string{`{"tools":{"declared":{"effect":"endangers"}}}`},
			"declared", `{"name":"declared","effect":"endangers"}`,
		},
		"everything at once": {
			[]string{`{"tools":{"plain":{"about":"x","text":"T\u0007","effect":"reads","idempotent":true,"user_only":true,"deadline":"5s","cache":"2s","input":{"properties":{"n":{"type":"integer"}}}}}}`},
			"plain", `{"name":"plain","text":"T ","input":{"properties":{"n":{"type":"integer"}},"type":"object"},"effect":"reads","idempotent":true,"user_only":true,"deadline":"5s","cache":"2s"}`,
		},
		"nothing is kept where the owner says so": {
			[]string{
				`{"match":{"device":"robot"},"tools":{"declared":{"cache":"0s"}}}`,
				`{"tools":{"declared":{"cache":"1h"}}}`,
			},
			"declared", `{"name":"declared","effect":"reads","cache":"0s"}`,
		},
		"a patch keeps what it does not name": {
			[]string{`{"tools":{"write":{"input":{"properties":{"pin":{"type":"integer"}},"required":["pin"]}}}}`},
			"write", `{"name":"write","text":"as the device says","input":{"properties":{"pin":{"description":"which","type":"integer"}},"required":["pin"],"type":"object"},"effect":"changes"}`,
		},
		"a patch removes with null": {
			[]string{`{"tools":{"write":{"input":{"properties":{"pin":null}}}}}`},
			"write", `{"name":"write","text":"as the device says","input":{"properties":{},"type":"object"},"effect":"changes"}`,
		},
		"pins by type": {
			[]string{`{"tools":{"write":{"pins":{"pin":{"types":["digital_output"]}}}}}`},
			"write", `{"name":"write","text":"as the device says","input":{"properties":{"pin":{"description":"which (2 is led, 4)","enum":[2,4],"type":"integer"}},"type":"object"},"effect":"changes"}`,
		},
		"pins by ability, of a tool without a schema": {
			[]string{`{"tools":{"plain":{"pins":{"pin":{"ability":"buffer"}}}}}`},
			"plain", `{"name":"plain","input":{"properties":{"pin":{"description":"(34 is light)","enum":[34],"type":"integer"}},"type":"object"},"effect":"changes"}`,
		},
		"no such pin": {
			[]string{`{"tools":{"plain":{"pins":{"pin":{"types":["pwm_output"],"ability":"buffer"}}}}}`},
			"plain", `{"name":"plain","effect":"changes","quarantine":"the device has no pin of type pwm_output with ability buffer"}`,
		},
		"a schema that cannot be used": {
			nil, "broken", `{"name":"broken","effect":"changes","quarantine":"its input schema cannot be used: it is no JSON Schema: properties: got number, want object"}`,
		},
		"the schema of answers": {
			nil, "measure", `{"name":"measure","output":{"properties":{"v":{}},"type":"object"},"effect":"reads"}`,
		},
		"the schema of answers that not everybody can read": {
			nil, "vague", `{"name":"vague","effect":"reads"}`,
		},
		"a schema of answers that cannot be used": {
			nil, "odd", `{"name":"odd","effect":"reads","quarantine":"its output schema cannot be used: it refers to itself"}`,
		},
		"and can be replaced": {
			[]string{`{"tools":{"broken":{"input":{"properties":{"a":{"type":"string"}}}}}}`},
			"broken", `{"name":"broken","input":{"properties":{"a":{"type":"string"}},"type":"object"},"effect":"changes"}`,
		},
		"what was quarantined before stays so": {
			[]string{`{"tools":{"gone":{"effect":"reads"}}}`},
			"gone", `{"name":"gone","effect":"reads","quarantine":"listed twice"}`,
		},
		"the more a file matches, the more it counts": {
			[]string{
				`{"match":{"device":"robot"},"tools":{"plain":{"text":"device"}}}`,
				`{"match":{"kind":"0123456789ab"},"tools":{"plain":{"text":"kind","effect":"reads"}}}`,
				`{"match":{"protocol":"d"},"tools":{"plain":{"text":"dialect","effect":"endangers","idempotent":true}}}`,
			},
			"plain", `{"name":"plain","text":"device","effect":"reads","idempotent":true}`,
		},
		"what does not match does not count": {
			[]string{
				`{"match":{"device":"other"},"tools":{"plain":{"text":"device"}}}`,
				`{"match":{"kind":"ffffffffffff"},"tools":{"plain":{"text":"kind"}}}`,
				`{"match":{"protocol":"e"},"tools":{"plain":{"text":"dialect"}}}`,
				`{"match":{"protocol":"d","device":"other"},"tools":{"plain":{"text":"both"}}}`,
			},
			"plain", `{"name":"plain","effect":"changes"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var files []*overlay.File
			for _, text := range test.files {
				files = append(files, parse(t, text))
			}
			m := board()
			laid := overlay.NewSet(files...).Apply("d", "0123456789abcdef", "robot", m)
			if got := said(t, laid, test.tool); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if !reflect.DeepEqual(m, board()) {
				t.Error("the device's own manifest was changed")
			}
		})
	}
}

func TestCheckIsLaid(t *testing.T) {
	set := overlay.NewSet(parse(t, `{"tools":{"write":{"input":{"required":["pin"]},"pins":{"pin":{"types":["digital_output"]}}}}}`))
	tool := set.Apply("d", "", "robot", board()).Tool("write")
	if got := tool.Check(map[string]any{"pin": json.Number("258")}); len(got) != 1 || got[0] != "pin: want one of 2, 4, got 258" {
		t.Errorf("got %q", got)
	}
	if got := tool.Check(map[string]any{"pin": json.Number("4")}); got != nil {
		t.Errorf("got %q", got)
	}
}

// TestWhole: a schema is kept as the device has it, unless something stands in it that is
// shown to nobody.
func TestWhole(t *testing.T) {
	for input, kept := range map[string]bool{
		`{"type":"object","$defs":{"n":{"type":"integer"}},"properties":{"n":{"$ref":"#/$defs/n"}},"anyOf":[{"required":["n"]}]}`: true,
		`{"type":"object","properties":{"n":{"description":"a\u202eb"}}}`:                                                         false,
		`{"type":"object","$comment":"\u200b"}`:                                                                                   false,
		`{"type":"object","examples":["` + strings.Repeat("x", ferrule.MaxText+1) + `"]}`:                                         false,
		`{"type":"object","properties":{"n":{"x-mcp-h\u0065ader":"N"}}}`:                                                          false,
		`{"properties":{"n":{"type":"integer"}}}`:                                                                                 false,
	} {
		m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "t", Input: json.RawMessage(input)}}}
		tool := overlay.NewSet().Apply("d", "", "robot", m).Tool("t")
		if tool.Quarantine != "" || (tool.FullInput != nil) != kept {
			t.Errorf("%s is kept as %s%s", input, tool.FullInput, tool.Quarantine)
		}
	}
}

func TestNames(t *testing.T) {
	set := overlay.NewSet(parse(t, `{"match":{"device":"robot"},"tools":{}}`), parse(t, `{"tools":{}}`))
	if !set.MatchesDevice("robot") || set.MatchesDevice("other") || set.MatchesDevice("") {
		t.Error("which devices are named is wrong")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{``, "EOF"},
		{`{"tools":{}} {}`, "something follows"},
		{`{"tool":{}}`, `unknown field "tool"`},
		{`{"tools":{"a":{"efect":"reads"}}}`, `unknown field "efect"`},
		{`{"tools":{"a":{"effect":"read"}}}`, `tools.a.effect: want reads, changes or endangers, got "read"`},
		{`{"tools":{"a":{"deadline":"-5s"}}}`, `tools.a.deadline: -5s is less than nothing`},
		{`{"tools":{"a":{"deadline":"soon"}}}`, `invalid duration`},
		{`{"tools":{"a":{"cache":"-5s"}}}`, `tools.a.cache: want from 0s to 1h0m0s, got -5s`},
		{`{"tools":{"a":{"cache":"61m"}}}`, `tools.a.cache: want from 0s to 1h0m0s, got 1h1m0s`},
		{`{"tools":{"a":{"input":[]}}}`, `tools.a.input: want an object`},
		{`{"tools":{"a":{"pins":{"pin":{}}}}}`, `tools.a.pins.pin: want types, or an ability`},
		{`{"match":{"kind":"xyz"},"tools":{}}`, `match.kind: want 12 to 64 hexadecimal digits`},
		{`{"match":{"device":"a__b"},"tools":{}}`, `match.device: name "a__b"`},
		{`{"about":"` + strings.Repeat("x", 1<<20) + `","tools":{}}`, `at most 1048576`},
	} {
		if _, err := overlay.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: got %v, want %q", test.text, err, test.want)
		}
	}
}

// FuzzParse lays whatever parses on a board: a tool is then usable, or has a
// reason why it is not.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"match":{"protocol":"d","kind":"0123456789ab","device":"robot"},"tools":{"write":{"text":"t","effect":"reads","idempotent":false,"deadline":"1s","input":{"properties":{"pin":{"type":"integer"}}},"pins":{"pin":{"types":["digital_output"]}}}}}`))
	f.Add([]byte(`{"tools":{"plain":{"input":{"properties":null,"type":["object"]},"pins":{"a.b":{"ability":"buffer"}}}}}`))
	f.Add([]byte(`{"tools":{"broken":{"input":{"properties":{"a":{"$ref":"#"}}}}}}`))
	f.Add([]byte(`{"polls":{"heat":{"tool":"measure","args":{"pin":35},"every":"10s","unit":"°C"},"light":{"every":"0s"}}}`))
	builtin, err := os.ReadFile("../protocol/mcpu/overlay.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(builtin)
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := overlay.Parse(data)
		if err != nil {
			return
		}
		laid := overlay.NewSet(file).Apply("d", "0123456789abcdef", "robot", board())
		for _, tool := range laid.Tools {
			if tool.Effect == "" {
				t.Errorf("%s has no effect", tool.Name)
			}
			if tool.Check != nil {
				tool.Check(map[string]any{"pin": json.Number("2")})
			}
			if len(tool.Input) > 0 && tool.Check == nil && tool.Quarantine == "" {
				t.Errorf("%s has a schema, and nothing checks it: %s", tool.Name, tool.Input)
			}
		}
		for _, p := range laid.Polls {
			if err := ferrule.CheckSignal(p.Name); err != nil || p.Every != nil && *p.Every < 0 || len(p.Unit) > ferrule.MaxUnit {
				t.Errorf("%+v was laid: %v", p, err)
			}
		}
	})
}

func TestMisses(t *testing.T) {
	parse := func(text string) *overlay.File {
		f, err := overlay.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	set := overlay.NewSet(
		parse(`{"match":{"protocol":"d"},"tools":{"of_the_protocol":{"effect":"reads"}}}`),
		parse(`{"match":{"device":"robot"},"tools":{"plain":{"effect":"reads"},"pian":{},"alpin":{}}}`),
		parse(`{"match":{"device":"other"},"tools":{"plani":{}}}`),
	)
	want := []string{`an overlay speaks of a tool "alpin", which it does not have`, `an overlay speaks of a tool "pian", which it does not have`}
	if got := set.UnknownTools("d", "0123456789abcdef", "robot", board()); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
