package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestBrokerRefused checks that each mistake is reported with its key.
func TestBrokerRefused(t *testing.T) {
	for _, test := range []struct{ broker, want string }{
		{"{}", `devices.mqtt[0].url: must be mqtt://HOST[:PORT] or mqtts://HOST[:PORT], got ""`},
		{"{url: 192.168.1.4}", "devices.mqtt[0].url: must be mqtt://"},
		{"{url: 'tcp://h'}", "devices.mqtt[0].url: must be mqtt://"},
		{"{url: 'mqtt://'}", "devices.mqtt[0].url: must be mqtt://"},
		{"{url: 'mqtt://me@h'}", "devices.mqtt[0].url: must not contain a user or a password: set user and password_file"},
		{"{url: 'mqtt://h/base'}", "devices.mqtt[0].url: must be mqtt://"},
		{"{url: 'mqtt://h', name: a b}", "devices.mqtt[0].name: "},
		{"{url: 'mqtt://h', user: a, password: b, password_file: c}", "devices.mqtt[0].password: must not be set together with password_file"},
		{"{url: 'mqtt://h', password_file: c}", "devices.mqtt[0].user: must be set"},
		{"{url: 'mqtt://h', ca: c}", "devices.mqtt[0].url: must start with mqtts:// if ca or cert is set"},
		{"{url: 'mqtt://h', cert: c, key: d}", "devices.mqtt[0].url: must start with mqtts:// if ca or cert is set"},
		{"{url: 'mqtts://h', key: d}", "devices.mqtt[0].cert: must be set if key is set"},
		{"{url: 'mqtt://h', adopt: some}", `devices.mqtt[0].adopt: must be none, sensors or all, got "some"`},
		{"{url: 'mqtt://h', prefix: a/#}", "devices.mqtt[0].prefix: must be a topic without + and #"},
		{"{url: 'mqtt://h', prefix: $SYS}", "devices.mqtt[0].prefix: must not begin with $"},
		{"{url: 'mqtt://h', offer: a/}", "devices.mqtt[0].offer: must not begin"},
		{"{url: 'mqtt://h', offer: home}", "devices.mqtt[0].offer: must have at least two levels"},
		{"{url: 'mqtt://h', offer: a//b}", "devices.mqtt[0].offer: must have at least two levels"},
		{"{url: 'mqtt://h'}, {url: 'mqtt://h:1883'}", `devices.mqtt[1].name: "h-1883" is the name of another broker`},
	} {
		_, err := config.Parse([]byte("devices: {mqtt: [" + test.broker + "]}\n"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", test.broker, err)
		}
	}
}

// TestBrokerDefaults checks names, defaults, and that files are relative to the config.
func TestBrokerDefaults(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ferrule.yaml")
	write(t, path, "devices: {mqtt: [{url: 'mqtts://[::1]', user: me, password_file: p, ca: a, cert: b, key: c}, {url: 'mqtt://Mqtt.Example:1884', name: home, adopt: none, prefix: ha}]}\n")
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	all := c.Brokers()
	first, second := all[0], all[1]
	if first.Name != "1-8883" || first.Adopt != "sensors" || first.Prefix != "homeassistant" || !first.Local() {
		t.Errorf("got %+v", first)
	}
	if second.Name != "home" || second.Adopt != "none" || second.Prefix != "ha" || second.Local() {
		t.Errorf("got %+v", second)
	}
	client := first.Client()
	for got, name := range map[string]string{client.PasswordFile: "p", client.CA: "a", client.Cert: "b", client.Key: "c"} {
		if got != filepath.Join(dir, name) {
			t.Errorf("got %s", got)
		}
	}
	if client.User != "me" || client.URL != "mqtts://[::1]:8883" {
		t.Errorf("got %+v", client)
	}
}

// TestBrokerFlags checks --mqtt: a broker that the file has too is not added.
func TestBrokerFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ferrule.yaml")
	write(t, path, "devices: {mqtt: [{url: 'mqtt://h', name: home, adopt: all}]}\n")
	c, err := config.Resolve(config.Overrides{File: path, MQTT: []string{"mqtt://h", "home=mqtt://h:1883", "lab=mqtt://10.0.0.7:1884", "mqtt://i"}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range c.Brokers() {
		names = append(names, b.Name+" "+b.Adopt)
	}
	if got := strings.Join(names, ", "); got != "home all, lab sensors, i-1883 sensors" {
		t.Errorf("got %s", got)
	}
	if _, err := config.Resolve(config.Overrides{File: path, MQTT: []string{"=mqtt://h"}}); err == nil {
		t.Error("an empty name is accepted")
	}
}
