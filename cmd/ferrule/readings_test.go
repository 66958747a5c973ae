package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPrintReading checks that a reading is printed as a line for each signal and gap, and
// as one line of JSON with all samples.
func TestPrintReading(t *testing.T) {
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.Local)
	r := ferrule.Reading{Device: "robot", Node: "north", Poll: "a0", Time: at.Add(time.Second), Batches: []ferrule.SampleBatch{
		{
			Signal: "heat", Unit: "<°C>", Samples: []ferrule.Sample{{Time: at, Value: 21, Within: ferrule.Duration(time.Millisecond)}, {Time: at.Add(500 * time.Millisecond), Value: 21.25}},
			Gaps: []ferrule.Gap{{From: at.Add(-time.Minute), To: at, Reason: ferrule.Lost, MaxMissing: 12}},
		},
		{Signal: "door", Samples: []ferrule.Sample{{Time: at, Value: 1}}},
		{Signal: "mute", Gaps: []ferrule.Gap{{From: at.Add(-time.Second), To: at, Reason: ferrule.Silent}, {From: at, To: at, Reason: ferrule.Unclear, MaxMissing: 1}}},
	}}
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out}
	a.printReading(r, true)
	want := `12:00:00.000 robot on north heat up to 12 samples may be missing since 11:59:00.000: lost
12:00:00.500 robot on north heat 21.25 <°C>, the last of 2 samples
12:00:00.000 robot on north door 1
12:00:00.000 robot on north mute samples may be missing since 11:59:59.000: silent
12:00:00.000 robot on north mute 1 sample may be missing since 12:00:00.000: unclear
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	a.json = true
	a.printReading(r, true)
	stamp := func(t time.Time) string {
		text, _ := t.MarshalText()
		return string(text)
	}
	want = `{"device":"robot","node":"north","poll":"a0","time":"` + stamp(r.Time) + `","batches":[` +
		`{"signal":"heat","unit":"<°C>","samples":[{"time":"` + stamp(at) + `","value":21,"within":"1ms"},{"time":"` + stamp(at.Add(500*time.Millisecond)) + `","value":21.25}],` +
		`"gaps":[{"from":"` + stamp(at.Add(-time.Minute)) + `","to":"` + stamp(at) + `","reason":"lost","max_missing":12}]},` +
		`{"signal":"door","samples":[{"time":"` + stamp(at) + `","value":1}]},` +
		`{"signal":"mute","samples":[],"gaps":[{"from":"` + stamp(at.Add(-time.Second)) + `","to":"` + stamp(at) + `","reason":"silent"},{"from":"` + stamp(at) + `","to":"` + stamp(at) + `","reason":"unclear","max_missing":1}]}]}` + "\n"
	if got := out.String(); got != want || !json.Valid(out.Bytes()) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
