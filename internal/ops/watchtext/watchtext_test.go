package watchtext

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/condition"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/watch"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"tank level above 90 hysteresis 5":                               `{"when":{"device":"tank","signal":"level","above":90,"hysteresis":5}}`,
		"tank-* level outside 10 to 90 for 30s":                          `{"when":{"device":"tank-*","signal":"level","outside":{"from":10,"to":90},"for":"30s"}}`,
		"room=cellar event gone notify webhook":                          `{"when":{"device":"room=cellar","event":"gone"},"notify":["webhook"]}`,
		"door state changes every 10s per_hour 6 expires 7d notify mqtt": `{"when":{"device":"door","signal":"state","changes":true},"notify":["mqtt"],"every":"10s","per_hour":6,"expires":"168h0m0s"}`,
	} {
		in, err := Parse(text, "")
		got, _ := json.Marshal(in)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v\nwant %s", text, got, err, want)
		}
	}
	in, err := Parse("tank level above 90", `valve close {"port":1}`)
	if err != nil || in.Call == nil || in.Call.Device != "valve" || in.Call.Tool != "close" || in.Call.Args["port"] != 1.0 {
		t.Errorf("call %+v, %v", in.Call, err)
	}
	if in, err = Parse("tank level above 90 name full", "valve close port=1 fast:=true"); err != nil || in.Name != "full" || in.Call.Args["port"] != 1.0 || in.Call.Args["fast"] != true {
		t.Errorf("call %+v, %v", in.Call, err)
	}
	for text, want := range map[string]string{
		"tank level above": "above: a value is missing", "tank level below high": `below: must be a number, got "high"`, "tank level above 1 every 5": "every: must be a duration",
		"tank level over 9": `unknown word "over"`, "tank level inside 1 2": "inside: must be two numbers", "tank level above 1 for 5 minutes": "for: must be a duration",
	} {
		if _, err := Parse(text, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, then := range map[string]string{
		"tank level": "", "tank level above": "", "tank level above high": "", "tank level above 1 below 2": "", "tank level over 9": "", "tank level outside 9": "",
		"tank level for 30s": "", "gateway level above 1": "", "tank level above 1 ": "valve", "tank level above  2": "valve close 5", "tank level above 3 for soon": "",
	} {
		if in, err := Parse(text, then); err == nil {
			t.Errorf("%s, then %s: read as %+v", text, then, in)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("tank level above 90 for 30s", "valve close {}")
	f.Fuzz(func(t *testing.T, text, then string) {
		if in, err := Parse(text, then); err == nil {
			if in.When.Check() != nil {
				t.Fatalf("%q is read as %+v", text, in)
			}
		}
	})
}

// TestListIsClean checks that names from agents cannot write to the terminal.
func TestListIsClean(t *testing.T) {
	above := 1.0
	w := watch.Status{Watch: watch.Watch{ID: "abcdefghij", Name: "full\x1b[2J\nfake", Condition: condition.Condition{Device: "tank", Signal: "level", Above: &above}, Owner: ferrule.Principal{Role: ferrule.Agent, Name: "claude"}}}
	for _, cell := range List([]watch.Status{w}).Rows[0] {
		if strings.ContainsAny(cell, "\x1b\n") {
			t.Errorf("cell %q", cell)
		}
	}
}

// TestListIsWhole checks that the list has all of a long outcome: the table is cut to the width
// of a terminal, and not if it is piped.
func TestListIsWhole(t *testing.T) {
	above, long := 1.0, strings.Repeat("valve says: jammed ", 20)
	w := watch.Status{Watch: watch.Watch{ID: "abcdefghij", Name: "full", Condition: condition.Condition{Device: "tank", Signal: "level", Above: &above}}, Outcome: &watch.Outcome{Code: ferrule.Failed, Message: long, MayHaveRun: true}}
	w.NotCalled = "the limits of the watch hold the call back"
	if row := List([]watch.Status{w}).Rows[0]; !strings.Contains(row[7], strings.TrimSpace(long)) || !strings.HasSuffix(row[7], " (may have run); no call for the last hit: the limits of the watch hold the call back") {
		t.Errorf("state %q", row[7])
	}
}

// TestAdded checks what is said about a new watch, and what its row shows.
func TestAdded(t *testing.T) {
	above := 1.0
	w := watch.Status{Watch: watch.Watch{ID: "abcdefghij", Name: "tank level above 1", Every: ferrule.Duration(90 * time.Minute), PerHour: 3, Condition: condition.Condition{Device: "tank", Signal: "level", Above: &above}}, Devices: 1, Unmeasured: 1}
	if got := Added(w); !strings.Contains(got, "notifies, at most every 1h30m and 3 times") || !strings.Contains(got, "`ferrule watch remove abcdefghij`") {
		t.Error(got)
	}
	if row := List([]watch.Status{w}).Rows[0]; row[1] != "-" || row[2] != "tank level above 1 every 1h30m per_hour 3" || row[7] != "no sample of level yet" {
		t.Errorf("row %q", row)
	}
	full := w.Watch
	full.Condition.Hysteresis, full.Notify, full.Expires = 0.5, []string{"mqtt"}, time.Now()
	if got, want := When(&full), "tank level above 1 hysteresis 0.5 every 1h30m per_hour 3 notify mqtt expires "+ferrule.FormatTime(full.Expires); got != want {
		t.Errorf("when %q, want %q", got, want)
	}
	w.Now = &condition.Hit{Device: "tank", Signal: "level", Time: time.Now(), Value: 3}
	if got := Added(w); !strings.Contains(got, "level of tank is 3, which meets the condition already: it notifies at the next sample that does.") {
		t.Error(got)
	}
	w.Now.Time, w.Call, w.Condition.For = time.Now().Add(-time.Minute), &watch.Action{Device: "valve", Tool: "close"}, ferrule.Duration(time.Minute)
	if got := Added(w); !strings.Contains(got, "level of tank was 3 at ") || !strings.Contains(got, ": it calls when that has held for 1m.") {
		t.Error(got)
	}
	w.Condition = condition.Condition{Device: "tank", Event: "gnoe"}
	w.Now = nil
	if got := Added(w); !strings.Contains(got, "gnoe is not an event of the gateway") {
		t.Error(got)
	}
}
