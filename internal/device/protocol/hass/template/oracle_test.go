package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// oracle is a program that renders templates with Jinja2, one case a line. The filters are
// those that Home Assistant defines in its own way, from their documentation.
const oracle = `
import json, sys
import jinja2
from jinja2 import filters
from jinja2.sandbox import ImmutableSandboxedEnvironment

class NotGiven: pass

def to_float(value, default=NotGiven):
    try:
        return float(value)
    except (ValueError, TypeError):
        if default is NotGiven: raise ValueError("no default")
        return default

def to_int(value, default=NotGiven, base=10):
    result = filters.do_int(value, default=default, base=base)
    if result is NotGiven: raise ValueError("no default")
    return result

def to_round(value, precision=0, method="common", default=NotGiven):
    import math
    try:
        m = float(10 ** precision)
        if method == "ceil": value = math.ceil(float(value) * m) / m
        elif method == "floor": value = math.floor(float(value) * m) / m
        elif method == "half": value = round(float(value) * 2) / 2
        else: value = round(float(value), precision)
        return int(value) if precision == 0 else value
    except (ValueError, TypeError):
        if default is NotGiven: raise ValueError("no default")
        return default

def is_defined(value):
    if isinstance(value, jinja2.Undefined): value()
    return value

def iif(value, if_true=True, if_false=False, if_none=NotGiven):
    if value is None and if_none is not NotGiven: return if_none
    return if_true if bool(value) else if_false

def from_json(value, default=NotGiven):
    try:
        return json.loads(value)
    except (ValueError, TypeError):
        if default is NotGiven: raise ValueError("no default")
        return default

env = ImmutableSandboxedEnvironment()
env.filters.update(float=to_float, int=to_int, round=to_round, is_defined=is_defined, iif=iif, from_json=from_json)
env.globals = dict(float=to_float, int=to_int, iif=iif, min=min, max=max)
known = {}
for line in sys.stdin:
    case = json.loads(line)
    try:
        if case["template"] not in known: known[case["template"]] = env.from_string(case["template"])
        names = case["vars"] or {}
        if "payload" in case:
            names = dict(names, value=case["payload"])
            try: names["value_json"] = json.loads(case["payload"])
            except ValueError: pass
        print(json.dumps({"text": known[case["template"]].render(names).strip()}))
    except Exception as e:
        print(json.dumps({"error": type(e).__name__ + ": " + str(e)}))
`

// rendering is one case for the oracle.
type rendering struct {
	Template string         `json:"template"`
	Vars     map[string]any `json:"vars"`
	Payload  *string        `json:"payload,omitempty"`
}

// interpreter returns a Python that has Jinja2. The one of the distribution may not be the
// first in the path.
func interpreter(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(program, "-c", "import jinja2").Run() == nil {
			return program
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("install python3-jinja2")
	}
	t.Skip("needs python3-jinja2")
	return ""
}

// ask renders all cases with Jinja2. A text is nil if Jinja2 fails.
func ask(t *testing.T, cases []rendering) []*string {
	t.Helper()
	python := interpreter(t)
	var in bytes.Buffer
	for _, c := range cases {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	cmd := exec.Command(python, "-c", oracle)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var texts []*string
	for line := range bytes.Lines(out) {
		var answer struct{ Text *string }
		if err := json.Unmarshal(line, &answer); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, answer.Text)
	}
	if len(texts) != len(cases) {
		t.Fatalf("%d answers for %d cases", len(texts), len(cases))
	}
	return texts
}

// refusals are errors of Render where Jinja2 may give a text, with the reason.
var refusals = map[string]string{
	"* needs numbers":                             "the repetition of texts is a way to fill the memory",
	"% needs numbers":                             "the format of texts is a way to fill the memory",
	"truncate needs a text":                       "the length of a list is not that of its text",
	"values of different types cannot be ordered": "no known template compares lists",
}

// agree checks that Render and Jinja2 give the same bytes, or both fail.
func agree(t *testing.T, cases []rendering) {
	t.Helper()
	wants := ask(t, cases)
	failed, refused, wrong := 0, 0, 0
	shown := map[string]int{}
	for i, c := range cases {
		parsed, err := Parse(c.Template)
		if err != nil {
			t.Fatalf("%s: %v", c.Template, err)
		}
		vars := Vars{}
		if c.Payload != nil {
			vars = Payload([]byte(*c.Payload))
		}
		maps.Copy(vars, c.Vars)
		got, err := parsed.Render(vars)
		want := wants[i]
		if err != nil {
			failed++
			if want != nil && refusals[err.Error()] != "" {
				refused++
				continue
			}
		}
		if (want == nil) == (err != nil) && (want == nil || *want == got) {
			continue
		}
		wrong++
		if shown[c.Template]++; shown[c.Template] <= 2 {
			payload := ""
			if c.Payload != nil {
				payload = *c.Payload
			}
			t.Errorf("%s\nwith %.300s %v:\n%q, %v\nJinja2: %s", c.Template, payload, c.Vars, got, err, quoted(want))
		}
	}
	t.Logf("%d renderings, %d fail, %d of them by intention, %d differ", len(cases), failed, refused, wrong)
}

func quoted(s *string) string {
	if s == nil {
		return "fails"
	}
	return fmt.Sprintf("%q", *s)
}

