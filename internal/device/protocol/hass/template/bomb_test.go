package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// bombs are templates that take memory or time without end in a general engine.
var bombs = map[string]string{
	"doubling":         "{% set a='xxxxxxxxxxxxxxxx' %}" + strings.Repeat("{% set a=a~a %}", 24) + "{{ a }}",
	"doubled list":     "{% set a=[1,2,3,4] %}" + strings.Repeat("{% set a=a+a %}", 24) + "{{ a }}",
	"nested list":      "{% set a=[1,2,3,4] %}" + strings.Repeat("{% set a=[a,a] %}", 30) + "{{ a }}",
	"nested equality":  "{% set a=[1] %}{% set b=[1] %}" + strings.Repeat("{% set a=[a,a] %}{% set b=[b,b] %}", 30) + "{{ a == b }}",
	"nested mapping":   "{% set a={} %}" + strings.Repeat("{% set a={'a':a,'b':a} %}", 30) + "{{ a | tojson }}",
	"many variables":   "{% set a='xxxxxxxxxxxxxxxx' %}" + strings.Repeat("{% set a=a~a %}", 9) + many("{%% set b%d=a~a %%}", 180),
	"replacement":      "{% set a='xxxxxxxxxxxxxxxx' %}" + strings.Repeat("{% set a=a.replace('x',a) %}", 8) + "{{ a }}",
	"replaced nothing": "{% set a='xxxxxxxxxxxxxxxx' %}" + strings.Repeat("{% set a=a.replace('',a) %}", 8) + "{{ a }}",
	"join":             "{% set a='xxxxxxxxxxxxxxxx' %}" + strings.Repeat("{% set a=a|join(a) %}", 8) + "{{ a }}",
	"split":            "{% set a=value.split('x') %}" + many("{%% set b%d=value.split('x') %%}", 100),
	"searches":         "{{ 0 " + strings.Repeat("+ (value~'y' in value) ", 100) + "}}",
	"equal members":    "{{ 0 " + strings.Repeat("+ (value_json == value_json) ", 100) + "}}",
	"trim":             "{{ value.strip('" + strings.Repeat("abcdefghij", 300) + "x') }}" + strings.Repeat("{{ value.strip('abcx') }}", 30),
	"long chain":       "{{ 1" + strings.Repeat("+1", 2000) + "}}",
	"long path":        "{{ a" + strings.Repeat(".a", 2000) + "}}",
	"output":           strings.Repeat("{{ value }}", 300),
	"numbers":          "{% set a=9 %}" + strings.Repeat("{% set a=a*a %}", 200) + "{{ a }}",
	"fractions":        "{% set a=9.0 %}" + strings.Repeat("{% set a=a*a %}", 200) + "{{ a | int }}",
	"JSON in JSON":     strings.Repeat("{{ (value_json | tojson | from_json) == value_json }}", 70),
}

// many returns a text with a number, many times.
func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// hostile are payloads that are as bad as they can be for templates.
func hostile() map[string]string {
	return map[string]string{
		"none":         "",
		"16 KB":        strings.Repeat("x", 16<<10),
		"1 MB":         strings.Repeat("x", 1<<20),
		"deep":         strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deep objects": strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		"wide":         "[" + strings.Repeat("1,", 15000) + "1]",
		"wide object":  "{" + many(`"k%d":1,`, 15000) + `"a":1}`,
		"too wide":     "[" + strings.Repeat("1,", 200000) + "1]",
	}
}

// TestBombs checks that templates end within the limit of steps and with little memory.
func TestBombs(t *testing.T) {
	var longest time.Duration
	for name, text := range bombs {
		for kind, payload := range hostile() {
			took, allocated, out, err := measured(text, payload)
			for range 5 { // Other processes may take the time.
				if took > 50*time.Millisecond {
					again, _, _, _ := measured(text, payload)
					took = min(took, again)
				}
			}
			longest = max(longest, took)
			// The payload itself is the broker's: its text and its members are allowed.
			if limit := 1<<20 + 120*uint64(len(payload)); allocated > limit*slack {
				t.Errorf("%s with %s allocates %d KB", name, kind, allocated>>10)
			}
			if len(out) > maxValue {
				t.Errorf("%s with %s gives %d bytes, %v", name, kind, len(out), err)
			}
		}
	}
	figure.AtMost(t, "the longest evaluation", longest, 50*time.Millisecond*slack)
}

// bounded renders a template. It panics if the evaluation succeeds beyond its limits.
func bounded(t *Template, payload string) (string, error) {
	vars := Payload([]byte(payload))
	if t.path != nil {
		return t.Render(vars)
	}
	r := &run{vars: vars}
	out, err := r.render(t.body)
	if err == nil && (r.steps > maxSteps || r.total > maxTotal) {
		panic(fmt.Sprintf("%d steps, %d bytes", r.steps, r.total))
	}
	return out, err
}

