package hass

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func TestState(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		want := func(name, value, unit, age, reason string, retained bool) {
			t.Helper()
			if got, w := r.values("{}")[name], fmt.Sprint(value, unit, age, retained, reason); fmt.Sprint(string(got.Value), got.Unit, got.Age, got.Retained, got.Reason) != w {
				t.Errorf("got %+v, want %s", got, w)
			}
		}
		want("relay", "null", "", "", "not heard since 2000-01-01T00:00:00Z", false)
		r.link.retain("acme/1/relay", "ON")
		r.link.hear("acme/1/power", "42.5")
		synctest.Wait()
		time.Sleep(12 * time.Second)
		want("relay", "true", "", "12s", "", true)
		want("power", "42.5", "W", "12s", "", false)
		r.link.hear("acme/1/power", "None")
		want("power", "null", "W", "0s", "the device reports that it is unknown", false)
		r.link.hear("acme/1/power", "7")
		synctest.Wait()
		time.Sleep(2*time.Minute + time.Second)
		want("power", "null", "W", "2m1s", "nothing heard for more than 2m0s", false)
		r.link.hear("acme/1/relay", "OFF")
		r.link.retain("acme/1/relay", "ON")
		want("relay", "false", "", "0s", "", false)
		if got := r.values(`{"names":["relay"]}`); len(got) != 1 || got["relay"].Value == nil {
			t.Errorf("got %v", got)
		}
		r.fails(toolState, `{"names":["relay","x"]}`, ferrule.Invalid, false)
		r.published()
	})
}

func TestMeasurements(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		r.link.retain("acme/1/power", "1")
		r.link.hear("acme/1/power", "2.5")
		r.link.hear("acme/1/power", "None")
		r.link.hear("acme/1/power", "")
		r.link.hear("acme/1/power", "many")
		r.link.hear("acme/1/relay", "ON")
		synctest.Wait()
		if len(r.measured) != 2 {
			t.Fatalf("got %+v", r.measured)
		}
		if m := r.measured[0]; m.Signal != "power" || m.Unit != "W" || !slices.Equal(m.Values, []float64{2.5}) || m.State {
			t.Errorf("got %+v", m)
		}
		if m := r.measured[1]; m.Signal != "relay" || m.Values[0] != 1 || !m.State {
			t.Errorf("got %+v", m)
		}
	})
}

// TestOffDelay: a motion sensor that never reports the end of motion falls back to off, in
// the state and in history, at the right time.
func TestOffDelay(t *testing.T) {
	o := offer{Configs: []config{{"binary_sensor", "x", "motion", `{"stat_t":"hall","off_dly":30,"dev":{"ids":"x"}}`}}}
	bubble(t, o, nil, func(t *testing.T, r *rig) {
		start := time.Now()
		r.link.hear("hall", "ON")
		synctest.Wait()
		time.Sleep(20 * time.Second)
		r.link.hear("hall", "ON")
		synctest.Wait()
		time.Sleep(29 * time.Second)
		if v := r.values("{}")["motion"]; string(v.Value) != "true" {
			t.Errorf("got %+v", v)
		}
		time.Sleep(11 * time.Second)
		if v := r.values("{}")["motion"]; string(v.Value) != "false" || v.Age != "10s" {
			t.Errorf("got %+v", v)
		}
		var got []string
		for i, m := range r.measured {
			got = append(got, fmt.Sprintf("%v after %v", m.Values[0], r.times[i].Sub(start)))
		}
		if want := []string{"1 after 0s", "1 after 20s", "0 after 50s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestEvents(t *testing.T) {
	o := offer{Configs: []config{{"device_automation", "x", "press", `{"automation_type":"trigger","type":"action","subtype":"single","payload":"single","topic":"button","dev":{"ids":"x"}}`}}}
	bubble(t, o, nil, func(t *testing.T, r *rig) {
		r.link.retain("button", "single")
		synctest.Wait()
		if len(r.events) != 0 {
			t.Errorf("a retained message was an event: %q", r.events)
		}
		r.link.hear("button", "double")
		for range 30 {
			r.link.hear("button", "single")
		}
		synctest.Wait()
		if len(r.events) != events.Burst {
			t.Errorf("got %d events, want %d: %q", len(r.events), events.Burst, r.events)
		}
		time.Sleep(time.Second)
		r.link.hear("button", "single")
		synctest.Wait()
		if len(r.events) != events.Burst+1 {
			t.Errorf("got %d events", len(r.events))
		}
		t.Log(r.events[0])
	})
}

// TestSecret: a password is confirmed, but appears nowhere.
func TestSecret(t *testing.T) {
	o := offer{Configs: []config{{"text", "x", "wifi", `{"mode":"password","cmd_t":"w/set","stat_t":"w","dev":{"ids":"x"}}`}}}
	bubble(t, o, nil, func(t *testing.T, r *rig) {
		r.link.hear("w", "old")
		r.link.later(time.Millisecond, "w", "hunter2")
		got := r.result("wifi", `{"value":"hunter2"}`)
		if !got.Confirmed || len(got.State) != 0 {
			t.Errorf("got %+v", got)
		}
		if v := r.values("{}"); len(v) != 0 {
			t.Errorf("got %v", v)
		}
		if string(r.session.states[0].value.JSON) != "null" {
			t.Error("the secret is kept")
		}
	})
}

// TestLargeMessage: large messages are dropped, and the session goes on.
func TestLargeMessage(t *testing.T) {
	bubble(t, plug, nil, func(t *testing.T, r *rig) {
		r.link.hear("acme/1/power", string(make([]byte, 1<<20)))
		r.link.hear("acme/1/power", "\xff")
		r.link.hear("acme/1/power", "5")
		if v := r.values("{}")["power"]; string(v.Value) != "5" {
			t.Errorf("got %+v", v)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add("ON", "12.5", false)
	f.Add("None", "nan", true)
	f.Add(`{"a":1}`, "1e400", false)
	f.Fuzz(func(t *testing.T, relay, power string, retained bool) {
		s := newSession(newLink(plug), describe(&plug))
		s.Report(func(_ time.Time, all []ferrule.Measurement) {
			for _, m := range all {
				if retained || m.Values[0] != m.Values[0] {
					t.Errorf("reported %+v", m)
				}
			}
		})
		s.hear(transport.Message{Channel: "acme/1/relay", Data: []byte(relay), Retained: retained}, time.Now())
		s.hear(transport.Message{Channel: "acme/1/power", Data: []byte(power), Retained: retained}, time.Now())
		if _, err := s.readState(nil); err != nil {
			t.Error(err)
		}
	})
}
