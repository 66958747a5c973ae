package discovery_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// TestCorpus reads the messages of every device that Zigbee2MQTT supports.
func TestCorpus(t *testing.T) {
	messages := zigbee.Corpus(t)
	counts, devices, refused := map[string]int{}, map[string]int{}, 0
	commands, python := 0, 0
	start := time.Now()
	for _, message := range messages {
		topic, ok := discovery.ParseTopic("homeassistant", message.Topic)
		if !ok {
			refused++ // "ntc status" is not an ID; Home Assistant drops both, too
			continue
		}
		m, err := discovery.Parse(topic, []byte(message.Payload))
		if err != nil || len(m.Notes) > 0 || len(m.Entities) != 1 || m.Whole || m.Migrate {
			t.Fatalf("%s: got %+v, %v", message.Topic, m, err)
		}
		if m.Origin.Name != "Zigbee2MQTT" || m.Origin.Version != "2.14.1" || m.Device.Name == "" || m.Device.Model == "" {
			t.Fatalf("%s: got %+v, %+v", message.Topic, m.Device, m.Origin)
		}
		counts[topic.Component]++
		devices[m.Device.Key()]++
		options := m.Entities[0].Options
		if slices.ContainsFunc(slices.Collect(maps.Keys(options)), isCommand) {
			commands++
		}
		if on, isBool := options["payload_on"].(bool); isBool && topic.Component == "binary_sensor" {
			if text := options.Text("payload_on", ""); text != map[bool]string{false: "False", true: "True"}[on] {
				t.Errorf("%s: payload_on is %q", message.Topic, text)
			}
			python++
		}
		if topic.Component == "climate" && (options.Number("min_temp", -1000) < -100 || options.Number("max_temp", 0) == 0) {
			t.Errorf("%s: the limits are %q and %q", message.Topic, options.Text("min_temp", ""), options.Text("max_temp", ""))
		}
	}
	t.Logf("%d messages in %v: %v", len(messages), time.Since(start), counts)
	want := map[string]int{
		"sensor": 12_133, "select": 6_085, "number": 4_499, "switch": 3_705, "light": 1_763, "binary_sensor": 1_751, "update": 1_563, "button": 1_099,
		"text": 1_032, "climate": 269, "cover": 174, "lock": 50, "siren": 29, "fan": 12, "infrared": 8,
	}
	if !maps.Equal(counts, want) || refused != 2 {
		t.Errorf("got %v, and %d refused", counts, refused)
	}
	if most := slices.Max(slices.Collect(maps.Values(devices))); len(devices) != 4_479 || most != 233 {
		t.Errorf("got %d devices, with up to %d entities", len(devices), most)
	}
	if commands != 20_284 || python != 1_574 {
		t.Errorf("%d entities take commands, %d have Python's texts", commands, python)
	}
}

func isCommand(key string) bool {
	return key == "set_position_topic" || strings.HasSuffix(key, "command_topic")
}
