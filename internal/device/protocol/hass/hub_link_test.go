//go:build unix

package hass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestLink: commands go out once with an expiry, states come in, and Close ends both.
func TestLink(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.home()
	l, _ := w.open(lampAt)
	send := func(ctx context.Context) error {
		return l.Send(ctx, transport.Message{Channel: "zigbee2mqtt/lamp/set", Data: []byte(`{"state":"ON"}`)})
	}
	var undelivered *transport.Undelivered
	if err := send(t.Context()); !errors.As(err, &undelivered) || undelivered.Denied {
		t.Errorf("without a subscriber, Send returned %v", err)
	}
	got := make(chan string, 10)
	if _, err := w.out.Subscribe(t.Context(), func(m mqttclient.Message) { got <- string(m.Payload) }, mqttclient.Filter{Topic: "zigbee2mqtt/+/set", QoS: 1}); err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context()); err != nil || <-got != `{"state":"ON"}` {
		t.Errorf("Send returned %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := send(ended); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("after its context, Send returned %v", err)
	}
	w.publish("zigbee2mqtt/lamp", "old")
	if err := l.Subscribe(t.Context(), []string{"zigbee2mqtt/lamp"}); err != nil {
		t.Fatal(err)
	}
	w.say("zigbee2mqtt/lamp", "new")
	for _, want := range []transport.Message{{Data: []byte("old"), Retained: true}, {Data: []byte("new")}} {
		if m, err := l.Recv(t.Context()); err != nil || m.Channel != "zigbee2mqtt/lamp" || string(m.Data) != string(want.Data) || m.Retained != want.Retained {
			t.Errorf("got %+v, %v", m, err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Recv(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Recv returned %v", err)
	}
	received := make(chan error)
	go func() {
		_, err := l.Recv(t.Context())
		received <- err
	}()
	l.Close()
	if err := <-received; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("after Close, Recv returned %v", err)
	}
	if err := send(t.Context()); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("after Close, Send returned %v", err)
	}
	if len(got) > 0 {
		t.Error("something was sent twice")
	}
	again, _ := w.open(lampAt)
	again.Close()
}

// TestDenied: the rules of the broker decide.
func TestDenied(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{ACL: "topic readwrite homeassistant/#\ntopic readwrite zigbee2mqtt/lamp\ntopic readwrite zigbee2mqtt/bridge/state\ntopic readwrite zigbee2mqtt/lamp/availability\n"})
	w := watch(t, broker, HubConfig{})
	w.publish(lampTopic, lampJSON)
	w.publish("zigbee2mqtt/bridge/state", `{"state":"online"}`)
	w.publish("zigbee2mqtt/lamp/availability", `{"state":"online"}`)
	l, _ := w.open(lampAt)
	err := l.Send(t.Context(), transport.Message{Channel: "zigbee2mqtt/lamp/set"})
	var undelivered *transport.Undelivered
	if !errors.As(err, &undelivered) || !undelivered.Denied {
		t.Errorf("Send returned %v", err)
	}
}

// TestFullLink: a reader that is too slow loses the oldest messages, never the offer, and
// the connection does not wait for it.
func TestFullLink(t *testing.T) {
	l := &link{ready: make(chan struct{}, 1), terms: &terms{}, messages: []transport.Message{{Channel: channelDiscovery}}}
	var notes []string
	l.Observe(func(f transport.Frame) { notes = append(notes, f.Note) })
	for i := range 2 * maxMessages {
		l.push(mqttclient.Message{Topic: "t", Payload: fmt.Append(nil, i)})
	}
	if m, err := l.Recv(t.Context()); err != nil || m.Channel != channelDiscovery {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, err := l.Recv(t.Context()); err != nil || string(m.Data) != fmt.Sprint(maxMessages+1) {
		t.Errorf("got %q, %v", m.Data, err)
	}
	if !strings.Contains(notes[0], fmt.Sprintf("dropped %d messages", maxMessages+1)) {
		t.Errorf("noted %q", notes[0])
	}
	l.push(mqttclient.Message{Topic: "t", Payload: make([]byte, maxBytes)})
	if len(l.messages) != 1 || l.size != maxBytes {
		t.Errorf("%d messages, %d bytes", len(l.messages), l.size)
	}
}

// TestLinkExpiry: a command expires with its caller, or as its publisher says.
func TestLinkExpiry(t *testing.T) {
	l := &link{terms: &terms{expiry: map[string]time.Duration{"short": 2 * time.Second}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	now, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for _, test := range []struct {
		ctx       context.Context
		topic     string
		low, high time.Duration
	}{{ctx, "t", 50 * time.Second, time.Minute}, {ctx, "short", 2 * time.Second, 2 * time.Second}, {now, "t", minExpiry, minExpiry}, {t.Context(), "t", sendTime, sendTime}} {
		if got := l.expiry(test.ctx, test.topic); got < test.low || got > test.high {
			t.Errorf("%s expires after %v", test.topic, got)
		}
	}
}

// TestSecrets: codes and passwords are in no trace.
func TestSecrets(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.publish("homeassistant/alarm_control_panel/a/panel/config", `{"dev":{"ids":"a"},"stat_t":"a/state","cmd_t":"a/set","code":"1234"}`)
	w.publish("homeassistant/text/a/wifi/config", `{"dev":{"ids":"a"},"stat_t":"a/wifi","cmd_t":"a/wifi/set","mode":"password"}`)
	w.publish("homeassistant/text/a/admin_code/config", `{"dev":{"ids":"a"},"stat_t":"a/admin","cmd_t":"a/admin/set"}`)
	w.objects("home/a", "alarm_control_panel/a/panel", "text/a/admin_code", "text/a/wifi")
	s := w.available("home/a")
	opened, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var trace strings.Builder
	l := opened.(*link)
	l.Observe(func(f transport.Frame) { fmt.Fprintf(&trace, "%s %s %s\n", f.Message.Channel, f.Message.Data, f.Note) })
	if err := l.Subscribe(t.Context(), []string{"a/state", "a/wifi", "a/admin"}); err != nil {
		t.Fatal(err)
	}
	w.say("a/wifi", "secret1234")
	w.say("a/state", `{"pin_code":"1234"}`)
	w.say("a/admin", "1234")
	for range 4 {
		if _, err := l.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.Send(t.Context(), transport.Message{Channel: "a/set", Data: []byte("DISARM 1234")})
	l.Send(t.Context(), transport.Message{Channel: "a/wifi/set", Data: []byte("secret1234")})
	l.Send(t.Context(), transport.Message{Channel: "a/admin/set", Data: []byte("1234")})
	if text := trace.String(); strings.Contains(text, "1234") || !strings.Contains(text, "a/wifi/set") {
		t.Errorf("the trace is\n%s", text)
	}
}

// TestNoGoroutines: links have none.
func TestNoGoroutines(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	for i := range 50 {
		w.publish(fmt.Sprintf("homeassistant/sensor/n%d/a/config", i), fmt.Sprintf(`{"dev":{"ids":"d%d"},"stat_t":"d%d/state"}`, i, i))
	}
	wait.For(t, "all are there", func() bool { return len(w.addresses()) == 50 })
	before := goroutines()
	for _, address := range w.addresses() {
		l, _ := w.open(address)
		if err := l.Subscribe(t.Context(), []string{strings.TrimPrefix(address, "home/") + "/state"}); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "no goroutine is left", func() bool { return goroutines() <= before+5 })
}
