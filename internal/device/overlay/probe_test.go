package overlay_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
)

// TestProbes: what files say about a probe is laid one on the other, word by word.
func TestProbes(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		want  string
	}{
		"nothing is said":  {[]string{`{"tools":{"plain":{"effect":"reads"}}}`}, `null`},
		"one word":         {[]string{`{"polls":{"light":{"every":"0s"}}}`}, `[{"name":"light","every":"0s"}]`},
		"all words":        {[]string{`{"polls":{"heat":{"about":"x","tool":"measure","args":{"pin":35},"every":"10s","unit":"°C","ring":{"interval":"500ms","size":20}}}}`}, `[{"name":"heat","tool":"measure","args":{"pin":35},"every":"10s","unit":"°C","ring":{"interval":"500ms","size":20}}]`},
		"several, by name": {[]string{`{"polls":{"b":{"unit":"V"},"a":{"unit":"A"}}}`}, `[{"name":"a","unit":"A"},{"name":"b","unit":"V"}]`},
		"one on the other": {
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
			laid := overlay.NewSet(files...).Apply("d", "0123456789abcdef", "robot", board())
			got, err := json.Marshal(laid.Polls)
			if err != nil || string(got) != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, test.want)
			}
			if laid.Tool("plain") == nil {
				t.Error("its tools are gone")
			}
		})
	}
}

func TestProbesRefused(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"polls":{"":{}}}`, `probes: want up to 64 letters, digits, - and _, got ""`},
		{`{"polls":{"a b":{}}}`, `probes: want up to 64 letters, digits, - and _, got "a b"`},
		{`{"polls":{"a":{"evry":"1s"}}}`, `unknown field "evry"`},
		{`{"polls":{"a":{"every":"-1s"}}}`, `probes.a.every: want from 0s to 24h0m0s, got -1s`},
		{`{"polls":{"a":{"every":"25h"}}}`, `probes.a.every: want from 0s to 24h0m0s, got 25h0m0s`},
		{`{"polls":{"a":{"every":"often"}}}`, `invalid duration`},
		{`{"polls":{"a":{"args":[1]}}}`, `probes.a.args: want an object`},
		{`{"polls":{"a":{"args":{"x":"` + strings.Repeat("x", 4096) + `"}}}}`, `probes.a.args: 4104 bytes; at most 4096 are possible`},
		{`{"polls":{"a":{"unit":"` + strings.Repeat("x", 17) + `"}}}`, `probes.a.unit: want up to 16 bytes`},
		{`{"polls":{"a":{"unit":"\u202e"}}}`, `probes.a.unit: want up to 16 bytes`},
		{`{"polls":{"a":{"ring":{"interval":"0s","size":20}}}}`, `probes.a.ring.interval: want from 1ms to 24h0m0s, got 0s`},
		{`{"polls":{"a":{"ring":{"size":20}}}}`, `probes.a.ring.interval: want from 1ms to 24h0m0s, got 0s`},
		{`{"polls":{"a":{"ring":{"interval":"1s","size":1}}}}`, `probes.a.ring.size: want from 2 to 4096, got 1`},
		{`{"polls":{"a":{"ring":{"interval":"1s","size":4097}}}}`, `probes.a.ring.size: want from 2 to 4096, got 4097`},
		{`{"polls":{"a":{"tool":"` + strings.Repeat("x", 129) + `"}}}`, `probes.a.tool: want a name of up to 128 bytes`},
	} {
		if _, err := overlay.Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: got %v, want %q", test.text, err, test.want)
		}
	}
}

// TestProbesMissed: a tool that a probe is to ask and the device does not have is told of.
func TestProbesMissed(t *testing.T) {
	set := overlay.NewSet(
		parse(t, `{"match":{"protocol":"d"},"polls":{"a":{"tool":"of_the_protocol"}}}`),
		parse(t, `{"match":{"device":"robot"},"polls":{"b":{"tool":"plain"},"c":{"tool":"pian"},"light":{"every":"0s"}}}`),
	)
	want := []string{`an overlay has its probe c ask a tool "pian", which it does not have`}
	if got := set.UnknownTools("d", "0123456789abcdef", "robot", board()); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
