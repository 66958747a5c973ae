package ferrule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestCertainty checks what each code means for the hardware.
func TestCertainty(t *testing.T) {
	for _, test := range []struct {
		code          ferrule.Code
		unsent, after bool // may it have run, before and after something was sent?
	}{
		{ferrule.NotFound, false, false},
		{ferrule.Denied, false, false},
		{ferrule.Invalid, false, false},
		{ferrule.Limited, false, false},
		{ferrule.Pending, false, false},
		{ferrule.Offline, false, false},
		{ferrule.Busy, false, false},
		{ferrule.Refused, false, false},
		{ferrule.Failed, true, true},
		{ferrule.Unanswered, true, true},
		{ferrule.Cancelled, false, true},
		{ferrule.Internal, false, true},
	} {
		unsent, sent := ferrule.Errorf(test.code, "x"), ferrule.Errorf(test.code, "x").AfterSend()
		if unsent.MayHaveRun() != test.unsent || sent.MayHaveRun() != test.after {
			t.Errorf("%s: %t and %t, want %t and %t", test.code, unsent.MayHaveRun(), sent.MayHaveRun(), test.unsent, test.after)
		}
		for _, e := range []*ferrule.Error{unsent, sent} {
			phrase := "may have run"
			if test.code == ferrule.Failed {
				phrase = "may be partly done"
			}
			if says := strings.Contains(e.Certainty(), phrase); says != e.MayHaveRun() {
				t.Errorf("%s says %q", test.code, e.Certainty())
			}
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var again ferrule.Error
			if err := json.Unmarshal(data, &again); err != nil || again.Code != e.Code || again.MayHaveRun() != e.MayHaveRun() {
				t.Errorf("%s became %+v, %v", data, again, err)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	e := ferrule.Errorf(ferrule.Offline, "%s is gone: %w", "robot", io.EOF).WithHint("look for %s", "it")
	if e.Error() != "robot is gone: EOF" || e.Hint != "look for it" || !errors.Is(e, io.EOF) {
		t.Errorf("got %+v", e)
	}
	if got := ferrule.AsError(fmt.Errorf("around: %w", e)); got != e {
		t.Errorf("got %+v", got)
	}
	if got := ferrule.AsError(io.EOF); got.Code != ferrule.Internal || !got.MayHaveRun() {
		t.Errorf("got %+v", got)
	}
}

// TestResultWithoutValue checks that an empty value and null stay different in JSON.
func TestResultWithoutValue(t *testing.T) {
	for _, value := range []string{"", "null", `{"a":1}`} {
		text, err := json.Marshal(&ferrule.Result{Value: json.RawMessage(value), Content: []ferrule.Content{{Type: ferrule.TextContent, Text: "t"}}})
		if err != nil {
			t.Fatal(err)
		}
		var there ferrule.Result
		if err := json.Unmarshal(text, &there); err != nil || string(there.Value) != value {
			t.Errorf("%q became %q, %v", value, there.Value, err)
		}
	}
}

func TestIDs(t *testing.T) {
	for _, test := range []struct {
		id string
		ok bool
	}{
		{"robot", true}, {"Robot-2", true}, {"a_b", true}, {"7", true},
		{"", false}, {"a__b", false}, {"-a", false}, {"a-", false}, {"a b", false}, {"a.b", false}, {"ä", false},
		{strings.Repeat("x", 32), true}, {strings.Repeat("x", 33), false},
	} {
		if err := ferrule.CheckID(test.id); (err == nil) != test.ok {
			t.Errorf("%q: %v", test.id, err)
		}
	}
	for name, want := range map[string]string{
		"esp32-demo": "esp32-demo", "ESP32 Demo!": "esp32-demo", "  x__y  ": "x-y", "Küche": "k-che", "日本": "", "": "",
		strings.Repeat("ab-", 20): "ab-ab-ab-ab-ab-ab-ab-ab-ab-ab-ab",
	} {
		got := ferrule.Slug(name)
		if got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
		if got != "" && ferrule.CheckID(got) != nil {
			t.Errorf("%q is not an ID", got)
		}
	}
}

func TestOfflineError(t *testing.T) {
	dev := ferrule.Device{ID: "robot", Kind: "k", Transport: "tcp", Address: "10.0.0.5:4242", Since: time.Date(2020, 5, 1, 14, 2, 0, 0, time.Local), Reason: "connection refused"}
	e := dev.OfflineError()
	if e.Code != ferrule.Offline || e.Message != "robot is offline since 2020-05-01 14:02: connection refused" || e.Hint != "check that it is on and connected; Ferrule reconnects by itself. It was last connected over tcp at 10.0.0.5:4242" {
		t.Errorf("got %q, %q", e.Message, e.Hint)
	}
	dev.Since = time.Now()
	if e := dev.OfflineError(); !strings.Contains(e.Message, "since "+dev.Since.Format("15:04:05")+":") {
		t.Errorf("got %q", e.Message)
	}
	home := ferrule.Device{ID: "lamp", Kind: "k", Transport: "homeassistant", Address: "home/demo:1", Reason: "removed"}
	if e := home.OfflineError(); !strings.HasPrefix(e.Hint, "check that Home Assistant runs, and that it has the device and exposes it") {
		t.Errorf("got %q", e.Hint)
	}
	dev.Kind = ""
	if e := dev.OfflineError(); e.Message != "robot was never reached: connection refused" {
		t.Errorf("got %q", e.Message)
	}
}

func TestClean(t *testing.T) {
	for _, test := range []struct {
		in    string
		limit int
		want  string
	}{
		{"as it is: é\n\t", 100, "as it is: é\n\t"},
		{"a\x00b\x1b[31mc\u202ed\u200be\U000e0041f\u2028", 100, "a b [31mc d e f "},
		{"bad \xff utf8", 100, "bad � utf8"},
		{"cut here", 3, "cut"},
		{"éé", 3, "é"},
	} {
		if got := ferrule.Clean(test.in, test.limit); got != test.want {
			t.Errorf("%q: got %q, want %q", test.in, got, test.want)
		}
	}
}

func TestBound(t *testing.T) {
	m := ferrule.Manifest{Model: strings.Repeat("m", 200), Tools: []ferrule.Tool{
		{Name: "good", Text: "fine"},
		{Name: "good"},
		{Name: ""},
		{Name: "bell\a"},
		{Name: strings.Repeat("n", 200)},
		{Name: "huge", Input: json.RawMessage(`"` + strings.Repeat("x", ferrule.MaxSchema) + `"`)},
		{Name: "effect", Effect: "explodes", Poll: -1},
		{Name: "talker", Text: strings.Repeat("t", 1<<20)},
	}}
	m.Bound()
	var reasons []string
	for _, tool := range m.Tools {
		reasons = append(reasons, tool.Quarantine)
	}
	want := []string{
		"", "duplicate name", "no name", "name contains unprintable characters",
		"name has 200 bytes; limit is 128", "schema has 65538 bytes; limit is 65536", "", "",
	}
	if !slices.Equal(reasons, want) {
		t.Errorf("got  %q\nwant %q", reasons, want)
	}
	if len(m.Model) != ferrule.MaxWord || len(m.Tools[7].Text) != ferrule.MaxText || m.Tools[6].Effect != "" || m.Tools[6].Poll != 0 {
		t.Error("something was not bounded")
	}
}

func TestBoundCounts(t *testing.T) {
	var m ferrule.Manifest
	for i := range 2000 {
		m.Tools = append(m.Tools, ferrule.Tool{Name: fmt.Sprint("tool", i)})
		m.Pins = append(m.Pins, ferrule.Pin{Number: i})
		m.Notes = append(m.Notes, fmt.Sprint("note ", i))
	}
	m.Bound()
	if len(m.Tools) != ferrule.MaxTools || len(m.Pins) != ferrule.MaxPins || len(m.Notes) != ferrule.MaxNotes {
		t.Errorf("%d tools, %d pins, %d notes", len(m.Tools), len(m.Pins), len(m.Notes))
	}
	if last := m.Notes[len(m.Notes)-1]; last != "1987 more notes" {
		t.Errorf("the last note is %q", last)
	}
	m = ferrule.Manifest{}
	for i := range 100 {
		m.Tools = append(m.Tools, ferrule.Tool{Name: fmt.Sprint("tool", i), Input: json.RawMessage(`"` + strings.Repeat("x", 60000) + `"`)})
	}
	m.Bound()
	if len(m.Tools) != 17 || !strings.Contains(m.Notes[0], "the first 17 of 100 are used") {
		t.Errorf("%d tools, %q", len(m.Tools), m.Notes)
	}
}

func TestDuration(t *testing.T) {
	var v struct{ D ferrule.Duration }
	if err := json.Unmarshal([]byte(`{"D":"1m30s"}`), &v); err != nil || time.Duration(v.D) != 90*time.Second {
		t.Errorf("got %v, %v", v.D, err)
	}
	if data, err := json.Marshal(v); err != nil || string(data) != `{"D":"1m30s"}` {
		t.Errorf("got %s, %v", data, err)
	}
	if err := json.Unmarshal([]byte(`{"D":"soon"}`), &v); err == nil {
		t.Error("soon is a duration")
	}
}
