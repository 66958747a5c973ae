package mosquitto_test

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

// TestBroker: the broker starts, takes a message, and starts again on its port.
func TestBroker(t *testing.T) {
	b := mosquitto.Start(t, mosquitto.Options{})
	b.Publish(t, "a/b", "text", "-q", "1")
	b.Kill()
	b.Restart(t)
	b.Publish(t, "a/b", "text", "-q", "1")
	secret := mosquitto.Start(t, mosquitto.Options{Users: map[string]string{"anna": "secret"}})
	secret.Publish(t, "a/b", "text", "-u", "anna", "-P", "secret", "-q", "1")
}
