package ferrule_test

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestBoundEvent checks that untrusted notifications become short, clean JSON or are
// rejected.
func TestBoundEvent(t *testing.T) {
	said := func(method, params string) ferrule.Event {
		return ferrule.Event{Type: ferrule.Notified, Device: "toy", Method: method, Params: []byte(params)}
	}
	for _, test := range []struct {
		event        ferrule.Event
		method, want string // want is params, or what the error says
	}{
		{said("state", "{ \"new\":\n1 }"), "state", `{"new":1}`},
		{said("state", ""), "state", ""},
		{said("st\x1b[31mate\u202e", "[\"\xff\u202e\\u001b\"]"), "st [31mate ", "[\"\ufffd  \"]"},
		{said(strings.Repeat("m", 1000), "1"), strings.Repeat("m", ferrule.MaxMethod), "1"},
		{said("", "1"), "", "no method"},
		{said("state", "{"), "", "not JSON"},
		{said("state", `"`+strings.Repeat("x", ferrule.MaxParams)+`"`), "", "8194 bytes"},
		{said("state", `"`+strings.Repeat("\xff", ferrule.MaxParams-2)+`"`), "", "24572 bytes"},
		{ferrule.Event{Type: "sang", Device: "toy"}, "", `"sang"`},
		{ferrule.Event{Type: ferrule.Gone, Device: "a.>"}, "", "a.>"},
		{ferrule.Event{Type: ferrule.Gone, Device: "toy", Method: "x", Params: []byte("x")}, "", ""},
	} {
		e := test.event
		switch err := e.Bound(); {
		case err != nil && (test.method != "" || test.want == "" || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%.60q: %v", test.event.Method, err)
		case err == nil && (e.Method != test.method || string(e.Params) != test.want):
			t.Errorf("got %q %q, want %q %q", e.Method, e.Params, test.method, test.want)
		}
	}
	e := ferrule.Event{Type: ferrule.Quarantined, Device: "toy", Reason: strings.Repeat("\x00", 9999), Tools: make([]string, 99)}
	if err := e.Bound(); err != nil || len(e.Reason) != ferrule.MaxReason || len(e.Tools) != ferrule.MaxEventTools {
		t.Errorf("%d bytes, %d tools, %v", len(e.Reason), len(e.Tools), err)
	}
}
