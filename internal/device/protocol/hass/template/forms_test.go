package template

import (
	"fmt"
	"testing"
)

// expressions are forms of expressions. In each, A and B stand for many values.
var expressions = []string{
	"A + B", "A - B", "A * B", "A / B", "A // B", "A % B", "A ~ B", "-A", "+A", "- - A",
	"A == B", "A != B", "A < B", "A <= B", "A > B", "A >= B", "A < B < 100", "A in B", "A not in B",
	"A and B", "A or B", "not A", "not A in B", "A if B", "A if B else 'n'", "1 if A else 2 if B else 3",
	"A is defined", "A is not defined", "A is undefined", "A is none", "A is true", "A is false", "A is string", "A is boolean", "A is integer",
	"A is float", "A is number", "A is mapping", "A is in [B, 1]", "A is eq B", "A is not equalto(B)",
	"A | default", "A | default(B)", "A | d(B, true)", "A | default(boolean=True, default_value=B)", "A | string", "A | lower", "A | upper", "A | capitalize", "A | trim",
	"A | string | trim(' x')", "A | string | truncate(4, true, '', 0)", "A | string | truncate(6)", "A | string | truncate(3, leeway=0)", "A | truncate(4)",
	"A | string | replace('5', B)", "A | replace('o', 'b', 1)", "A | join", "A | join('-')", "A | length", "A | count", "A | first", "A | last",
	"A | int", "A | int(7)", "A | int(default=B)", "A | int(0, 16)", "A | float", "A | float(0)", "A | round", "A | round(1)", "A | round(2, 'floor')", "A | round(1, 'ceil')", "A | round(1, 'half', 9)",
	"A | float(0) * 0.1", "(A | float(0) * 0.1) | round(1)", "A | abs", "-5 | abs", "A | tojson", "A | is_defined", "A | iif('y', 'n')", "A | iif('y', 'n', 'z')", "A | string | from_json(5)",
	"iif(A, B)", "iif(A)", "float(A, 1)", "int(A, 1)", "min(A, B)", "max([A, B])", "max(1, 2.5, 3)",
	"A.get('z')", "A.get('y', B)", "A['z']", "A.z", "A.z.y", "A.a.k[0]", "A[0]", "A[-1]", "A[9]", "A[B]", "A[1:]", "A[:2]", "A[-2:-1]", "A[:]", "A.1",
	"A.split()", "A.split('x')", "A.split('x', 1)", "A.lower()", "A.upper()", "A.strip()", "A.strip(' xO')", "A.lstrip()", "A.rstrip()", "A.replace('O', 'a')", "A.startswith('O')", "A.endswith('N')", "A.keys() | join(',')", "A in B.keys()",
	"[A, B]", "[A, [B]]", "[]", "{'k': A, 1: B}", "{}", "{A: 1, 1: 2}", "{'ON': 1, 5: 2, none: 3, 2.5: 4}[A]", "[A, B] == [B, A]", "{'a': A} == {'a': B}", "A in [B, 'ON', none]", "[A] + [B]",
	`'a' "b" 'c'`, `'\n\x41\u00e9\'\q\\'`, "1e3", "1.50", "true", "None", "none", "missing", "missing.x", "missing | lower", "missing | int(0)", "missing == A", "missing ~ A", "missing | tojson",
}

// bodies are forms of whole templates. In each, A and B stand for many values.
var bodies = []string{
	"{% if A %}x{% elif B %}y{% else %}z{% endif %}", "{%- if A -%}  x  {%- endif -%}  ", "a {%- if A %} x {% endif -%} b", "a {{- A -}} b", "{%+ if A +%}x{% endif %}",
	"{% set x = A %}{{ x }}{% if B %}{% set x = B %}{% endif %}{{ x }}", "{% set value = A %}{{ value }}", "{# comment #}a{#- comment -#} b", "a\r\nb\rc", "{ {{ A }}}", `{"a":{{ {'b': A} }}}`, "{{ {'a': {'b': A}}['a']['b'] }}",
	"{% if A %}{% if B %}1{% else %}2{% endif %}{% else %}3{% endif %}", "%} }} {{ A }}", "a\n", "{% if A is defined and A is not none and A in ['ON', 5] %}{{ A }}{% else %}off{% endif %}",
	"{{ value | default('') }}{{ A }}",
}

// TestForms checks that every form that is understood gives the bytes of Jinja2, with many
// values. The infinite is not among them: versions of Jinja2 differ in its int.
func TestForms(t *testing.T) {
	values := []any{
		nil, true, false, 0, 1, 5, -7, 100, 21.5, 2.675, -0.05, 1e22, 0.1, 1e-7, "", "ON", " x ", "5", "2.5", "-7 ", "0x1f", "nan", "é'\"\\\n\t\u200b",
		"the quick brown fox", []any{}, []any{1, "a", nil}, map[string]any{"a": map[string]any{"k": []any{"v"}}, "z": 1.5}, map[string]any{},
	}
	payload := `{"z": [1, 2.5], "y": "ON", "a": {"k": [null, "v"]}}`
	var cases []rendering
	all := append([]string{}, bodies...)
	for _, e := range expressions {
		all = append(all, "{{ "+e+" }}")
	}
	for _, text := range all {
		text = replaceWords(text)
		for i, a := range values {
			for _, j := range []int{i, i + 1, i + 4, i + 11, i + 17} {
				cases = append(cases, rendering{Template: text, Vars: map[string]any{"first": a, "second": values[j%len(values)]}})
			}
		}
		cases = append(cases, rendering{Template: text, Vars: map[string]any{}}, rendering{Template: text, Payload: &payload, Vars: map[string]any{"second": "ON"}})
	}
	agree(t, cases)
}

// replaceWords replaces the words A and B of a form by the names of variables.
func replaceWords(text string) string {
	made := ""
	for i, r := range text {
		alone := (i == 0 || !isLetter(text[i-1]) && text[i-1] != '\'') && (i+1 == len(text) || !isLetter(text[i+1]) && text[i+1] != '\'')
		switch {
		case r == 'A' && alone:
			made += "first"
		case r == 'B' && alone:
			made += "second"
		default:
			made += string(r)
		}
	}
	return made
}

func ExampleTemplate_Render() {
	t, err := Parse(`{{ value_json["temperature"] | float * 0.1 }}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Render(Payload([]byte(`{"temperature": 215}`))))
	// Output: 21.5 <nil>
}
