package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/watchtext"
)

// TestEventText checks that each event is one readable line, whatever the device sends.
func TestEventText(t *testing.T) {
	for _, test := range []struct {
		event ferrule.Event
		want  string
	}{
		{ferrule.Event{Type: ferrule.Appeared}, "is online"},
		{ferrule.Event{Type: ferrule.Gone, Reason: "it was\nunplugged"}, "is offline: it was unplugged"},
		{ferrule.Event{Type: ferrule.ChangedKind, Kind: "0123456789abcdef", Previous: "fedcba9876543210"}, "changed its Kind from fedcba987654 to 0123456789ab"},
		{ferrule.Event{Type: ferrule.PendingFound, Reason: "`ferrule adopt toy` trusts it"}, "was found and is not adopted: `ferrule adopt toy` trusts it"},
		{ferrule.Event{Type: ferrule.WasStopped, Device: "robot", Reason: "stopped by person:ann: why"}, "is stopped by person:ann: why"},
		{ferrule.Event{Type: ferrule.WasResumed, Device: ferrule.GatewayID, Reason: "resumed by person:ann"}, "everything is resumed by person:ann"},
		{ferrule.Event{Type: ferrule.Quarantined, Tools: []string{"a", "b"}}, "has tools that cannot be used: a, b"},
		{ferrule.Event{Type: ferrule.Notified, Method: "state", Params: []byte(`{"new":1}`)}, `sent state {"new":1}`},
		{ferrule.Event{Type: ferrule.Notified, Method: "state"}, "sent state"},
		{ferrule.Event{Type: ferrule.Notified, Method: "\x1b[2Jstate", Params: []byte("\"\u009b\n\"")}, `sent [2Jstate " "`},
		{ferrule.Event{Type: "sang"}, `sent an unknown event type "sang"; this version is older than the gateway`},
	} {
		if got := watchtext.EventText(test.event); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	long := watchtext.EventText(ferrule.Event{Type: ferrule.Notified, Method: "m", Params: []byte(`"` + strings.Repeat("ü", 9999) + `"`)})
	if n := utf8.RuneCountInString(long); n != watchtext.MaxShown || !utf8.ValidString(long) {
		t.Errorf("%d characters: %s", n, long)
	}
}

// TestPrintEvent checks that the node is shown in a cluster, and the JSON.
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
	want := at + ` toy sent m {"a":"<"}` + "\n" + at + ` toy on north sent m {"a":"<"}` + "\n3 events were skipped: the terminal is too slow\n" +
		`{"time":"` + string(stamp) + `","type":"notified","device":"toy","node":"north","method":"m","params":{"a":"<"}}` + "\n{\"missed\":3}\n"
	if got := out.String(); err != nil || got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
