//go:build unix

package hass

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
)

// TestSleeper: a device that sleeps with a session at the broker does not act on a command
// after its caller has stopped waiting.
func TestSleeper(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	host, port, _ := net.SplitHostPort(broker.Address)
	wake := func(args ...string) string { // it exits with an error if nothing comes
		args = append([]string{"-h", host, "-p", port, "-V", "311", "-c", "-i", "sleeper", "-q", "1", "-t", "s/set"}, args...)
		out, _ := exec.Command(mosquitto.Path(t, "mosquitto_sub"), args...).Output()
		return string(out)
	}
	wake("-E") // subscribes, and sleeps
	w := watch(t, broker, HubConfig{})
	w.publish("homeassistant/switch/s/s/config", `{"dev":{"ids":"s"},"stat_t":"s","cmd_t":"s/set"}`)
	w.available("home/s")
	l, _ := w.open("home/s")
	send := func(payload string, wait time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		t.Cleanup(cancel)
		if err := l.Send(ctx, transport.Message{Channel: "s/set", Data: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
		return ctx
	}
	const long = 10 * time.Minute
	send("first", long)
	short := send("soon", 5*time.Second)
	<-short.Done()
	<-time.After(2 * time.Second) // brokers count in seconds
	send("last", long)
	if got := wake("-C", "2", "-W", "120"); got != "first\nlast\n" {
		t.Errorf("the sleeper got %q, want only what has not expired", got)
	}
}
