package ferrule_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestSignalName(t *testing.T) {
	for given, want := range map[string]string{
		"light":                  "light",
		"Room 3 / °C":            "Room_3_C",
		"..a..b..":               "a_b_",
		"":                       "",
		"äöü":                    "",
		strings.Repeat("x", 100): strings.Repeat("x", ferrule.MaxSignal),
	} {
		if got := ferrule.SignalName(given); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
	}
}

// TestReadingJSON checks that a reading survives JSON, to the microsecond.
func TestReadingJSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	before := ferrule.Reading{Device: "robot", Node: "here", Poll: "light", Time: at, Batches: []ferrule.SampleBatch{
		{Signal: "light", Unit: "lx", Samples: []ferrule.Sample{
			{Time: at.Add(-time.Second), Value: 402, Within: ferrule.Duration(250 * time.Millisecond)},
			{Time: at, Value: -1.5, Within: ferrule.Duration(time.Millisecond)},
		}, Gaps: []ferrule.Gap{{From: at.Add(-time.Hour), To: at.Add(-time.Second), Reason: ferrule.Lost, MaxMissing: 7}}},
		{Signal: "empty"},
	}}
	data, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var after ferrule.Reading
	if err := json.Unmarshal(data, &after); err != nil {
		t.Fatal(err)
	}
	for i := range after.Batches {
		for j := range after.Batches[i].Samples {
			after.Batches[i].Samples[j].Time = after.Batches[i].Samples[j].Time.UTC()
		}
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("it was\n%+v, and is\n%+v", before, after)
	}
	if err := after.Check(); err != nil {
		t.Error(err)
	}
}

func TestReadingCheck(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	one := func(samples ...ferrule.Sample) []ferrule.SampleBatch {
		return []ferrule.SampleBatch{{Signal: "light", Samples: samples}}
	}
	for want, r := range map[string]ferrule.Reading{
		"device":       {Device: "a b", Node: "n", Poll: "p"},
		"node":         {Device: "a", Node: "", Poll: "p"},
		"poll":         {Device: "a", Node: "n", Poll: "p.q"},
		"signal":       {Device: "a", Node: "n", Poll: "p", Batches: []ferrule.SampleBatch{{Signal: ">"}}},
		"not a number": {Device: "a", Node: "n", Poll: "p", Batches: one(ferrule.Sample{Time: at, Value: math.NaN()})},
		"out of order": {Device: "a", Node: "n", Poll: "p", Batches: one(ferrule.Sample{Time: at}, ferrule.Sample{Time: at})},
		"negative":     {Device: "a", Node: "n", Poll: "p", Batches: one(ferrule.Sample{Time: at, Within: -1})},
		"limit is 64":  {Device: "a", Node: "n", Poll: "p", Batches: make([]ferrule.SampleBatch, ferrule.MaxBatches+1)},
		"unit":         {Device: "a", Node: "n", Poll: "p", Batches: []ferrule.SampleBatch{{Signal: "s", Unit: "\x1b[2J"}}},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want something about %q, got %v", want, err)
		}
	}
}

func FuzzReading(f *testing.F) {
	f.Add([]byte(`{"device":"a","node":"n","poll":"p","time":"2026-03-01T12:00:00Z","batches":[{"signal":"s","times":[1700000000000000,500000],"values":[1,2],"within":[250000,-3]}]}`))
	f.Add([]byte(`{"batches":[{"signal":"s","times":[1],"values":[],"within":[]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r ferrule.Reading
		if json.Unmarshal(data, &r) != nil || r.Check() != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("what was read and is well cannot be written: %v", err)
		}
		var same ferrule.Reading
		if err := json.Unmarshal(again, &same); err != nil || same.Check() != nil {
			t.Fatalf("what was written cannot be read: %v, %v", err, same.Check())
		}
	})
}
