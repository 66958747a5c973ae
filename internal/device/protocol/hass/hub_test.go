//go:build unix

package hass

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// watched is a hub that runs at a real broker, and what it reported.
type watched struct {
	*Hub
	t      testing.TB
	broker *mosquitto.Broker
	out    *mqttclient.Conn // of the publishers

	mu       sync.Mutex
	present  map[string]transport.Sighting
	reports  map[string]int  // by address
	gone     map[string]bool // addresses that were gone once
	absences map[string]int
}

// watch runs a hub at a broker until the test ends. It waits until all is read.
func watch(t testing.TB, broker *mosquitto.Broker, cfg HubConfig) *watched {
	t.Helper()
	if cfg.Broker == "" {
		cfg.Broker = "home"
	}
	client := runClient(t, broker)
	w := &watched{
		Hub: NewHub(cfg, client, slog.New(slog.DiscardHandler)), t: t, broker: broker, present: map[string]transport.Sighting{},
		reports: map[string]int{}, gone: map[string]bool{}, absences: map[string]int{},
	}
	w.out = connect(t, broker)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Watch(ctx, w.update) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch returned %v", err)
		}
	})
	wait.For(t, "all configs are read", func() bool { return w.Status().Complete })
	return w
}

func runClient(t testing.TB, broker *mosquitto.Broker) *mqttclient.Client {
	cfg := mqttclient.DefaultConfig()
	cfg.URL = broker.URL
	client := mqttclient.New(cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return client
}

func connect(t testing.TB, broker *mosquitto.Broker) *mqttclient.Conn {
	t.Helper()
	conn, err := runClient(t, broker).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (w *watched) update(group string, all []transport.Sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports[group]++
	if len(all) == 0 {
		delete(w.present, group)
		w.gone[group] = true
		return
	}
	for _, s := range all {
		if s.Address != group || s.Instance <= w.present[group].Instance {
			w.t.Errorf("group %s has %s, instance %d after %d", group, s.Address, s.Instance, w.present[group].Instance)
		}
		w.present[group] = s
		if s.Absent != "" {
			w.absences[group]++
		}
	}
}

// publish publishes a retained message.
func (w *watched) publish(topic, payload string) {
	w.t.Helper()
	publish(w.t, w.out, topic, payload, true)
}

// say publishes a message that is not retained.
func (w *watched) say(topic, payload string) {
	w.t.Helper()
	publish(w.t, w.out, topic, payload, false)
}

func publish(t testing.TB, conn *mqttclient.Conn, topic, payload string, retain bool) {
	t.Helper()
	err := conn.Publish(t.Context(), mqttclient.Publication{Topic: topic, Payload: []byte(payload), QoS: 1, Retain: retain})
	if _, nobody := err.(*mqttclient.Undelivered); err != nil && !nobody {
		t.Fatal(err)
	}
}

// sighting returns the present sighting of a device.
func (w *watched) sighting(address string) (transport.Sighting, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, found := w.present[address]
	return s, found
}

// until waits until a device is present and a condition holds for it.
func (w *watched) until(address, what string, holds func(s transport.Sighting) bool) (s transport.Sighting) {
	w.t.Helper()
	wait.For(w.t, address+" "+what, func() bool {
		var found bool
		s, found = w.sighting(address)
		return found && holds(s)
	})
	return s
}

func (w *watched) available(address string) transport.Sighting {
	w.t.Helper()
	return w.until(address, "is available", func(s transport.Sighting) bool { return s.Absent == "" })
}

func (w *watched) absent(address, reason string) transport.Sighting {
	w.t.Helper()
	return w.until(address, "is absent: "+reason, func(s transport.Sighting) bool { return strings.Contains(s.Absent, reason) })
}

func (w *watched) addresses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.present))
}

