package hass

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// offline is a hub without a broker: tests pass messages to it.
type offline struct {
	*testing.T
	*Hub
}

func newOffline(t *testing.T, cfg HubConfig) offline {
	cfg.Broker = "home"
	return offline{t, NewHub(cfg, nil, slog.New(slog.DiscardHandler))}
}

func (o offline) config(topic, payload string) {
	o.apply(&mqttclient.Message{Topic: topic, Payload: []byte(payload)})
}

// terms returns how the topics of a device are judged after everything settled.
func (o offline) terms(address string) (*device, *terms) {
	o.Helper()
	d := o.devices[address]
	if d == nil {
		o.Fatalf("%s is unknown", address)
	}
	for _, d := range o.devices {
		o.settle(d, time.Now().Add(time.Minute))
	}
	configs, err := unpack(d.packed)
	if err != nil {
		o.Fatal(err)
	}
	return d, o.termsOf(d, o.parse(d, configs))
}

func (o offline) kind(address string) (ferrule.Kind, *description) {
	o.Helper()
	_, terms := o.terms(address)
	d := describe(&terms.offer)
	kind, err := d.manifest.Kind()
	if err != nil {
		o.Fatal(err)
	}
	return kind, d
}

// TestSensorWithCommand: a command topic that is not a text is one all the same. Otherwise a
// device that can be commanded would be adopted as a sensor.
func TestSensorWithCommand(t *testing.T) {
	for _, topic := range []string{`5`, `true`, `5.5`} {
		h := newOffline(t, HubConfig{})
		h.config("homeassistant/switch/evil/a/config", `{"dev":{"ids":"evil"},"stat_t":"evil/state","cmd_t":`+topic+`}`)
		d, _ := h.terms("home/evil")
		adopted := h.sighting(d).Sensor
		first, _ := h.kind("home/evil")
		h.config("homeassistant/switch/evil/a/config", `{"dev":{"ids":"evil"},"stat_t":"evil/state","cmd_t":"evil/set"}`)
		later, _ := h.kind("home/evil")
		if adopted {
			t.Errorf("command topic %s: it is adopted, and later has the same Kind: %v", topic, first == later)
		}
	}
}

const victimTopic = "homeassistant/lock/0x00158d00000000a9/lock/config"
const victim = `{"command_topic":"zigbee2mqtt/door/set","device":{"identifiers":["zigbee2mqtt_0x00158d00000000a9"],"name":"door"},"origin":{"name":"Zigbee2MQTT"},"state_topic":"zigbee2mqtt/door","value_template":"{{ value_json.state }}"}`

// TestTopicsOfLock: no topic that leads to a lock is that of a lamp, however it is written.
func TestTopicsOfLock(t *testing.T) {
	for _, c := range []struct{ state, command string }{
		{"", "zigbee2mqtt/door/set"},
		{"zigbee2mqtt/door/set", "zigbee2mqtt/door/set"},
		{"zigbee2mqtt/door/set/state", "zigbee2mqtt/door/set/state"},
		{"", "zigbee2mqtt/0x00158d00000000a9/set"},
		{"zigbee2mqtt/0x00158d00000000a9/state", "zigbee2mqtt/0x00158d00000000a9/set"},
		{"zigbee2mqtt/0x00158d00000000a9", "zigbee2mqtt/0x00158D00000000A9/set/state"},
	} {
		h := newOffline(t, HubConfig{})
		h.config(victimTopic, victim)
		h.complete = true
		state := ""
		if c.state != "" {
			state = `,"stat_t":"` + c.state + `"`
		}
		h.config("homeassistant/switch/evil/a/config", `{"dev":{"ids":"evil"},"cmd_t":"`+c.command+`"`+state+`}`)
		if _, terms := h.terms("home/evil"); terms.offer.Topics[c.command] == "" {
			t.Errorf("heard on %q, a lamp may command %q", c.state, c.command)
		}
		if _, terms := h.terms("home/zigbee2mqtt_0x00158d00000000a9"); terms.offer.Topics["zigbee2mqtt/door/set"] != "" {
			t.Errorf("the lock cannot be used: %v", terms.offer.Topics)
		}
	}
}

// TestBetweenTopics: the same for a topic above the command topics of a device.
func TestBetweenTopics(t *testing.T) {
	h := newOffline(t, HubConfig{})
	h.config("homeassistant/number/bath/x/config", `{"dev":{"ids":"bath"},"stat_t":"zigbee2mqtt/bath","cmd_t":"zigbee2mqtt/bath/set/heat"}`)
	h.complete = true
	h.config("homeassistant/switch/evil/a/config", `{"dev":{"ids":"evil"},"stat_t":"zigbee2mqtt/bath/set","cmd_t":"zigbee2mqtt/bath/set"}`)
	if _, terms := h.terms("home/evil"); terms.offer.Topics["zigbee2mqtt/bath/set"] != heldForeign {
		t.Errorf("judged as %v", terms.offer.Topics)
	}
	if _, terms := h.terms("home/bath"); terms.offer.Topics["zigbee2mqtt/bath/set/heat"] != "" {
		t.Errorf("the bath cannot be used: %v", terms.offer.Topics)
	}
}