// samples are values of payloads, as JSON.
var samples = []string{
	"0", "1", "5", "100", "-7", "21.0", "0.1", "1e-05", "1E16", "123456.789", "-0.0", "12345678901234567890123", "9007199254740993.0",
	"true", "false", "null", `""`, `"ON"`, `" x y "`, `"5"`, `"2.5"`, `"it's \"q\" \u00e9\u0007\n\\ \ud83d\ude00"`,
	`[]`, `[1, "a", null, 2.50, [true]]`, `{}`, `{"z": 1, "a": {"k": [null, "v"]}, "é": "'"}`,
}

var (
	pathPattern = regexp.MustCompile(`value_json((?:\.\w+|\[["'][^"']+["']\])+)`)
	keyPattern  = regexp.MustCompile(`\.(\w+)|\[["']([^"']+)["']\]`)
	textPattern = regexp.MustCompile(`'([^']*)'|"([^"{}]*)"`)
)

// quotedTexts returns the texts in quotes of a template, as JSON.
func quotedTexts(template string) []string {
	var made []string
	for _, m := range textPattern.FindAllStringSubmatch(template, -1) {
		s, _ := json.Marshal(m[1] + m[2])
		if !slices.Contains(made, string(s)) {
			made = append(made, string(s))
		}
	}
	return made
}

// payloads returns payloads that fit a template: each path that it reads has each of many
// values, or is missing at one of its keys.
func payloads(template string) []string {
	var paths [][]string
	for _, m := range pathPattern.FindAllStringSubmatch(template, -1) {
		var path []string
		for _, key := range keyPattern.FindAllStringSubmatch(m[1], -1) {
			if name := key[1] + key[2]; name != "get" {
				path = append(path, name)
			}
		}
		if !slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, path) }) {
			paths = append(paths, path)
		}
	}
	values := append(slices.Clone(samples), quotedTexts(template)...)
	made := []string{"", "ON", "5", "{", "[]", "null", "true", `{"other": 1}`, `"text"`}
	for n := range values {
		tree := map[string]any{"other": 1}
		for i, path := range paths {
			put(tree, path, json.RawMessage(values[(n+i*(n%7))%len(values)]))
		}
		s, _ := json.Marshal(tree)
		made = append(made, string(s))
		for i, path := range paths {
			if n%5 != i%5 {
				continue
			}
			part := map[string]any{}
			for other := range paths {
				if other != i {
					put(part, paths[other], json.RawMessage(values[n]))
				}
			}
			for cut := range path[:len(path)-1] {
				put(part, path[:cut+1], map[string]any{})
			}
			s, _ := json.Marshal(part)
			made = append(made, string(s))
		}
	}
	return made
}

// put sets a value in a tree of mappings.
func put(tree map[string]any, path []string, v any) {
	for _, key := range path[:len(path)-1] {
		next, ok := tree[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[key] = next
		}
		tree = next
	}
	tree[path[len(path)-1]] = v
}

// commands returns the variables of commands that fit a template.
func commands(template string) []map[string]any {
	values := []any{"", "ON", "5", " x ", 5, 0, 50.5, true, nil}
	for _, s := range quotedTexts(template) {
		var v string
		_ = json.Unmarshal([]byte(s), &v)
		values = append(values, v)
	}
	made := []map[string]any{{}}
	for _, v := range values {
		made = append(made, map[string]any{"value": v}, map[string]any{"value": v, "position": 40, "tone": v, "code": v})
	}
	for _, level := range []any{0, 0.1, 0.25, 0.5, 0.7, 1, "0.6"} {
		made = append(made, map[string]any{"volume_level": level, "duration": 10}, map[string]any{"volume_level": level, "tone": "fire"})
	}
	return made
}

// corpusTemplates returns the templates of the corpus and how often each is used.
func corpusTemplates(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, m := range zigbee.Corpus(t) {
		var payload any
		if err := json.Unmarshal([]byte(m.Payload), &payload); err != nil {
			t.Fatal(err)
		}
		collect(payload, found)
	}
	return found
}

// collect counts the templates of a discovery message.
func collect(v any, found map[string]int) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if s, ok := member.(string); ok && strings.HasSuffix(key, "template") {
				found[s]++
			}
			collect(member, found)
		}
	case []any:
		for _, e := range v {
			collect(e, found)
		}
	}
}

// unsupported are the templates of the corpus that Parse refuses, with the reason.
var unsupported = map[string]string{
	"{{ now().strftime('%Y-%m-%d %H:%M:%S') }}": "it reads the clock; one button of one device uses it",
}

// TestCorpus checks that all templates of the corpus give the bytes of Jinja2.
func TestCorpus(t *testing.T) {
	found := corpusTemplates(t)
	var cases []rendering
	uses, walked, evaluated, refused := 0, 0, 0, 0
	for _, text := range slices.Sorted(maps.Keys(found)) {
		uses += found[text]
		parsed, err := Parse(text)
		if err != nil {
			if refused++; unsupported[text] == "" {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if parsed.path != nil {
			walked++
		} else {
			evaluated++
		}
		for i, payload := range payloads(text) {
			// Paths differ only in their names: a few payloads for each are enough.
			if parsed.path == nil || i%6 == walked%6 {
				cases = append(cases, rendering{Template: text, Payload: &payload})
			}
		}
		if parsed.path == nil {
			for _, vars := range commands(text) {
				cases = append(cases, rendering{Template: text, Vars: vars})
			}
		}
	}
	t.Logf("%d templates, %d different: %d read a path, %d are evaluated, %d are refused", uses, len(found), walked, evaluated, refused)
	agree(t, cases)
}
