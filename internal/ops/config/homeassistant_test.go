package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestHomeRefused checks that each mistake is reported with its key.
func TestHomeRefused(t *testing.T) {
	for _, test := range []struct{ home, want string }{
		{"{}", `devices.homeassistant[0].url: must be http://HOST[:PORT] or https://HOST[:PORT], got ""`},
		{"{url: 'homeassistant.local:8123'}", "devices.homeassistant[0].url: must be http://"},
		{"{url: 'ws://h'}", "devices.homeassistant[0].url: must be http://"},
		{"{url: 'http://:8123'}", "devices.homeassistant[0].url: must be http://"},
		{"{url: 'http://h?a=b'}", "devices.homeassistant[0].url: must be http://"},
		{"{url: 'http://me@h'}", "devices.homeassistant[0].url: must not contain a user or a password"},
		{"{url: 'http://h', token: a, file: b}", "devices.homeassistant[0].token: must not be set together with file"},
		{"{url: 'http://h', ca: c}", "devices.homeassistant[0].url: must start with https:// if ca is set"},
		{"{url: 'http://h', adopt: some}", `devices.homeassistant[0].adopt: must be none, sensors or all, got "some"`},
		{"{url: 'http://h'}, {url: 'http://i'}", `devices.homeassistant[1].name: "home" is the name of another Home Assistant`},
		{"{url: 'http://h', name: a b}", "devices: "},
		{"{url: 'http://h', name: gateway}", "reserved for the gateway"},
	} {
		_, err := config.Parse([]byte("devices: {homeassistant: [" + test.home + "]}\n"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", test.home, err)
		}
	}
	_, err := config.Parse([]byte("devices: {mqtt: [{url: 'mqtt://h', name: home}], homeassistant: [{url: 'http://h'}]}\n"))
	if err == nil || !strings.Contains(err.Error(), `devices.homeassistant[0].name: "home" is the name of a broker: give one of them another name`) {
		t.Errorf("got %v", err)
	}
}

// TestHomeDefaults checks names, defaults, and that files are relative to the config.
func TestHomeDefaults(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("AppData", dir)
	path := filepath.Join(dir, "ferrule.yaml")
	write(t, path, "devices: {homeassistant: [{url: 'http://[::1]:8123/'}, {url: 'https://HA.Example', name: house, file: t, ca: c, adopt: all, all: true, settings: true}]}\n")
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	first, second := c.Homes()[0], c.Homes()[1]
	if first.Name != "home" || first.Adopt != "sensors" || first.URL != "http://[::1]:8123" || !first.Local() || first.All || first.Settings ||
		first.File != filepath.Join(filepath.Dir(config.DefaultPath()), "homeassistant-1-8123.token") {
		t.Errorf("got %+v", first)
	}
	if second.Name != "house" || second.URL != "https://ha.example" || second.Local() || second.File != filepath.Join(dir, "t") || second.CA != filepath.Join(dir, "c") {
		t.Errorf("got %+v", second)
	}
}

// TestHomeFlags checks --homeassistant: one that the file has too is not added.
func TestHomeFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ferrule.yaml")
	write(t, path, "devices: {homeassistant: [{url: 'http://h:8123', name: house, adopt: all}]}\n")
	c, err := config.Resolve(config.Overrides{File: path, HomeAssistant: []string{"http://h:8123/", "house=http://H:8123", "lab=http://10.0.0.7:8123", "http://i:8123"}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range c.Homes() {
		names = append(names, h.Name+" "+h.Adopt)
	}
	if got := strings.Join(names, ", "); got != "house all, lab sensors, home sensors" {
		t.Errorf("got %s", got)
	}
	if _, err := config.Resolve(config.Overrides{File: path, HomeAssistant: []string{"=http://h"}}); err == nil {
		t.Error("an empty name is accepted")
	}
}

// TestHomeToken checks that a token is read again each time, and that an error says what to do.
func TestHomeToken(t *testing.T) {
	h := config.Home{URL: "http://h:8123", File: filepath.Join(t.TempDir(), "token")}
	if _, err := h.ReadToken(); err == nil || !strings.Contains(err.Error(), "run `ferrule setup homeassistant http://h:8123`") {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{secret, secret + "2\n"} {
		write(t, h.File, text)
		if got, err := h.ReadToken(); err != nil || got != strings.TrimSpace(text) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	for _, text := range []string{"", "\n", "a\nb", "ä", strings.Repeat("a", 20<<10)} {
		if err := os.WriteFile(h.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReadToken(); err == nil || !strings.Contains(err.Error(), "must contain a token and nothing else") {
			t.Errorf("%.10q: got %v", text, err)
		}
	}
	if got, err := (config.Home{Token: secret}).ReadToken(); err != nil || got != secret {
		t.Errorf("got %q, %v", got, err)
	}
}
