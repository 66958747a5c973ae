package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestHappening: each event is one line that a person reads, whatever its device made
// of it.
func TestHappening(t *testing.T) {
	for _, test := range []struct {
		event ferrule.Event
		want  string
	}{
		{ferrule.Event{Type: ferrule.Appeared}, "can be reached"},
		{ferrule.Event{Type: ferrule.Gone, Reason: "it was\nunplugged"}, "cannot be reached: it was unplugged"},
		{ferrule.Event{Type: ferrule.ChangedKind, Kind: "0123456789abcdef", Previous: "fedcba9876543210"}, "says something else of itself: it is of Kind 0123456789ab, and was of fedcba987654"},
		{ferrule.Event{Type: ferrule.PendingFound, Reason: "`ferrule adopt toy` trusts it"}, "waits to be adopted: `ferrule adopt toy` trusts it"},
		{ferrule.Event{Type: ferrule.Quarantined, Tools: []string{"a", "b"}}, "has tools that cannot be used: a, b"},
		{ferrule.Event{Type: ferrule.Notified, Method: "state", Params: []byte(`{"new":1}`)}, `says state {"new":1}`},
		{ferrule.Event{Type: ferrule.Notified, Method: "state"}, "says state"},
		{ferrule.Event{Type: ferrule.Notified, Method: "\x1b[2Jstate", Params: []byte("\"\u009b\n\"")}, `says [2Jstate " "`},
		{ferrule.Event{Type: "sang"}, "something happened that this version does not know: sang"},
	} {
		if got := happening(test.event); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	long := happening(ferrule.Event{Type: ferrule.Notified, Method: "m", Params: []byte(`"` + strings.Repeat("ü", 9999) + `"`)})
	if n := utf8.RuneCountInString(long); n != maxShown || !utf8.ValidString(long) {
		t.Errorf("%d characters: %s", n, long)
	}
}

// TestPrintEvent: among several nodes it is told where it happens; scripts get one line
// of JSON.
func TestPrintEvent(t *testing.T) {
	e := ferrule.Event{Time: time.Now(), Type: ferrule.Notified, Device: "toy", Node: "north", Method: "m", Params: []byte(`{"a":"<"}`)}
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out}
	a.printEvent(e, false)
	a.printEvent(e, true)
	a.printMissed(3)
	a.json = true
	a.printEvent(e, true)
	a.printMissed(3)
	at := e.Time.Format("15:04:05.000")
	stamp, err := e.Time.MarshalText()
	want := at + ` toy says m {"a":"<"}` + "\n" + at + ` toy at north says m {"a":"<"}` + "\n3 more came too fast to be shown\n" +
		`{"time":"` + string(stamp) + `","type":"notified","device":"toy","node":"north","method":"m","params":{"a":"<"}}` + "\n{\"missed\":3}\n"
	if got := out.String(); err != nil || got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
