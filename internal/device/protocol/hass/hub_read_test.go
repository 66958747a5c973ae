//go:build unix

package hass

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestReadAgain: devices that were dropped altogether are found by what is known of others,
// and what is missing of known ones by their node IDs.
func TestReadAgain(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	conn := connect(t, broker)
	h := NewHub(HubConfig{Broker: "home"}, nil, slog.New(slog.DiscardHandler))
	r := newReader(h, conn)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.queue.ready:
				h.take(r.queue.drain())
			}
		}
	}()
	defer func() {
		cancel()
		<-done
	}()
	const devices = 200
	for i := range devices {
		for _, object := range []string{"battery", "power", fmt.Sprintf("own%d", i)} {
			config := fmt.Sprintf(`{"dev":{"ids":"d%d"},"stat_t":"d%d/state","cmd_t":"d%d/set"}`, i, i, i)
			topic := fmt.Sprintf("homeassistant/number/n%d/%s/config", i, object)
			publish(t, conn, topic, config, true)
			if i == 7 { // only this device has arrived
				h.take([]mqttclient.Message{{Topic: topic, Payload: []byte(config)}})
			}
		}
	}
	r.readAgain(ctx)
	if s := h.Status(); s.Devices != devices || s.Entities != 3*devices {
		t.Errorf("the status is %+v", s)
	}
}

// TestMissing: the owner is told what the broker has dropped and what to do about it.
func TestMissing(t *testing.T) {
	h := NewHub(HubConfig{Broker: "home"}, nil, slog.New(slog.DiscardHandler))
	r := newReader(h, nil)
	if _, known := r.missing(); known {
		t.Error("something is known before the broker said it")
	}
	for i, count := range []string{"100", "nonsense", "100", "142"} {
		r.countDropped(mqttclient.Message{Payload: []byte(count)})
		if n, known := r.missing(); n != []int{0, 0, 0, 42}[i] || !known {
			t.Errorf("after %s, %d are missing", count, n)
		}
	}
	h.sweep(42)
	if s := h.Status(); s.Missing != 42 || !strings.Contains(s.Note, "dropped 42 messages") || !strings.Contains(s.Note, "max_queued_messages 0") {
		t.Errorf("the status is %+v", s)
	}
}

// TestNotAllowed: a broker whose rules hide everything is told apart from an empty one, if
// it says so, and does no harm.
func TestNotAllowed(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{ACL: "topic read nothing\n"})
	w := watch(t, broker, HubConfig{})
	w.say(singlePower, single)
	wait.For(t, "all is read", func() bool { return w.Status().Complete })
	if s := w.Status(); s.Devices != 0 || s.Missing != 0 {
		t.Errorf("the status is %+v", s)
	}
}
