//go:build unix

package mqttclient_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// retain publishes n retained messages of 900 bytes to PREFIX/NUMBER/config.
func retain(t testing.TB, conn *mqttclient.Conn, prefix string, n int) {
	t.Helper()
	payload := []byte(strings.Repeat("x", 900))
	for i := range n {
		p := mqttclient.Publication{Topic: fmt.Sprintf("%s/%d/config", prefix, i), Payload: payload, Retain: true}
		if i == n-1 {
			p.QoS = 1 // the broker has all of them when this one is confirmed
		}
		if err := conn.Publish(t.Context(), p); err != nil && !strings.Contains(err.Error(), "nobody subscribes") {
			t.Fatal(err)
		}
	}
}

// TestFlood: retained messages arrive as fast as a broker with default settings sends
// them. It drops what a subscriber does not take; how much depends on the machine.
func TestFlood(t *testing.T) {
	const n = 20_000
	broker := mosquitto.Start(t, mosquitto.Options{})
	_, conn := connect(t, config(broker.URL))
	retain(t, conn, "homeassistant/sensor", n)
	var count atomic.Int64
	start := time.Now()
	_, err := conn.Subscribe(t.Context(), func(m mqttclient.Message) {
		if m.Retained && len(m.Payload) == 900 {
			count.Add(1)
		}
	}, mqttclient.Filter{Topic: "homeassistant/sensor/+/config"})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "what the broker queues", func() bool { return count.Load() >= 1000 })
	last, took := int64(-1), time.Duration(0)
	for quiet := 0; quiet < 20; time.Sleep(10 * time.Millisecond) {
		if now := count.Load(); now != last {
			last, took, quiet = now, time.Since(start), 0
		} else {
			quiet++
		}
	}
	t.Logf("%d of %d retained messages arrived within %v", last, n, took.Round(time.Millisecond))
}

// TestFloodUnlimited: a broker that drops nothing delivers everything.
func TestFloodUnlimited(t *testing.T) {
	const n = 20_000
	broker := mosquitto.Start(t, mosquitto.Options{Lines: []string{"max_queued_messages 0"}})
	_, conn := connect(t, config(broker.URL))
	retain(t, conn, "homeassistant/sensor", n)
	for _, qos := range []byte{0, 1} {
		var count atomic.Int64
		end, err := conn.Subscribe(t.Context(), func(mqttclient.Message) { count.Add(1) }, mqttclient.Filter{Topic: "homeassistant/+/+/config", QoS: qos})
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "all messages", func() bool { return count.Load() == n })
		end()
	}
}

// TestManySubscriptions: ten thousand topics are subscribed to in batches, each message
// reaches its function, and a second subscription keeps the topics alive.
func TestManySubscriptions(t *testing.T) {
	const n = 10_000
	broker := mosquitto.Start(t, mosquitto.Options{Lines: []string{"max_queued_messages 0"}})
	_, conn := connect(t, config(broker.URL))
	var filters []mqttclient.Filter
	for i := range n {
		filters = append(filters, mqttclient.Filter{Topic: fmt.Sprintf("zigbee2mqtt/device %d", i)})
	}
	counts := make([]atomic.Int64, n)
	var other, all atomic.Int64
	start := time.Now()
	for i := range n / 2 {
		if _, err := conn.Subscribe(t.Context(), func(m mqttclient.Message) { counts[i].Add(1) }, filters[i]); err != nil {
			t.Fatal(err)
		}
	}
	end, err := conn.Subscribe(t.Context(), func(m mqttclient.Message) { other.Add(1) }, filters...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Subscribe(t.Context(), func(m mqttclient.Message) { all.Add(1) }, mqttclient.Filter{Topic: "zigbee2mqtt/#"}); err != nil {
		t.Fatal(err)
	}
	t.Logf("subscribed in %v", time.Since(start).Round(time.Millisecond))
	publish := func() {
		for i := range n {
			if err := conn.Publish(t.Context(), mqttclient.Publication{Topic: filters[i].Topic, Payload: []byte("1")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	start = time.Now()
	publish()
	wait.For(t, "all messages", func() bool { return other.Load() == n && all.Load() == n })
	t.Logf("%d messages dispatched in %v", n, time.Since(start).Round(time.Millisecond))
	end()
	publish()
	wait.For(t, "the messages after the end", func() bool { return all.Load() == 2*n })
	for i := range n / 2 {
		if got := counts[i].Load(); got != 2 {
			t.Fatalf("function %d got %d messages, want 2", i, got)
		}
	}
	if other.Load() != n {
		t.Errorf("%d messages, want none after the end", other.Load()-n)
	}
}