// TestRestart: after a restart a lamp is read before a lock. It does not get the topics of
// the lock by that, and the owner is not asked, because a Kind has no topics.
func TestRestart(t *testing.T) {
	const lamp = "homeassistant/light/lamp/light/config"
	h := newOffline(t, HubConfig{})
	h.config(lamp, `{"dev":{"ids":"lamp"},"stat_t":"lamp/state","cmd_t":"lamp/set"}`)
	adopted, _ := h.kind("home/lamp")
	for _, c := range []struct{ state, command string }{
		{"zigbee2mqtt/door", "zigbee2mqtt/door/set"},
		{"zigbee2mqtt/door", "zigbee2mqtt/door/set/state"},
		{"zigbee2mqtt/door/set/state", "zigbee2mqtt/door/set"},
		{"lamp/state", "zigbee2mqtt/door/set"},
	} {
		h = newOffline(t, HubConfig{})
		h.config(lamp, `{"dev":{"ids":"lamp","name":"door"},"stat_t":"`+c.state+`","cmd_t":"`+c.command+`","pl_on":"UNLOCK"}`)
		h.config("homeassistant/binary_sensor/0x00158d00000000a9/open/config", strings.Replace(victim, "command_topic", "icon", 1))
		h.config(victimTopic, victim)
		h.complete = true
		for range 2 { // also when it says so again
			if kind, _ := h.kind("home/lamp"); kind == adopted {
				t.Errorf("heard on %s, an adopted lamp commands %s", c.state, c.command)
			}
			h.config(lamp, `{"dev":{"ids":"lamp","name":"a door"},"stat_t":"`+c.state+`","cmd_t":"`+c.command+`"}`)
		}
	}
}

// TestRestartSensor: a sensor that is read before a lock does not take its topics away.
func TestRestartSensor(t *testing.T) {
	h := newOffline(t, HubConfig{})
	h.config("homeassistant/binary_sensor/evil/a/config", `{"dev":{"ids":"evil"},"stat_t":"zigbee2mqtt/door"}`)
	h.config(victimTopic, victim)
	h.complete = true
	for range 2 {
		if _, terms := h.terms("home/zigbee2mqtt_0x00158d00000000a9"); terms.offer.Topics["zigbee2mqtt/door/set"] != "" {
			t.Errorf("the lock cannot be used: %v", terms.offer.Topics)
		}
		h.config("homeassistant/binary_sensor/evil/a/config", `{"dev":{"ids":"evil"},"stat_t":"zigbee2mqtt/door","name":"x"}`)
	}
}

// TestHeardCodes: a sensor, which is adopted without being asked for, does not hear the codes
// of a lock.
func TestHeardCodes(t *testing.T) {
	h := newOffline(t, HubConfig{})
	h.config(victimTopic, victim)
	h.complete = true
	for i, topic := range []string{"zigbee2mqtt/door", "zigbee2mqtt/door/set", "zigbee2mqtt/door/set/pin_code"} {
		h.config("homeassistant/sensor/evil/a/config", fmt.Sprintf(`{"dev":{"ids":"evil"},"name":"%d","stat_t":%q,"val_tpl":"{{ value_json.pin_code }}"}`, i, topic))
		if _, terms := h.terms("home/evil"); terms.refused[topic] == "" {
			t.Errorf("it is heard on %s", topic)
		}
	}
}

// TestTraceSecrets: what is secret by its name is not in a trace.
func TestTraceSecrets(t *testing.T) {
	h := newOffline(t, HubConfig{})
	h.config("homeassistant/text/keypad/pin_code/config", `{"dev":{"ids":"keypad"},"cmd_t":"keypad/set/pin_code","stat_t":"keypad/state"}`)
	if _, terms := h.terms("home/keypad"); !terms.secret["keypad/set/pin_code"] || !terms.secret["keypad/state"] {
		t.Errorf("secret are %v", terms.secret)
	}
}

// TestManySources: one topic is not read in thousands of ways, and what nobody uses is
// forgotten.
func TestManySources(t *testing.T) {
	h := newOffline(t, HubConfig{})
	for i := range 200 {
		var list []string
		for j := range 20 {
			list = append(list, fmt.Sprintf(`{"topic":"up","payload_available":"%d-%d"},{"topic":"up/%d/%d"}`, i, j, i, j))
		}
		h.config(fmt.Sprintf("homeassistant/sensor/evil/s%d/config", i), `{"dev":{"ids":"evil"},"stat_t":"s","availability":[`+strings.Join(list, ",")+`]}`)
	}
	h.sources.sweep()
	if n := len(h.sources.byTopic["up"]); n > maxReaders {
		t.Errorf("a topic is read in %d ways", n)
	}
	if n := len(h.sources.byKey); n > 32*40 {
		t.Errorf("%d sources are kept", n)
	}
}

// TestRestartIdentity: after a restart an impostor may be read before the adopted lock whose
// identifiers it has. Nothing is sent to it, not even codes, until it is gone.
func TestRestartIdentity(t *testing.T) {
	const lock = "home/zigbee2mqtt_0x00158d00000000a9"
	h := newOffline(t, HubConfig{})
	h.config("homeassistant/device/evil/config", `{"o":{"name":"Zigbee2MQTT"},"dev":{"ids":["zigbee2mqtt_0x00158d00000000a9"]},"cmps":{"lock":{"p":"lock","cmd_t":"evil/set","stat_t":"evil/state"}}}`)
	h.config(victimTopic, victim)
	h.complete = true
	d, terms := h.terms(lock)
	if reason := h.absence(d); !strings.Contains(reason, "another publisher") {
		t.Errorf("the impostor with %v is available: %q", terms.offer.Topics, reason)
	}
	h.config("homeassistant/device/evil/config", "")
	h.terms(lock)
	h.terms(lock)
	d, terms = h.terms(lock)
	if _, own := terms.offer.Topics["zigbee2mqtt/door/set"]; !own || h.absence(d) != "" {
		t.Errorf("the lock is %q with %v", h.absence(d), terms.offer.Topics)
	}
}
