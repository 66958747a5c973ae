package home

import (
	"encoding/json"
	"testing"
	"time"
)

// Stored states have seconds, statistics have milliseconds.
func TestPast(t *testing.T) {
	states, err := ReadPast(json.RawMessage(`{"sensor.a":[{"s":"22","lu":1743500001},{"s":"21.5","a":{"access_token":"x"},"lc":1743499000,"lu":1743500000.1},{"s":"lost"}],"sensor.b":[]}`), "sensor.a")
	if err != nil || len(states) != 2 || states[0].Value != "21.5" || !states[0].Updated.Equal(time.UnixMilli(1743500000100)) || states[0].Attributes["access_token"] != nil {
		t.Errorf("%+v, %v", states, err)
	}
	hours, err := ReadStatistics(json.RawMessage(`{"sensor.a":[{"start":1743501600000,"end":1743505200000,"mean":2,"min":1,"max":3},{"start":1743498000000,"mean":5},{"start":1743505200000,"mean":null}]}`), "sensor.a")
	if err != nil || len(hours) != 2 || !hours[0].Start.Equal(time.Unix(1743498000, 0)) || hours[0].Max != 5 || hours[1] != (Statistic{time.Unix(1743501600, 0).UTC(), 2, 1, 3}) {
		t.Errorf("%+v, %v", hours, err)
	}
}

func FuzzPast(f *testing.F) {
	f.Add([]byte(`{"sensor.a":[{"s":"21.5","lu":1743500000.1,"a":{"x":1}}]}`))
	f.Add([]byte(`{"sensor.a":[{"start":1743500000000,"mean":1.5,"min":null}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		states, err := ReadPast(data, "sensor.a")
		for i, s := range states {
			if err != nil || i > 0 && s.Updated.Before(states[i-1].Updated) {
				t.Errorf("%+v, %v", states, err)
			}
		}
		hours, err := ReadStatistics(data, "sensor.a")
		for i, h := range hours {
			if err != nil || i > 0 && h.Start.Before(hours[i-1].Start) {
				t.Errorf("%+v, %v", hours, err)
			}
		}
	})
}
