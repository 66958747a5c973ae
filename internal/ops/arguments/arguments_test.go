package arguments

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestParse checks the JSON that typed arguments become.
func TestParse(t *testing.T) {
	const schema = `{"properties":{"pin":{"type":"integer"},"value":{"type":"boolean"},"level":{"type":"number"},
		"name":{"type":"string"},"list":{"type":"array"},"map":{"type":"object"},"any":{},
		"maybe":{"type":["string","null"]},"either":{"anyOf":[{"type":"string"},{"type":"integer"}]},"mode":{"enum":["1","2"]}}}`
	for _, test := range []struct{ words, want, err string }{
		{"", `{}`, ""},
		{"pin=2 value=true", `{"pin":2,"value":true}`, ""},
		{"pin=two value=maybe", `{"pin":"two","value":"maybe"}`, ""}, // for the gateway to explain
		{"pin=true value=2", `{"pin":"true","value":"2"}`, ""},
		{"level=-2.50 pin=18446744073709551615", `{"level":-2.50,"pin":18446744073709551615}`, ""},
		{"name=2 any=2 other=true", `{"any":2,"name":"2","other":true}`, ""},
		{"any=-4.4e2 other=false", `{"any":-4.4e2,"other":false}`, ""},
		{"any=007 other=0x10", `{"any":"007","other":"0x10"}`, ""},
		{"any=null other=[1]", `{"any":"null","other":"[1]"}`, ""},
		{`any="440" other:="440" name="440"`, `{"any":"440","name":"\"440\"","other":"440"}`, ""},
		{"maybe=440 either=440 mode=1", `{"either":440,"maybe":"440","mode":"1"}`, ""},
		{"maybe=null either=four", `{"either":"four","maybe":null}`, ""},
		{"name=a=b", `{"name":"a=b"}`, ""},
		{"name=", `{"name":""}`, ""},
		{"list=[1,2] map={}", `{"list":[1,2],"map":{}}`, ""},
		{"list={}", "", `argument "list" must be a list: put the object in [ ], such as list='[{…}]'`},
		{`list=[{"a":1]`, "", `argument "list" is not valid JSON: `},
		{`map={a:1}`, "", `argument "map" is not valid JSON: `},
		{"list=5 name=[1 either={", `{"either":"{","list":"5","name":"[1"}`, ""},
		{`pin:="2" any:=[1,{"a":null}]`, `{"any":[1,{"a":null}],"pin":"2"}`, ""},
		{"pin", "", `must be key=value or key:=json`},
		{"=2", "", `must be key=value or key:=json`},
		{"pin:=two", "", "is not JSON"},
		{"pin=2 pin=3", "", `"pin" is given twice`},
	} {
		got, err := Parse(strings.Fields(test.words), json.RawMessage(schema))
		switch {
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: got %v, want %s", test.words, err, test.err)
		case test.err == "" && (err != nil || string(got) != test.want):
			t.Errorf("%s: got %s, %v, want %s", test.words, got, err, test.want)
		}
	}
}