// measured renders a template and measures it.
func measured(text, payload string) (took time.Duration, allocated uint64, out string, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	parsed, err := Parse(text)
	if err == nil {
		out, err = bounded(parsed, payload)
	}
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return took, after.TotalAlloc - before.TotalAlloc, out, err
}

// TestBombsFail checks that the limits end the templates that only grow.
func TestBombsFail(t *testing.T) {
	for _, name := range []string{"doubling", "doubled list", "nested list", "nested equality", "nested mapping", "many variables", "replacement", "replaced nothing", "join", "long chain", "numbers"} {
		if parsed, err := Parse(bombs[name]); err == nil {
			if out, err := parsed.Render(Payload([]byte("x"))); err == nil {
				t.Errorf("%s gives %.40s", name, out)
			}
		}
	}
}

// TestBombsCount checks that reading a large payload again and again counts as steps.
func TestBombsCount(t *testing.T) {
	for name, kind := range map[string]string{
		"searches": "1 MB", "split": "1 MB", "output": "1 MB", "trim": "16 KB", "equal members": "wide", "nested equality": "none",
	} {
		parsed, err := Parse(bombs[name])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parsed.Render(Payload([]byte(hostile()[kind]))); !errors.Is(err, errTooLong) {
			t.Errorf("%s with %s: %v, want %v", name, kind, err, errTooLong)
		}
	}
}

// TestRefused checks that Parse refuses what is not known, and names it without the texts
// of the template: they can be secrets.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{% for a in value %}{{ a }}{% endfor %}":           `"for"`,
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":   `"macro"`,
		"{% include '/etc/passwd' %}":                       `"include"`,
		"{% import 'x' as y %}":                             `"import"`,
		"{% block x %}{% endblock %}":                       `"block"`,
		"{% raw %}{% endraw %}":                             `"raw"`,
		"{{ 'x'|center(1000000000) }}":                      `"center"`,
		"{{ range(1000000000) }}":                           `"range"`,
		"{{ 9**9**9 }}":                                     "**",
		"{{ ''.__class__.__mro__() }}":                      `"__mro__"`,
		"{{ value_json.items() }}":                          `"items"`,
		"{{ states('lock.front') }}":                        `"states"`,
		"{{ now() }}":                                       `"now"`,
		"{{ value is divisibleby 3 }}":                      `"divisibleby"`,
		"{{ value[::2] }}":                                  `":"`,
		"{{ 'secret' 1 }}":                                  "a number",
		"{{ 1 'secret' }}":                                  "a text",
		"{{ 'secret }}":                                     "closing quote",
		"{{ value":                                          "the end",
		"{{ }}":                                             `"}}"`,
		"{% if value %}x":                                   "no end",
		"{% endif %}":                                       `"endif"`,
		"{{ value %}":                                       `"%}"`,
		"{{ (1, 2) }}":                                      `","`,
		"{{ value | default('secret', 1, 2) }}":             `"default"`,
		"{{ value | replace('secret') }}":                   "more arguments",
		"{{ value | default(x='secret') }}":                 `"default"`,
		"{{ 007 }}":                                         "a number",
		"{{ value ! }}":                                     `"!"`,
		"{{ \x1b }}":                                        `"\x1b"`,
		"{{ " + strings.Repeat("(", 500) + "}}":             "too deeply",
		"{{ " + strings.Repeat("- ", 500) + "1 }}":          "too deeply",
		strings.Repeat("{% if 1 %}", 100):                   "too deeply",
		"{{ value }}" + strings.Repeat(" ", maxText):        "longer than",
		"{{ " + strings.Repeat("secret", 50) + "() }}":      "…",
		"{% set x %}secret{% endset %}":                     `"%}"`,
		"{% set if = 1 %}":                                  `"if"`,
		"{#  secret":                                        "no end",
		"{{ value | " + strings.Repeat("lower|", 9) + " }}": `"}}"`,
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 120 {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") && want != "…" {
			t.Errorf("%.60s: the error has the secret: %v", text, err)
		}
	}
}

