package hass

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

const (
	judgedSensor = `{"dev":{"ids":"j"},"o":{"name":"fw"},"stat_t":"j/state","uniq_id":"r"}`
	judgedSwitch = `{"dev":{"ids":"j"},"o":{"name":"fw"},"stat_t":"j/state","cmd_t":"j/set","uniq_id":"s"}`
)

// TestJudged: a device that was reported as a sensor cannot be opened as anything else, also
// while the next report is under way or delayed.
func TestJudged(t *testing.T) {
	const sensorTopic, switchTopic = "homeassistant/sensor/j/r/config", "homeassistant/switch/j/s/config"
	for name, test := range map[string]struct {
		before, after func(h offline)
	}{
		"new switch": {
			func(h offline) { h.config(sensorTopic, judgedSensor) },
			func(h offline) { h.config(switchTopic, judgedSwitch) },
		},
		"other config": {
			func(h offline) { h.config("homeassistant/device/j/config", judgedWhole(`"p":"sensor"`)) },
			func(h offline) {
				h.config("homeassistant/device/j/config", judgedWhole(`"p":"switch","cmd_t":"j/set"`))
			},
		},
		"unavailable": { // then the report is delayed
			func(h offline) { h.config(sensorTopic, judgedSensor) },
			func(h offline) {
				h.config(sensorTopic, "")
				h.config(switchTopic, `{"dev":{"ids":"j"},"o":{"name":"fw"},"avty_t":"j/up","cmd_t":"j/set","uniq_id":"s"}`)
			},
		},
		"not migrated": { // what was to be replaced is used again
			func(h offline) {
				h.config(switchTopic, judgedSwitch)
				h.config(sensorTopic, judgedSensor)
				h.settleDue(time.Now(), func(string, []transport.Sighting) {})
				h.config(switchTopic, `{"migrate_discovery":true}`)
				h.config(sensorTopic, judgedSensor+" ")
			},
			func(h offline) { h.config(switchTopic, judgedSwitch) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newOffline(t, HubConfig{})
				h.conn, h.complete = &mqttclient.Conn{}, true
				var last transport.Sighting
				settle := func() {
					time.Sleep(settleTime)
					h.settleDue(time.Now(), func(_ string, all []transport.Sighting) { last = all[0] })
				}
				test.before(h)
				settle()
				sensor := last
				if l, err := sensor.Open(t.Context()); !sensor.Sensor || err != nil || len(l.(*link).terms.offer.Topics) > 0 {
					t.Fatalf("got %+v, %v", sensor, err)
				}
				test.after(h)
				if _, err := sensor.Open(t.Context()); err == nil {
					t.Error("it was opened while it changed")
				}
				settle()
				if _, err := sensor.Open(t.Context()); !errors.Is(err, errChanged) {
					t.Errorf("after it changed, Open returned %v", err)
				}
				for range 2 * flapTime / settleTime { // until it is reported as unavailable
					settle()
				}
				if last.Instance == sensor.Instance || last.Sensor || last.Adopted {
					t.Errorf("it is still a sensor: %+v", last)
				}
				if _, err := last.Open(t.Context()); err != nil {
					t.Errorf("the new instance cannot be opened: %v", err)
				}
			})
		})
	}
}

func judgedWhole(part string) string {
	return `{"dev":{"ids":"j"},"o":{"name":"fw"},"cmps":{"a":{` + part + `,"stat_t":"j/state","uniq_id":"a"}}}`
}
