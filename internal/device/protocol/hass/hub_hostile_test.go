//go:build unix

package hass

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestHostileTopics: a device gets no rights of the gateway by what it writes into its
// config.
func TestHostileTopics(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{Adopt: AdoptAll})
	w.home()
	w.available(lockAt)
	for topic, want := range map[string]string{
		"$SYS/broker/uptime":                                  heldSystem,
		"$CONTROL/dynamic-security/v1":                        heldSystem,
		"homeassistant/lock/porch/front/config":               heldConfig,
		"homeassistant/status":                                heldConfig,
		"zigbee2mqtt/bridge/request/permit_join":              heldBridge,
		"zigbee2mqtt/bridge/request/device/ota_update/update": heldBridge,
		"":                           heldEmpty,
		strings.Repeat("x", 5000):    heldLong,
		"evil/+/set":                 heldWildcard,
		"evil/#":                     heldWildcard,
		"porch/lock/front/command":   heldForeign,
		"zigbee2mqtt/lamp/set":       heldForeign,
		"zigbee2mqtt/lamp/set/state": heldForeign,
		"zigbee2mqtt/cellar/set":     heldOutside,
		"garage/unknown":             heldOutside,
		"evil/set":                   "",
	} {
		config := fmt.Sprintf(`{"dev":{"ids":"evil","name":"evil lamp"},"o":{"name":"fw"},"stat_t":"evil/state","cmd_t":%q,"uniq_id":"a"}`, topic)
		w.publish("homeassistant/switch/evil_node/light/config", config)
		var l *link
		var o *offer
		wait.For(t, "the config is used", func() bool {
			opened, err := w.openPresent("home/evil")
			if err != nil {
				return false
			}
			l = opened.(*link)
			o = &l.terms.offer
			_, found := o.Topics[topic]
			return found
		})
		if got := o.Topics[topic]; got != want {
			t.Errorf("%.60q: %q, want %q", topic, got, want)
		}
		err := l.Send(t.Context(), transport.Message{Channel: topic, Data: []byte("ON")})
		if want != "" && (err == nil || !strings.Contains(err.Error(), transport.ErrUnsent.Error())) {
			t.Errorf("%.60q: sending returned %v", topic, err)
		}
	}
	if w.Status().Devices != 7 || w.absences[lockAt] > 0 {
		t.Errorf("others were disturbed: %+v", w.Status())
	}
}

// TestHostileStates: a device is not heard on everything.
func TestHostileStates(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.home()
	w.available(lockAt)
	w.publish("homeassistant/switch/evil/a/config", `{"dev":{"ids":"evil"},"stat_t":"#","cmd_t":"evil/set"}`)
	w.publish("homeassistant/switch/evil/b/config", `{"dev":{"ids":"evil"},"stat_t":"porch/lock/front/state","cmd_t":"evil/set"}`)
	w.publish("homeassistant/sensor/evil/c/config", `{"dev":{"ids":"evil"},"stat_t":"$SYS/broker/uptime"}`)
	w.publish("homeassistant/sensor/evil/d/config", `{"dev":{"ids":"evil"},"stat_t":"homeassistant/lock/porch/front/config"}`)
	w.publish("homeassistant/sensor/evil/e/config", `{"dev":{"ids":"evil"},"stat_t":"evil/state"}`)
	w.objects("home/evil", "sensor/evil/c", "sensor/evil/d", "sensor/evil/e", "switch/evil/a", "switch/evil/b")
	l, o := w.open("home/evil")
	if len(o.Foreign) != 1 || o.Foreign[0] != "porch/lock/front/state" {
		t.Errorf("foreign topics are %q", o.Foreign)
	}
	var notes []string
	l.Observe(func(f transport.Frame) { notes = append(notes, f.Note) })
	topics := []string{"#", "porch/lock/front/state", "$SYS/broker/uptime", "homeassistant/lock/porch/front/config", "evil/state"}
	if err := l.Subscribe(t.Context(), topics); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 4 {
		t.Errorf("noted %q", notes)
	}
	w.say("porch/lock/front/state", "LOCKED")
	w.say("evil/state", "ON")
	if m, err := l.Recv(t.Context()); err != nil || m.Channel != "evil/state" {
		t.Errorf("got %+v, %v", m, err)
	}
}

// TestStolenIdentity: another publisher that uses the identifiers of a lock is another
// device, and the owner decides about it.
func TestStolenIdentity(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{Adopt: AdoptAll})
	w.home()
	before := w.available(lockAt)
	evil := `{"dev":{"ids":"02005e0000a3","name":"porch"},"o":{"name":"evil"},"stat_t":"evil/state","cmd_t":"evil/set"}`
	w.publish("homeassistant/lock/porch/back/config", evil)                                          // other origin
	w.publish("homeassistant/lock/elsewhere/front/config", strings.Replace(evil, `"evil"`, `""`, 1)) // other node
	s := w.available(lockAt + "~evil")
	other := w.available(lockAt + "~unknown")
	if s.Adopted || other.Adopted || s.Sensor || other.Sensor || !s.Doubted || !other.Doubted {
		t.Errorf("the impostors are adopted: %+v, %+v", s, other)
	}
	if now := w.available(lockAt); now.Instance != before.Instance {
		t.Error("the lock was connected again")
	}
	w.objects(lockAt, "lock/porch/front")

	// When the lock is described by other topics only, they are the lock's.
	w.publish("homeassistant/lock/porch/back/config", "")
	w.publish(lockTopic, "")
	w.objects(lockAt, "lock/elsewhere/front")
	if s := w.available(lockAt); !s.Adopted {
		t.Errorf("%+v is not adopted", s)
	}
}

// TestDuplicates: one topic has two contents, one unique ID occurs twice, and two messages
// with different identifiers turn out to be about one device.
func TestDuplicates(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.publish(singlePower, single)
	w.publish(singlePower, strings.ReplaceAll(single, "m1/state", "m1/other"))
	w.publish(singleVolt, single)
	w.publish("homeassistant/sensor/m1/b/config", `{"dev":{"ids":"m2"},"o":{"name":"fw"},"stat_t":"m2/state","uniq_id":"a"}`)
	w.objects(meterAt, "sensor/m1/power", "sensor/m1/volt")
	w.available("home/m2")
	w.publish("homeassistant/sensor/m1/c/config", `{"dev":{"ids":["m2","m1"]},"o":{"name":"fw"},"stat_t":"m2/state","uniq_id":"a"}`)
	w.objects(meterAt, "sensor/m1/b", "sensor/m1/c", "sensor/m1/power", "sensor/m1/volt")
	wait.For(t, "there is one device", func() bool { return len(w.addresses()) == 1 })
	if s := w.Status(); s.Devices != 1 || s.Entities != 4 {
		t.Errorf("the status is %+v", s)
	}
}

// TestManyConfigs: a publisher cannot fill the memory.
func TestManyConfigs(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	for i := range maxConfigs + 10 {
		w.say(fmt.Sprintf("homeassistant/sensor/m1/s%d/config", i), single)
	}
	w.until(meterAt, "is there", func(transport.Sighting) bool { return true })
	wait.For(t, "some are refused", func() bool { return w.Status().Refused == 10 })
	if s := w.Status(); s.Entities != maxConfigs || len(s.Reasons) != maxReasons {
		t.Errorf("the status is %+v", s)
	}
}
