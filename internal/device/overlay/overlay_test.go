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

// board has a tool of each sort.
func board() *ferrule.Manifest {
	return &ferrule.Manifest{
		Model: "board",
		Tools: []ferrule.Tool{
			{Name: "write", Text: "as the device says", Input: json.RawMessage(`{"type":"object","properties":{"pin":{"type":"string","description":"which"}}}`)},
			{Name: "plain"},
			{Name: "broken", Input: json.RawMessage(`{"type":"object","properties":5}`)},
			{Name: "declared", Effect: ferrule.Reads},
			{Name: "gone", Quarantine: "duplicate name"},
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

// toolJSON returns a tool as JSON.
func toolJSON(t *testing.T, m *ferrule.Manifest, name string) string {
	t.Helper()
	data, err := json.Marshal(m.Tool(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestApply(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		tool  string
		want  string
	}{
		"no overlay": {
			nil, "plain", `{"name":"plain","effect":"changes"}`,
		},
		"effect of the device": {
			nil, "declared", `{"name":"declared","effect":"reads"}`,
		},
		"effect of the overlay wins": {
			[]string{`{"tools":{"declared":{"effect":"endangers"}}}`},
			"declared", `{"name":"declared","effect":"endangers"}`,
		},
		"all fields": {
			[]string{`{"tools":{"plain":{"about":"x","text":"T\u0007","effect":"reads","idempotent":true,"user_only":true,"deadline":"5s","cache":"2s","input":{"properties":{"n":{"type":"integer"}}}}}}`},
			"plain", `{"name":"plain","text":"T ","input":{"properties":{"n":{"type":"integer"}},"type":"object"},"effect":"reads","idempotent":true,"user_only":true,"deadline":"5s","cache":"2s"}`,
		},
		"cache disabled by the owner": {
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
		"invalid input schema": {
			nil, "broken", `{"name":"broken","effect":"changes","quarantine":"invalid input schema: not a JSON Schema: properties: got number, want object"}`,
		},
		"output schema": {
			nil, "measure", `{"name":"measure","output":{"properties":{"v":{}},"type":"object"},"effect":"reads"}`,
		},
		"output schema that some clients do not understand": {
			nil, "vague", `{"name":"vague","effect":"reads"}`,
		},
		"invalid output schema": {
			nil, "odd", `{"name":"odd","effect":"reads","quarantine":"invalid output schema: refers to itself"}`,
		},
		"invalid input schema, replaced": {
			[]string{`{"tools":{"broken":{"input":{"properties":{"a":{"type":"string"}}}}}}`},
			"broken", `{"name":"broken","input":{"properties":{"a":{"type":"string"}},"type":"object"},"effect":"changes"}`,
		},
		"quarantine stays": {
			[]string{`{"tools":{"gone":{"effect":"reads"}}}`},
			"gone", `{"name":"gone","effect":"reads","quarantine":"duplicate name"}`,
		},
		"specific files win": {
			[]string{
				`{"match":{"device":"robot"},"tools":{"plain":{"text":"device"}}}`,
				`{"match":{"kind":"0123456789ab"},"tools":{"plain":{"text":"kind","effect":"reads"}}}`,
				`{"match":{"protocol":"d"},"tools":{"plain":{"text":"protocol","effect":"endangers","idempotent":true}}}`,
			},
			"plain", `{"name":"plain","text":"device","effect":"reads","idempotent":true}`,
		},
		"files that do not match": {
			[]string{
				`{"match":{"device":"other"},"tools":{"plain":{"text":"device"}}}`,
				`{"match":{"kind":"ffffffffffff"},"tools":{"plain":{"text":"kind"}}}`,
				`{"match":{"protocol":"e"},"tools":{"plain":{"text":"protocol"}}}`,
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
			effective := overlay.NewSet(files...).Apply("d", "0123456789abcdef", "robot", m)
			if got := toolJSON(t, effective, test.tool); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if !reflect.DeepEqual(m, board()) {
				t.Error("the device's own manifest was changed")
			}
		})
	}
}

func TestApplyCheck(t *testing.T) {
	set := overlay.NewSet(parse(t, `{"tools":{"write":{"input":{"required":["pin"]},"pins":{"pin":{"types":["digital_output"]}}}}}`))
	tool := set.Apply("d", "", "robot", board()).Tool("write")
	if got := tool.Check(map[string]any{"pin": json.Number("258")}); len(got) != 1 || got[0] != "pin must be one of 2, 4, got 258" {
		t.Errorf("got %q", got)
	}
	if got := tool.Check(map[string]any{"pin": json.Number("4")}); got != nil {
		t.Errorf("got %q", got)
	}
}

// TestFullInput checks that a schema with unsafe texts is not shown in full.
func TestFullInput(t *testing.T) {
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

func TestMatchesDevice(t *testing.T) {
	set := overlay.NewSet(parse(t, `{"match":{"device":"robot"},"tools":{}}`), parse(t, `{"tools":{}}`))
	if !set.MatchesDevice("robot") || set.MatchesDevice("other") || set.MatchesDevice("") {
		t.Error("MatchesDevice is wrong")
	}
}

func TestParseInvalid(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{``, "EOF"},
		{`{"tools":{}} {}`, "unexpected data"},
		{`{"tool":{}}`, `unknown field "tool"`},
		{`{"tools":{"a":{"efect":"reads"}}}`, `unknown field "efect"`},
		{`{"tools":{"a":{"effect":"read"}}}`, `tools.a.effect: must be reads, changes or endangers, got "read"`},
		{`{"tools":{"a":{"deadline":"-5s"}}}`, `tools.a.deadline: must not be negative, got -5s`},
		{`{"tools":{"a":{"deadline":"soon"}}}`, `must be a duration`},
		{`{"tools":{"a":{"cache":"-5s"}}}`, `tools.a.cache: must be from 0s to 1h0m0s, got -5s`},
		{`{"tools":{"a":{"cache":"61m"}}}`, `tools.a.cache: must be from 0s to 1h0m0s, got 1h1m0s`},
		{`{"tools":{"a":{"input":[]}}}`, `tools.a.input: must be an object`},
		{`{"tools":{"a":{"pins":{"pin":{}}}}}`, `tools.a.pins.pin: must have types or an ability`},
		{`{"match":{"kind":"xyz"},"tools":{}}`, `match.kind: must be 12 to 64 hexadecimal digits`},
		{`{"match":{"device":"a__b"},"tools":{}}`, `match.device: name "a__b"`},
		{`{"about":"` + strings.Repeat("x", 1<<20) + `","tools":{}}`, `limit is 1048576`},
	} {
		if _, err := overlay.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: got %v, want %q", test.text, err, test.want)
		}
	}
}

// FuzzParse applies whatever parses to a board. Each tool must then be usable or
// quarantined.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"match":{"protocol":"d","kind":"0123456789ab","device":"robot"},"tools":{"write":{"text":"t","effect":"reads","idempotent":false,"deadline":"1s","input":{"properties":{"pin":{"type":"integer"}}},"pins":{"pin":{"types":["digital_output"]}}}}}`))
	f.Add([]byte(`{"tools":{"plain":{"input":{"properties":null,"type":["object"]},"pins":{"a.b":{"ability":"buffer"}}}}}`))
	f.Add([]byte(`{"tools":{"broken":{"input":{"properties":{"a":{"$ref":"#"}}}}}}`))
	f.Add([]byte(`{"polls":{"heat":{"tool":"measure","args":{"pin":35},"every":"10s","unit":"°C"},"light":{"every":"0s"}}}`))
	f.Add([]byte(`{"tools":{"write":{"limits":{"rate":"6/m","cooldown":"10s","range":{"pin":{"min":0,"max":9e1,"step":5,"start":1}},"on_time":{"per":"1h","max":"20m"},"by":["pin"]},"lease":{"for":"10m","off":{"value":false},"then":{"tool":"write","args":{"pin":"$pin","value":false,"x":"$$"}}}}}}`))
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
		effective := overlay.NewSet(file).Apply("d", "0123456789abcdef", "robot", board())
		for _, tool := range effective.Tools {
			if tool.Effect == "" {
				t.Errorf("%s has no effect", tool.Name)
			}
			if l := tool.Lease; l != nil && tool.Quarantine == "" {
				if _, err := l.Then.For(map[string]any{}); (err != nil) != (len(l.Then.Taken()) > 0) || effective.Tool(l.Then.Tool) == nil {
					t.Errorf("%s cannot be undone: %v", tool.Name, err)
				}
			}
			if l := tool.Limits; l != nil && (l.By == nil || l.OnTime != nil && tool.Lease == nil && tool.Quarantine == "") {
				t.Errorf("%s has limits that cannot be kept: %+v", tool.Name, l)
			}
			if tool.Check != nil {
				tool.Check(map[string]any{"pin": json.Number("2")})
			}
			if len(tool.Input) > 0 && tool.Check == nil && tool.Quarantine == "" {
				t.Errorf("%s has a schema, and nothing checks it: %s", tool.Name, tool.Input)
			}
		}
		for _, p := range effective.Polls {
			if err := ferrule.CheckSignal(p.Name); err != nil || p.Every != nil && *p.Every < 0 || len(p.Unit) > ferrule.MaxUnit {
				t.Errorf("%+v: %v", p, err)
			}
		}
	})
}

func TestUnknownTools(t *testing.T) {
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
	want := []string{`an overlay names the tool "alpin", which the device does not have`, `an overlay names the tool "pian", which the device does not have`}
	if got := set.UnknownTools("d", "0123456789abcdef", "robot", board()); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestQuestions: what a device may ask comes from its overlays alone, and the more
// specific one wins.
func TestQuestions(t *testing.T) {
	parse := func(text string) *overlay.File {
		t.Helper()
		f, err := overlay.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	set := overlay.NewSet(
		parse(`{"match":{"device":"lock"},"questions":{"sampling":{"count":0}}}`),
		parse(`{"match":{"protocol":"mcp"},"questions":{"elicitation":{"count":5},"sampling":{"count":10,"tokens":2000}}}`))
	for device, want := range map[string]ferrule.QuestionLimits{
		"lamp": {Elicitation: ferrule.QuestionLimit{Count: 5}, Sampling: ferrule.QuestionLimit{Count: 10, Tokens: 2000}},
		"lock": {Elicitation: ferrule.QuestionLimit{Count: 5}},
	} {
		if got := set.Apply("mcp", "k", device, &ferrule.Manifest{}).Questions; got != want {
			t.Errorf("%s: got %+v, want %+v", device, got, want)
		}
	}
	if got := set.Apply("mcpu", "k", "uno", &ferrule.Manifest{}).Questions; got != (ferrule.QuestionLimits{}) {
		t.Errorf("got %+v", got)
	}
	for _, wrong := range []string{
		`{"questions":{"elicitation":{"count":-1}}}`, `{"questions":{"elicitation":{"count":5000}}}`, `{"questions":{"elicitation":{"count":1,"tokens":1}}}`,
		`{"questions":{"sampling":{"count":1}}}`, `{"questions":{"sampling":{"count":1,"tokens":-1}}}`, `{"questions":{"user":{"count":1}}}`,
	} {
		if _, err := overlay.Parse([]byte(wrong)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// TestStopAction: the most specific overlay says what is called when a device is stopped,
// and what a device cannot do is noted.
func TestStopAction(t *testing.T) {
	parse := func(text string) *overlay.File {
		f, err := overlay.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	set := overlay.NewSet(
		parse(`{"match":{"device":"pump"},"stop":{"tool":"off","args":{"hard":true}}}`),
		parse(`{"stop":{"tool":"off"}}`),
	)
	m := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "off", Input: []byte(`{"type":"object","properties":{"hard":{"type":"boolean"}},"additionalProperties":false}`)}}}
	if a := set.Apply("mcpu", "k", "pump", m).Stop; a == nil || a.Tool != "off" || string(a.Args) != `{"hard":true}` {
		t.Errorf("pump: %+v", a)
	}
	if a := set.Apply("mcpu", "k", "fan", m).Stop; a == nil || a.Args != nil {
		t.Errorf("fan: %+v", a)
	}
	if notes := set.UnknownTools("mcpu", "k", "pump", set.Apply("mcpu", "k", "pump", m)); len(notes) != 0 {
		t.Errorf("notes %q", notes)
	}
	for text, want := range map[string]string{
		`{"match":{"device":"pump"},"stop":{"tool":"of"}}`:                      `stop of an overlay uses the tool "of", which the device does not have`,
		`{"match":{"device":"pump"},"stop":{"tool":"off","args":{"hard":"x"}}}`: "stop of an overlay has invalid arguments for off: ",
	} {
		set := overlay.NewSet(parse(text))
		notes := set.UnknownTools("mcpu", "k", "pump", set.Apply("mcpu", "k", "pump", m))
		if len(notes) != 1 || !strings.HasPrefix(notes[0], want) {
			t.Errorf("%s: notes %q", text, notes)
		}
	}
	held := &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "off", Quarantine: "it changed"}}}
	if notes := set.UnknownTools("mcpu", "k", "fan", held); !slices.Equal(notes, []string{`stop of an overlay uses the tool "off", which cannot be called: it changed`}) {
		t.Errorf("in quarantine: notes %q", notes)
	}
	for text, want := range map[string]string{
		`{"stop":{}}`:                       "stop.tool: must be",
		`{"stop":{"tool":"a\u0007b"}}`:      "stop.tool: must be",
		`{"stop":{"tool":"off","args":[]}}`: "stop.args: must be an object",
		`{"stop":{"tool":"off","arg":{}}}`:  "unknown field",
	} {
		if _, err := overlay.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
