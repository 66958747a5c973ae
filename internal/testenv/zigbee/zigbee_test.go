//go:build unix

package zigbee_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/internal/testenv/zigbee"
)

// TestZigbee2MQTT uses the devices of the simulated radio through Zigbee2MQTT: they obey,
// misbehave, join, are renamed and removed, and survive a restart.
func TestZigbee2MQTT(t *testing.T) {
	zigbee.Dir(t)
	broker := mosquitto.Start(t, mosquitto.Options{Users: map[string]string{"z2m": "secret"}, ACL: "user z2m\ntopic readwrite #\n"})
	p := zigbee.Start(t, broker, "z2m", "secret")
	if topics := p.Topics("/"); len(topics) != zigbee.Configs {
		t.Errorf("there are %d discovery messages: %q", len(topics), topics)
	}
	says := func(device string, parts ...string) {
		t.Helper()
		wait.For(t, device+" says "+strings.Join(parts, ", "), func() bool {
			state, _ := p.Last("zigbee2mqtt/" + device)
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(state, part) })
		})
	}
	set := func(device, payload string) {
		t.Helper()
		broker.Publish(t, "zigbee2mqtt/"+device+"/set", payload, "-u", "z2m", "-P", "secret")
	}

	set("plug", `{"state":"ON"}`)
	says("plug", `"state":"ON"`, `"power":42`)
	p.Mute(t, "plug")
	set("plug", `{"state":"OFF"}`)
	says("plug", `"state":"OFF"`, `"power":42`) // Zigbee2MQTT believes the answer
	p.Silent(t, "plug")
	set("plug", `{"state":"ON"}`)
	wait.For(t, "the plug gets the command", func() bool { return len(p.Got("plug")) >= 3 })
	p.Normal(t, "plug")
	p.Refuse(t, "door")
	set("door", `{"state":"UNLOCK"}`)
	wait.For(t, "the refusal is logged", func() bool {
		text, _ := p.Last("zigbee2mqtt/bridge/logging")
		return strings.Contains(text, "'door' failed")
	})
	p.Toggle(t, "contact")
	says("contact", `"contact":false`)
	p.Measure(t, "heating", "hvacThermostat", "localTemp", 2250)
	says("heating", `"local_temperature":22.5`)

	for kind, want := range map[string]string{"lamp": "/light/", "lock": "/lock/", "blind": "/cover/"} {
		joined := p.Pair(t, kind)
		wait.For(t, kind+" is published", func() bool {
			return slices.ContainsFunc(p.Topics(joined.Address), func(topic string) bool { return strings.Contains(topic, want) })
		})
		p.Rename(t, joined.Address, "new "+kind)
	}
	set("new lamp", `{"state":"ON","brightness":100}`)
	says("new lamp", `"state":"ON"`, `"brightness":100`)
	set("new blind", `{"position":50}`)
	set("new lock", `{"state":"UNLOCK"}`)
	says("new lock", `"state":"UNLOCK"`)
	says("new blind", `"position":50`)

	p.Kill()
	p.Restart(t)
	set("new lamp", `{"state":"OFF"}`)
	says("new lamp", `"state":"OFF"`)
	p.Stop()
	if state, _ := p.Last("zigbee2mqtt/bridge/state"); !strings.Contains(state, "offline") {
		t.Errorf("the bridge is %s", state)
	}
	p.Restart(t)
	for _, kind := range []string{"lamp", "lock", "blind"} {
		p.Remove(t, "new "+kind)
	}
	wait.For(t, "only the first devices are left", func() bool { return len(p.Topics("/")) == zigbee.Configs })
}

// TestCorpus counts the messages of each component.
func TestCorpus(t *testing.T) {
	want := map[string]int{
		"sensor": 12_135, "select": 6_085, "number": 4_499, "switch": 3_705, "light": 1_763, "binary_sensor": 1_751, "update": 1_563, "button": 1_099,
		"text": 1_032, "climate": 269, "cover": 174, "lock": 50, "siren": 29, "fan": 12, "infrared": 8,
	}
	for _, m := range zigbee.Corpus(t) {
		if !m.Retain || m.Payload == "" {
			t.Fatalf("%s is not retained", m.Topic)
		}
		want[strings.Split(m.Topic, "/")[1]]--
	}
	for component, left := range want {
		if left != 0 {
			t.Errorf("%s: %d messages are missing", component, left)
		}
	}
}
