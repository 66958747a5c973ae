package hass

import (
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/entity"
)

// TestOwns: the command topics of real publishers are in the subtree of their devices, and
// those of other devices are not.
func TestOwns(t *testing.T) {
	for _, test := range []struct {
		heard, names string // separated by spaces
		own, others  string
	}{
		// Zigbee2MQTT, with a base topic of two levels, and with a name of two
		{"zigbee2mqtt/lamp", "lamp", "zigbee2mqtt/lamp/set zigbee2mqtt/lamp/l1/set zigbee2mqtt/lamp/set/effect", "zigbee2mqtt/lock/set zigbee2mqtt/lamp2/set zigbee2mqtt zigbee2mqtt/bridge/restart"},
		{"home/zigbee2mqtt/lamp home/zigbee2mqtt/lamp/l1", "0x01", "home/zigbee2mqtt/lamp/set home/zigbee2mqtt/lamp/l2/set", "home/zigbee2mqtt/lock/set"},
		{"zigbee2mqtt/kitchen/lamp", "kitchen/lamp", "zigbee2mqtt/kitchen/lamp/set", "zigbee2mqtt/kitchen/lock/set zigbee2mqtt/kitchen"},
		// ESPHome
		{"porch/lock/front/state porch/status", "porch", "porch/lock/front/command porch/button/restart/command", "garage/lock/front/command"},
		{"porch/sensor/temperature/state", "porch", "porch/button/restart/command", "garage/button/restart/command"},
		// Tasmota, in both orders of its topics
		{"stat/plug/RESULT tele/plug/SENSOR tele/plug/LWT", "Kettle", "cmnd/plug/POWER cmnd/plug/Dimmer", "cmnd/other/POWER cmnd/plug2/POWER"},
		{"tasmota/plug/stat/RESULT tasmota/plug/tele/LWT", "Kettle", "tasmota/plug/cmnd/POWER", "tasmota/other/cmnd/POWER"},
		// Shelly of both generations
		{"shellies/shellyplug-s-01/relay/0 shellies/shellyplug-s-01/online", "x", "shellies/shellyplug-s-01/relay/0/command", "shellies/shellyplug-s-02/relay/0/command"},
		{"shellyplus1-01/status/switch:0", "x", "shellyplus1-01/command/switch:0 shellyplus1-01/rpc", "shellyplus1-02/rpc"},
		// ebusd, Z-Wave JS UI, OpenMQTTGateway
		{"ebusd/bai/FlowTemp", "bai", "ebusd/bai/FlowTemp/set ebusd/bai/Other/set", "ebusd/hc/FlowTemp/set"},
		{"zwave/living/lamp/37/0/currentValue zwave/living/lamp/status", "lamp", "zwave/living/lamp/37/0/targetValue/set", "zwave/living/lock/98/0/targetValue/set"},
		{"home/OMG/SYStoMQTT home/OMG/LWT", "OMG", "home/OMG/commands/MQTTtoBT/config", "home/other/commands/MQTTtoBT/config"},
		// topics side by side, and a device without any state
		{"acme/7f3a/relay", "x", "acme/7f3a/set", "acme/7f3b/set acme/set"},
		{"", "x", "remote/send", ""},
	} {
		own := &territory{}
		for _, topic := range strings.Fields(test.heard) {
			own.heard, own.roots = append(own.heard, topic), append(own.roots, root(topic))
		}
		own.addNames(test.names)
		for _, topic := range strings.Fields(test.own) {
			if !own.owns(topic) {
				t.Errorf("%s is not a topic of the device that is heard on %s", topic, test.heard)
			}
		}
		for _, topic := range strings.Fields(test.others) {
			if own.owns(topic) {
				t.Errorf("%s is a topic of the device that is heard on %s", topic, test.heard)
			}
		}
	}
}

// TestQuarantine: a tool is held back for any of its topics. Topics that the hub has not
// judged are checked again.
func TestQuarantine(t *testing.T) {
	o := &offer{Prefix: "homeassistant", Foreign: []string{"lock/set"}, Topics: map[string]string{"lamp/set": "", "lock/set": heldForeign}}
	for want, topics := range map[string][]string{
		"": {"lamp/set"}, heldForeign: {"lamp/set", "lock/set"}, heldOutside: {"lamp/other"}, heldWildcard: {"lamp/#"}, heldEmpty: nil,
	} {
		if got := quarantine(entity.Tool{Topics: topics}, o); got != want {
			t.Errorf("%q: %q, want %q", topics, got, want)
		}
	}
	if got := quarantine(entity.Tool{Topics: []string{"lamp/set"}}, &offer{}); got != "" {
		t.Errorf("without the hub: %q", got)
	}
}

// TestBridgeUpdate: only Zigbee2MQTT may update firmware by a topic of its bridge.
func TestBridgeUpdate(t *testing.T) {
	const topic = "zigbee2mqtt/bridge/request/device/ota_update/update"
	if !isUpdateOfBridge(topic, "update", "Zigbee2MQTT") || isUpdateOfBridge(topic, "switch", "Zigbee2MQTT") || isUpdateOfBridge(topic, "update", "evil") ||
		isUpdateOfBridge("zigbee2mqtt/bridge/request/permit_join", "update", "Zigbee2MQTT") {
		t.Error("the wrong ones may")
	}
}

// TestTopicsOf: what is not known to be only read can change something.
func TestTopicsOf(t *testing.T) {
	heard, commanded := topicsOf(&discovery.Entity{Options: discovery.Options{
		"state_topic": "a", "current_temperature_topic": "b", "fan_mode_state_topic": "c", "topic": "d", "command_topic": "e",
		"set_position_topic": "f", "new_topic": "g", "availability_topic": "h", "name": "i", "tilt_status_topic": "a",
	}})
	if strings.Join(heard, " ") != "a b c d" || strings.Join(commanded, " ") != "e f g" {
		t.Errorf("heard %q, commanded %q", heard, commanded)
	}
}

// FuzzTopics: no topic makes the rules fail, and none with a wildcard passes.
func FuzzTopics(f *testing.F) {
	for _, topic := range []string{"zigbee2mqtt/lamp", "/stat/a/", "$SYS/x", "a/+/b", "//", "state", "\xff/\x00"} {
		f.Add(topic, "zigbee2mqtt/lamp/set")
	}
	f.Fuzz(func(t *testing.T, heard, topic string) {
		own := &territory{heard: []string{heard}, roots: []string{root(heard)}}
		own.addNames(heard)
		own.owns(topic)
		if reason := checkCommand(topic, "homeassistant"); reason == "" && (strings.ContainsAny(topic, "+#\x00") || topic == "" || topic[0] == '$' || len(topic) > maxTopic) {
			t.Errorf("%q passes", topic)
		}
		if r := root(heard); strings.Contains(r, "#") && !strings.Contains(heard, "#") {
			t.Errorf("the root of %q is %q", heard, r)
		}
	})
}
