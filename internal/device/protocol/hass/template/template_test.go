package template

import (
	"testing"
)

// render1 parses and renders a template with a payload.
func render1(t *testing.T, text, payload string) (string, error) {
	t.Helper()
	parsed, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return parsed.Render(Payload([]byte(payload)))
}

// TestRender checks templates of real publishers and the forms that Python prints.
func TestRender(t *testing.T) {
	for _, c := range []struct{ template, payload, want string }{
		{`{{ value_json.a }}`, `{"a": 21}`, "21"},
		{`{{ value_json.a }}`, `{"a": 21.0}`, "21.0"},
		{`{{ value_json.a }}`, `{"a": 1e-5}`, "1e-05"},
		{`{{ value_json.a }}`, `{"a": 1e16}`, "1e+16"},
		{`{{ value_json.a }}`, `{"a": 123456789012345678901234567890}`, "123456789012345678901234567890"},
		{`{{ value_json.a }}`, `{"a": -0}`, "0"},
		{`{{ value_json.a }}`, `{"a": true}`, "True"},
		{`{{ value_json.a }}`, `{"a": null}`, "None"},
		{`{{ value_json.a }}`, `{"a": " x "}`, "x"},
		{`{{ value_json.a }}`, `{"b": 1}`, ""},
		{`{{ value_json.a }}`, `{"a": {"z": [1, 2.50, "it's", null], "b": "\u00e9\u0007\n"}}`, `{'z': [1, 2.5, "it's", None], 'b': 'é\x07\n'}`},
		{`{{ value_json["a b"]['c'] }}`, `{"a b": {"c": "x"}}`, "x"},
		{`{{ value_json.a[1].b }}`, `{"a": [0, {"b": 7}]}`, "7"},
		{`{{ value_json.a }}`, `{"a": 1, "b": 2, "a": 3}`, "3"},
		{`{{value_json.Color.split(',')[0:3]|join(',')}}`, `{"Color": "1,2,3,4,5"}`, "1,2,3"},
		{`{{ float(value) * 99|round(0) + 1 }}`, "1", "100.0"},
		{`{{ value|float|round(1) }}`, "21.25", "21.2"},
		{`{{ value|float|round }}`, "21.6", "22"},
		{`{{ ((value_json.value | int) / 99 * 100) | round(0) }}`, `{"value": 50}`, "51"},
		{`{{ value_json.x | is_defined }}`, `{"x": 0}`, "0"},
		{`{% if value_json.get('rssi') -%}  home  {%- else -%}not_home{%- endif %}`, `{"rssi": -60}`, "home"},
		{`{{ "off" if value_json.value == 0 else "on" }}`, `{"value": 0.0}`, "off"},
		{`{{ value_json.n // 7 }} {{ value_json.n % 7 }} {{ -value_json.n // 7 }} {{ -value_json.n % 7 }}`, `{"n": 30}`, "4 2 -5 5"},
		{`{{ iif(value_json.a, 'y', 'n') }}{{ value_json.b | iif('y', 'n', 'none') }}`, `{"a": 0, "b": null}`, "nnone"},
		{`{{ 'a' ~ 1 ~ None }}{# a comment #} {{ 1 < 2 < 3 }}`, ``, "a1None True"},
		{`{{ value_json | tojson }}`, `{"b": "<é>", "a": [1.0, true, null]}`, `{"a": [1.0, true, null], "b": "\u003c\u00e9\u003e"}`},
		{`{{ value_json | to_json }}`, `{"b": "<é>", "a": [1.0, true]}`, `{"b":"<é>","a":[1.0,true]}`},
		{`{{ (value | from_json).x }}`, `{"x": 5}`, "5"},
		{`{"position": {{ value }}}`, "5", `{"position": 5}`},
		{`PRESS`, "", "PRESS"},
		{``, "x", ""},
	} {
		if got, err := render1(t, c.template, c.payload); got != c.want || err != nil {
			t.Errorf("%s with %s: %q, %v, want %q", c.template, c.payload, got, err, c.want)
		}
	}
}