// TestRenderFails checks what has no text, and that errors have no values.
func TestRenderFails(t *testing.T) {
	for text, want := range map[string]string{
		"{{ value_json.no.key }}":             `"no" is missing`,
		"{{ value_json.no['key'] }}":          `"no" is missing`,
		"{{ value_json.code | int }}":         "needs a number",
		"{{ value_json.code + 1 }}":           "needs numbers",
		"{{ value_json.code / 0 }}":           "needs numbers",
		"{{ 1 / 0 }}":                         "division by zero",
		"{{ value_json.items }}":              `"items"`,
		"{{ value_json.no | is_defined }}":    `"no" is missing`,
		"{{ value_json.code.get('x') }}":      "not a mapping",
		"{{ 9223372036854775807 + 1 }}":       "too large",
		"{{ value_json.code in 5 }}":          "in needs",
		"{{ value_json.code | from_json }}":   "from_json",
		"{{ value_json.keys() }}":             "cannot be printed",
		"{{ {[1]: 2} }}":                      "cannot be a key",
		"{{ value_json.no.lower() }}":         `"no" is missing`,
		"{{ value_json.code | round('a') }}":  "whole number",
		"{{ value_json.code.split('') }}":     "empty separator",
		"{{ -9223372036854775807 - 2 }}":      "too large",
		"{{ 4294967296 * 4294967296 }}":       "too large",
		"{{ -value_json.code }}":              "needs a number",
		"{{ value_json.code.x.y }}":           `"x" is missing`,
		"{{ value_json.code.startswith(1) }}": "not a text",
	} {
		_, err := render1(t, text, `{"code": "hush1234"}`)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := render1(t, "{{ value_json.a }}", "ON"); err == nil {
		t.Error("a path of a payload that is not JSON has a text")
	}
	parsed, _ := Parse("{{ value }}")
	if _, err := parsed.Render(Vars{"value": struct{}{}}); err == nil {
		t.Error("an unknown type has a text")
	}
}

// TestVars checks the Go types of variables.
func TestVars(t *testing.T) {
	parsed, err := Parse("{{ value }} {{ value | tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value any
		want  string
	}{
		{5, "5 5"}, {int64(5), "5 5"}, {5.0, "5.0 5.0"}, {json.Number("5.10"), "5.1 5.1"}, {json.Number("5"), "5 5"}, {true, "True true"}, {nil, "None null"}, {"a", `a "a"`},
		{[]any{1, json.Number("2")}, "[1, 2] [1, 2]"}, {map[string]any{"b": 1, "a": []any{}}, `{'a': [], 'b': 1} {"a": [], "b": 1}`},
	} {
		if got, err := parsed.Render(Vars{"value": c.value}); got != c.want || err != nil {
			t.Errorf("%v: %s, %v", c.value, got, err)
		}
	}
}

// TestShared checks that equal templates share one value, and that the shared ones do not
// stay in memory when they are no longer used.
func TestShared(t *testing.T) {
	const n = 2000
	used := make([]*Template, n)
	for i := range used {
		text := fmt.Sprintf("{{ value_json.shared%d }}", i)
		a, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Parse(strings.Clone(text))
		if a != b {
			t.Fatal("equal templates are not shared")
		}
		used[i] = a
	}
	runtime.KeepAlive(used)
	used = nil
	wait.For(t, "unused templates are gone", func() bool {
		runtime.GC()
		left := 0
		shared.mu.Lock()
		for text := range shared.m {
			if strings.Contains(text, "shared") {
				left++
			}
		}
		shared.mu.Unlock()
		return left <= n/10
	})
}

// FuzzTemplate checks that no template and payload panics, and that each evaluation is
// bounded.
func FuzzTemplate(f *testing.F) {
	for _, text := range bombs {
		f.Add(text, `{"a": 1}`)
	}
	for _, text := range append(bodies, expressions...) {
		f.Add("{{ "+replaceWords(text)+" }}", `{"a": [1, 2.5, "x", null, {"b": true}]}`)
		f.Add(strings.ReplaceAll(replaceWords(text), "first", "value_json.a"), `{"a": "\u00e9\ud83d\ude00", "a": -0.0}`)
	}
	f.Fuzz(func(t *testing.T, text, payload string) {
		out := ""
		parsed, err := Parse(text)
		if err == nil {
			out, err = bounded(parsed, payload)
		}
		if len(out) > maxValue {
			t.Errorf("gave %d bytes", len(out))
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("long error: %v", err)
		}
	})
}

func BenchmarkPath(b *testing.B) {
	parsed, err := Parse(`{{ value_json["temperature"] }}`)
	if err != nil {
		b.Fatal(err)
	}
	vars := Payload([]byte(`{"battery":97,"humidity":45.25,"linkquality":120,"temperature":21.25,"voltage":3005}`))
	b.ReportAllocs()
	for b.Loop() {
		if s, err := parsed.Render(vars); s != "21.25" || err != nil {
			b.Fatal(s, err)
		}
	}
}

func BenchmarkPayload(b *testing.B) {
	parsed, err := Parse(`{{ value_json["temperature"] }}`)
	if err != nil {
		b.Fatal(err)
	}
	payload := []byte(`{"battery":97,"humidity":45.25,"linkquality":120,"temperature":21.25,"voltage":3005}`)
	b.ReportAllocs()
	for b.Loop() {
		if s, err := parsed.Render(Payload(payload)); s != "21.25" || err != nil {
			b.Fatal(s, err)
		}
	}
}

func BenchmarkExpression(b *testing.B) {
	parsed, err := Parse(`{% if "position" in value_json and value_json["position"] == 0 %}CLOSE{% else %}{{ value_json.a | float * 0.1 }}{% endif %}`)
	if err != nil {
		b.Fatal(err)
	}
	vars := Payload([]byte(`{"position":5,"a":215}`))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parsed.Render(vars); err != nil {
			b.Fatal(err)
		}
	}
}
