package gateway

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestBrokersReloaded checks that a reload adds, changes and removes brokers, says so, and
// keeps one that a process requested, without showing a password.
func TestBrokersReloaded(t *testing.T) {
	with := func(all ...config.Broker) config.Config {
		cfg := config.Default()
		cfg.Devices.MQTT = all
		return cfg
	}
	home := config.Broker{URL: "mqtt://h", Name: "home", User: "me", Password: "hunter2"}
	r := newRequests(with(home), nil, nil, slog.New(slog.DiscardHandler))
	request := control.DeviceRequest{Transport: "mqtt", Address: "mqtt://lab:1884", Name: "lab"}
	for _, same := range []control.DeviceRequest{request, request, {Transport: "mqtt", Address: "mqtt://h:1883"}} {
		if err := r.add(same); err != nil {
			t.Fatal(err)
		}
	}
	reload := func(cfg config.Config, applied, connected string) {
		t.Helper()
		var done control.Reloaded
		if err := r.replace(cfg, &done); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, b := range r.brokers.wanted {
			names = append(names, b.Name+" "+b.Adopt)
		}
		if got := strings.Join(done.Applied, "; "); got != applied || len(done.Restart) > 0 {
			t.Errorf("got %s, restart %v", got, done.Restart)
		}
		if got := strings.Join(names, ", "); got != connected {
			t.Errorf("connected %s", got)
		}
	}
	reload(with(home), "", "home sensors, lab sensors")
	changed := home
	changed.Adopt = "all"
	reload(with(changed, config.Broker{URL: "mqtts://i"}),
		"devices.mqtt: home at mqtt://h:1883 changed; devices.mqtt: i-8883 at mqtts://i:8883 was added", "home all, i-8883 sensors, lab sensors")
	reload(with(), "devices.mqtt: home at mqtt://h:1883 was removed, and its devices are listed as offline until you forget them; "+
		"devices.mqtt: i-8883 at mqtts://i:8883 was removed, and its devices are listed as offline until you forget them", "lab sensors")
	if err := r.replace(with(config.Broker{URL: "mqtt://other", Name: "lab"}), &control.Reloaded{}); err == nil || len(r.brokers.wanted) != 1 {
		t.Errorf("two brokers of one name: %v", err)
	}
}
