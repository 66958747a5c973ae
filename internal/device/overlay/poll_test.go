package overlay_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
)

// TestPolls checks that files are merged field by field.
func TestPolls(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		want  string
	}{
		"no polls":         {[]string{`{"tools":{"plain":{"effect":"reads"}}}`}, `null`},
		"one field":        {[]string{`{"polls":{"light":{"every":"0s"}}}`}, `[{"name":"light","every":"0s"}]`},
		"all fields":       {[]string{`{"polls":{"heat":{"about":"x","tool":"measure","args":{"pin":35},"every":"10s","unit":"°C","ring":{"interval":"500ms","size":20}}}}`}, `[{"name":"heat","tool":"measure","args":{"pin":35},"every":"10s","unit":"°C","ring":{"interval":"500ms","size":20}}]`},
		"several, by name": {[]string{`{"polls":{"b":{"unit":"V"},"a":{"unit":"A"}}}`}, `[{"name":"a","unit":"A"},{"name":"b","unit":"V"}]`},
		"merged by rank": {
			[]string{
				`{"match":{"device":"robot"},"polls":{"heat":{"every":"0s"}}}`,
				`{"match":{"kind":"0123456789ab"},"polls":{"heat":{"args":{"pin":36},"unit":"K"}}}`,
				`{"match":{"protocol":"d"},"polls":{"heat":{"tool":"measure","args":{"pin":35,"fast":true},"every":"10s","unit":"°C"}}}`,
			},
			`[{"name":"heat","tool":"measure","args":{"pin":36},"every":"0s","unit":"K"}]`,
		},
		"of another device": {
			[]string{`{"match":{"device":"other"},"polls":{"heat":{"every":"0s"}}}`, `{"match":{"protocol":"e"},"polls":{"heat":{"unit":"K"}}}`},
			`null`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var files []*overlay.File
			for _, text := range test.files {
				files = append(files, parse(t, text))
			}
			effective := overlay.NewSet(files...).Apply("d", "0123456789abcdef", "robot", board())
			got, err := json.Marshal(effective.Polls)
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
			if effective.Tool("plain") == nil {
				t.Error("tools are missing")
			}
		})
	}
}

func TestParseInvalidPolls(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"polls":{"":{}}}`, `polls: must be 1 to 64 letters, digits, - or _, got ""`},
		{`{"polls":{"a b":{}}}`, `polls: must be 1 to 64 letters, digits, - or _, got "a b"`},
		{`{"polls":{"a":{"evry":"1s"}}}`, `unknown field "evry"`},
		{`{"polls":{"a":{"every":"-1s"}}}`, `polls.a.every: must be from 0s to 24h0m0s, got -1s`},
		{`{"polls":{"a":{"every":"25h"}}}`, `polls.a.every: must be from 0s to 24h0m0s, got 25h0m0s`},
		{`{"polls":{"a":{"every":"often"}}}`, `must be a duration`},
		{`{"polls":{"a":{"args":[1]}}}`, `polls.a.args: must be an object`},
		{`{"polls":{"a":{"args":{"x":"` + strings.Repeat("x", 4096) + `"}}}}`, `polls.a.args: has 4104 bytes; limit is 4096`},
		{`{"polls":{"a":{"unit":"` + strings.Repeat("x", 17) + `"}}}`, `polls.a.unit: must be printable and up to 16 bytes`},
		{`{"polls":{"a":{"unit":"\u202e"}}}`, `polls.a.unit: must be printable and up to 16 bytes`},
		{`{"polls":{"a":{"ring":{"interval":"0s","size":20}}}}`, `polls.a.ring.interval: must be from 1ms to 24h0m0s, got 0s`},
		{`{"polls":{"a":{"ring":{"size":20}}}}`, `polls.a.ring.interval: must be from 1ms to 24h0m0s, got 0s`},
		{`{"polls":{"a":{"ring":{"interval":"1s","size":1}}}}`, `polls.a.ring.size: must be from 2 to 4096, got 1`},
		{`{"polls":{"a":{"ring":{"interval":"1s","size":4097}}}}`, `polls.a.ring.size: must be from 2 to 4096, got 4097`},
		{`{"polls":{"a":{"tool":"` + strings.Repeat("x", 129) + `"}}}`, `polls.a.tool: must be a printable name of up to 128 bytes`},
	} {
		if _, err := overlay.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: got %v, want %q", test.text, err, test.want)
		}
	}
}

func TestUnknownToolsOfPolls(t *testing.T) {
	set := overlay.NewSet(
		parse(t, `{"match":{"protocol":"d"},"polls":{"a":{"tool":"of_the_protocol"}}}`),
		parse(t, `{"match":{"device":"robot"},"polls":{"b":{"tool":"plain"},"c":{"tool":"pian"},"light":{"every":"0s"}}}`),
	)
	want := []string{`poll c of an overlay uses the tool "pian", which the device does not have`}
	if got := set.UnknownTools("d", "0123456789abcdef", "robot", board()); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