// open opens a link to an available device and returns its offer.
func (w *watched) open(address string) (*link, *offer) {
	w.t.Helper()
	s := w.available(address)
	l, err := s.Open(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	m, err := l.Recv(w.t.Context())
	if err != nil || m.Channel != channelDiscovery {
		w.t.Fatalf("the first message is %+v, %v", m, err)
	}
	var o offer
	if err := json.Unmarshal(m.Data, &o); err != nil {
		w.t.Fatal(err)
	}
	return l.(*link), &o
}

// openPresent opens a device as it was last reported.
func (w *watched) openPresent(address string) (transport.Link, error) {
	s, found := w.sighting(address)
	if !found {
		return nil, errors.New("the device was not reported")
	}
	return s.Open(w.t.Context())
}

// The six devices of the wire format's description.
const (
	plugTopic = "homeassistant/device/plug-7f3a/config"
	plugJSON  = `{"dev":{"ids":"plug-7f3a","name":"Kettle","mf":"Acme","mdl":"Meter plug","mdl_id":"AP-1","sw":"2.1.0","cns":[["mac","02:00:5e:00:7f:3a"]],"suggested_area":"Kitchen"},"o":{"name":"acme-fw","sw":"2.1.0"},"avty_t":"acme/7f3a/up","stat_t":"acme/7f3a/state","cmps":{"relay":{"p":"switch","uniq_id":"7f3a_relay","name":null,"dev_cla":"outlet","cmd_t":"acme/7f3a/set","val_tpl":"{{ value_json.relay }}"},"power":{"p":"sensor","uniq_id":"7f3a_w","dev_cla":"power","unit_of_meas":"W","stat_cla":"measurement","val_tpl":"{{ value_json.w }}","exp_aft":120}}}`

	lampTopic = "homeassistant/light/0x00158d00000000a2/light/config"
	lampJSON  = `{"availability":[{"topic":"zigbee2mqtt/bridge/state","value_template":"{{ value_json.state }}"},{"topic":"zigbee2mqtt/lamp/availability","value_template":"{{ value_json.state }}"}],"availability_mode":"all","brightness":true,"command_topic":"zigbee2mqtt/lamp/set","device":{"identifiers":["zigbee2mqtt_0x00158d00000000a2"],"model_id":"AB-3","name":"lamp"},"name":null,"origin":{"name":"Zigbee2MQTT","sw":"2.14.1"},"schema":"json","state_topic":"zigbee2mqtt/lamp","unique_id":"0x00158d00000000a2_light_zigbee2mqtt"}`

	lockTopic = "homeassistant/lock/porch/front/config"
	lockJSON  = `{"pl_open":"OPEN","name":"Front","stat_t":"porch/lock/front/state","cmd_t":"porch/lock/front/command","avty_t":"porch/status","uniq_id":"ESPlockfront","dev":{"ids":"02005e0000a3","name":"porch","sw":"2026.7.0","mdl":"esp32dev","mf":"Espressif","cns":[["mac","02005e0000a3"]]}}`

	coverTopic = "homeassistant/cover/garage/door/config"
	coverJSON  = `{"dev_cla":"garage","pos_t":"garage/cover/door/position/state","set_pos_t":"garage/cover/door/position/command","name":"Door","stat_t":"garage/cover/door/state","cmd_t":"garage/cover/door/command","avty_t":"garage/status","uniq_id":"ESPcoverdoor","dev":{"ids":"02005e0000a4","name":"garage","sw":"2026.7.0","mdl":"esp32dev","mf":"Espressif","cns":[["mac","02005e0000a4"]]}}`

	bathTopic = "homeassistant/climate/0x00158d00000000a5/climate/config"
	bathJSON  = `{"availability":[{"topic":"zigbee2mqtt/bridge/state","value_template":"{{ value_json.state }}"}],"current_temperature_topic":"zigbee2mqtt/bath","device":{"identifiers":["zigbee2mqtt_0x00158d00000000a5"],"model_id":"AT-2","name":"bath"},"max_temp":"30","min_temp":"5","mode_command_topic":"zigbee2mqtt/bath/set/system_mode","mode_state_topic":"zigbee2mqtt/bath","modes":["off","auto","heat"],"name":null,"origin":{"name":"Zigbee2MQTT","sw":"2.14.1"},"temperature_command_topic":"zigbee2mqtt/bath/set/occupied_heating_setpoint","temperature_state_topic":"zigbee2mqtt/bath","unique_id":"x"}`

	contactTopic = "homeassistant/binary_sensor/0x00158d00000000a6/contact/config"
	contactJSON  = `{"availability":[{"topic":"zigbee2mqtt/bridge/state","value_template":"{{ value_json.state }}"}],"device":{"identifiers":["zigbee2mqtt_0x00158d00000000a6"],"model_id":"AC-1","name":"back"},"device_class":"door","payload_off":true,"payload_on":false,"state_topic":"zigbee2mqtt/back","unique_id":"x","value_template":"{{ value_json[\"contact\"] }}"}`
	batteryTopic = "homeassistant/sensor/0x00158d00000000a6/battery/config"
	batteryJSON  = `{"availability":[{"topic":"zigbee2mqtt/bridge/state","value_template":"{{ value_json.state }}"}],"device":{"identifiers":["zigbee2mqtt_0x00158d00000000a6"],"model_id":"AC-1","name":"back"},"device_class":"battery","state_topic":"zigbee2mqtt/back","unique_id":"y","unit_of_measurement":"%","value_template":"{{ value_json[\"battery\"] }}"}`

	plugAt    = "home/plug-7f3a"
	lampAt    = "home/zigbee2mqtt_0x00158d00000000a2"
	lockAt    = "home/02005e0000a3"
	coverAt   = "home/02005e0000a4"
	bathAt    = "home/zigbee2mqtt_0x00158d00000000a5"
	contactAt = "home/zigbee2mqtt_0x00158d00000000a6"
)

// home publishes the six devices, and that they are available.
func (w *watched) home() {
	w.t.Helper()
	for topic, payload := range map[string]string{
		plugTopic: plugJSON, lampTopic: lampJSON, lockTopic: lockJSON, coverTopic: coverJSON, bathTopic: bathJSON, contactTopic: contactJSON,
		batteryTopic: batteryJSON, "acme/7f3a/up": "online", "porch/status": "online", "garage/status": "online",
		"zigbee2mqtt/bridge/state": `{"state":"online"}`, "zigbee2mqtt/lamp/availability": `{"state":"online"}`,
	} {
		w.publish(topic, payload)
	}
}

// TestHome: the six devices are found, their own command topics are theirs, and only
// sensors are adopted.
func TestHome(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{Local: true})
	w.home()
	for address, commands := range map[string]int{plugAt: 1, lampAt: 1, lockAt: 1, coverAt: 2, bathAt: 2, contactAt: 0} {
		s := w.available(address)
		if s.Sensor != (commands == 0) || s.Adopted || !s.Local || s.Transport != "mqtt" || !slices.Equal(s.Protocols, []string{Name}) {
			t.Errorf("%+v is wrong", s)
		}
		_, o := w.open(address)
		if len(o.Topics) != commands || len(o.Foreign) != 0 {
			t.Errorf("%s has the command topics %v, foreign %v", address, o.Topics, o.Foreign)
		}
		for topic, reason := range o.Topics {
			if reason != "" {
				t.Errorf("%s: %s: %s", address, topic, reason)
			}
		}
	}
	if s := w.available(plugAt); s.Title != "Kettle" || s.Claims["area"] != "Kitchen" {
		t.Errorf("the plug is called %q in %v", s.Title, s.Claims)
	}
	if s := w.Status(); s.Devices != 6 || s.Entities != 8 || s.Refused != 0 || s.Note != "" {
		t.Errorf("the status is %+v", s)
	}
}
