//go:build unix

package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

// TestBrokers: the configured brokers are reached, and what is wrong with them is named.
func TestBrokers(t *testing.T) {
	users := map[string]string{"anna": "secret"}
	empty := mosquitto.Start(t, mosquitto.Options{Users: users, ACL: "user anna\ntopic read homeassistant/#\n"})
	home := mosquitto.Start(t, mosquitto.Options{Users: users})
	home.Publish(t, "homeassistant/light/a/light/config", "{}", "-r", "-q", "1", "-u", "anna", "-P", "secret")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()

	dir := quietConfig(t)
	file := filepath.Join(dir, "ferrule.yaml")
	text := "devices:\n  mqtt:\n"
	for _, b := range []struct{ url, name, password string }{
		{home.URL, "home", "secret"}, {home.URL, "wrong", "other"}, {empty.URL, "empty", "secret"}, {"mqtt://" + closed, "closed", "secret"},
	} {
		text += fmt.Sprintf("    - {url: %q, name: %s, user: anna, password: %s}\n", b.url, b.name, b.password)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &Doctor{file: file}
	wantLines(t, "brokers", d.mqtt(t.Context()),
		"fine reach: broker home at "+home.URL+" accepts the login, with MQTT 5",
		"fine read: broker home has descriptions of devices under homeassistant/",
		"fine publish: broker home accepts messages from this user",
		"fine dropped: broker home ",
		"wrong reach: broker wrong at "+home.URL+": the broker refused the login: wrong user or password",
		"fine reach: broker empty at "+empty.URL,
		"note read: broker empty has no descriptions of devices under homeassistant/ → turn on Home Assistant discovery",
		"note publish: broker empty forbids this user to publish to ferrule/doctor/",
		"fine dropped: broker empty does not say",
		"wrong reach: broker closed at mqtt://"+closed+": nothing listens at "+closed,
	)
	wantLines(t, "no brokers", (&Doctor{}).mqtt(t.Context()))
}
