//go:build unix

package hass

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/testenv/mosquitto"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const (
	single = `{"dev":{"ids":"m1","name":"Meter"},"o":{"name":"fw"},"stat_t":"m1/state","uniq_id":"a"}`
	whole  = `{"dev":{"ids":"m1","name":"Meter"},"o":{"name":"fw"},"cmps":{"power":{"p":"sensor","stat_t":"m1/state","uniq_id":"a"},"volt":{"p":"sensor","stat_t":"m1/state","uniq_id":"b"}}}`

	singlePower, singleVolt = "homeassistant/sensor/m1/power/config", "homeassistant/sensor/m1/volt/config"
	wholeMeter              = "homeassistant/device/m1/config"
	migrating               = `{"migrate_discovery":true}`
	meterAt                 = "home/m1"
)

// objects waits until a device has configs for these topics, without the prefix.
func (w *watched) objects(address string, want ...string) {
	w.t.Helper()
	var got string
	wait.For(w.t, fmt.Sprintf("%s has %q", address, want), func() bool {
		s, found := w.sighting(address)
		if !found || s.Absent != "" {
			return false
		}
		l, err := s.Open(w.t.Context())
		if err != nil {
			return false
		}
		defer l.Close()
		got = ""
		for _, c := range l.(*link).terms.offer.Configs {
			got += " " + c.topic().String()
		}
		return strings.TrimSpace(got) == strings.Join(want, " ")
	})
}

// TestMigration: a publisher that changes between the forms never loses its device.
func TestMigration(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.publish(singlePower, single)
	w.publish(singleVolt, single)
	w.objects(meterAt, "sensor/m1/power", "sensor/m1/volt")

	w.publish(singlePower, migrating)
	w.publish(singleVolt, migrating)
	w.publish(wholeMeter, whole)
	w.publish(singlePower, "")
	w.publish(singleVolt, "")
	w.objects(meterAt, "device/m1")

	w.publish(wholeMeter, migrating)
	w.objects(meterAt, "device/m1") // it stays until there is something else
	w.publish(singlePower, single)
	w.objects(meterAt, "sensor/m1/power")
	w.publish(wholeMeter, "")
	w.objects(meterAt, "sensor/m1/power")
	if len(w.gone) > 0 || w.absences[meterAt] > 0 || len(w.addresses()) != 1 {
		t.Errorf("gone %v, absent %v, present %v", w.gone, w.absences, w.addresses())
	}
}

// TestRename: topics change during a call, the address does not.
func TestRename(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{Adopt: AdoptAll})
	w.home()
	l, _ := w.open(lampAt)
	before := w.available(lampAt)
	renamed := strings.ReplaceAll(lampJSON, "zigbee2mqtt/lamp", "zigbee2mqtt/desk")
	w.publish("zigbee2mqtt/desk/availability", `{"state":"online"}`)
	w.publish(lampTopic, strings.ReplaceAll(renamed, `"name":"lamp"`, `"name":"desk"`))
	if _, err := l.Recv(t.Context()); err != errChanged {
		t.Errorf("the old link ends with %v", err)
	}
	after := w.until(lampAt, "is renamed", func(s transport.Sighting) bool { return s.Title == "desk" && s.Absent == "" })
	if after.Instance <= before.Instance || !after.Adopted || w.gone[lampAt] {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if _, o := w.open(lampAt); len(o.Topics) != 1 || o.Topics["zigbee2mqtt/desk/set"] != "" {
		t.Errorf("the command topics are %v", o.Topics)
	}
	if err := l.Send(t.Context(), transport.Message{Channel: "zigbee2mqtt/lamp/set"}); err == nil {
		t.Error("a command was sent to the old name")
	}
}

// TestRemoval: one entity is removed, then all.
func TestRemoval(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.home()
	w.objects(contactAt, "binary_sensor/0x00158d00000000a6/contact", "sensor/0x00158d00000000a6/battery")
	w.publish(contactTopic, "")
	w.objects(contactAt, "sensor/0x00158d00000000a6/battery")
	start := time.Now()
	w.publish(batteryTopic, "")
	wait.For(t, "the contact is gone", func() bool { _, found := w.sighting(contactAt); return !found })
	if took := time.Since(start); took < goneTime {
		t.Errorf("it was gone after %v", took)
	}
	w.publish(batteryTopic, "not JSON")
	w.publish(lampTopic, "not JSON") // the old one stays
	wait.For(t, "the messages are refused", func() bool { return w.Status().Refused == 2 })
	w.objects(lampAt, "light/0x00158d00000000a2/light")
	if s := w.Status(); s.Devices != 5 {
		t.Errorf("the status is %+v", s)
	}
	w.Hub.mu.Lock()
	defer w.Hub.mu.Unlock()
	if len(w.byConfig) != 5 || len(w.waiting) != 0 || w.raw != 0 {
		t.Errorf("%d configs, %d devices wait, %d bytes are not compressed", len(w.byConfig), len(w.waiting), w.raw)
	}
}

// TestDeadDevice: configs stay at the broker when a device dies. It is absent then, and
// cannot be opened for calls.
func TestDeadDevice(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	first := connect(t, broker)
	publish(t, first, lockTopic, lockJSON, true)
	publish(t, first, "porch/status", "offline", true)
	publish(t, first, plugTopic, plugJSON, true) // never heard of
	w := watch(t, broker, HubConfig{})
	w.absent(lockAt, "unavailable, says porch/status")
	w.absent(plugAt, "nothing was heard on acme/7f3a/up")
	if w.reports[lockAt] != 1 || w.reports[plugAt] != 1 {
		t.Errorf("reported %v", w.reports)
	}
}

// TestTwoBrokers: the same identifiers at two brokers are two devices.
func TestTwoBrokers(t *testing.T) {
	one := watch(t, mosquitto.Start(t, mosquitto.Options{}), HubConfig{Broker: "one"})
	two := watch(t, mosquitto.Start(t, mosquitto.Options{}), HubConfig{Broker: "two"})
	one.publish(singlePower, single)
	two.publish(singlePower, strings.ReplaceAll(single, "m1/state", "other/state"))
	one.available("one/m1")
	two.available("two/m1")
	l, _ := one.open("one/m1")
	if err := l.Subscribe(t.Context(), []string{"m1/state"}); err != nil {
		t.Fatal(err)
	}
	two.say("m1/state", "of two")
	one.say("m1/state", "of one")
	if m, err := l.Recv(t.Context()); err != nil || string(m.Data) != "of one" {
		t.Errorf("got %q, %v", m.Data, err)
	}
}

// TestReconnect: while the broker is lost all devices are absent, and links end. What was
// removed meanwhile is gone afterwards.
func TestReconnect(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{}) // keeps nothing
	w := watch(t, broker, HubConfig{})
	w.home()
	w.available(plugAt)
	w.available(contactAt)
	l, _ := w.open(lampAt)
	broker.Kill()
	w.absent(plugAt, "the broker home is unreachable")
	w.absent(contactAt, "the broker home is unreachable")
	if _, err := l.Recv(t.Context()); err == nil {
		t.Error("the link lives on")
	}
	if err := l.Send(t.Context(), transport.Message{Channel: "zigbee2mqtt/lamp/set"}); err == nil {
		t.Error("a command was sent")
	}
	broker.Restart(t)
	again := connect(t, broker)
	publish(t, again, lampTopic, lampJSON, true)
	publish(t, again, "zigbee2mqtt/bridge/state", `{"state":"online"}`, true)
	publish(t, again, "zigbee2mqtt/lamp/availability", `{"state":"online"}`, true)
	w.available(lampAt)
	wait.For(t, "the others are gone", func() bool { return len(w.addresses()) == 1 })
	w.open(lampAt)
}

// TestFlapping: a device that comes and goes ten times a second is not reported more often
// than once a second, and is not taken away.
func TestFlapping(t *testing.T) {
	broker := mosquitto.Start(t, mosquitto.Options{})
	w := watch(t, broker, HubConfig{})
	w.home()
	w.available(lockAt)
	w.mu.Lock()
	before := w.reports[lockAt]
	w.mu.Unlock()
	start := time.Now()
	for i := 0; time.Since(start) < 3*time.Second; i++ {
		w.say("porch/status", []string{"offline", "online"}[i%2])
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		<-ctx.Done()
		cancel()
	}
	w.mu.Lock()
	reports := w.reports[lockAt] - before
	w.mu.Unlock()
	if took := time.Since(start); reports > int(took/time.Second) {
		t.Errorf("%d changes were reported in %v", reports, took)
	}
	w.say("porch/status", "offline")
	w.absent(lockAt, "says porch/status")
	w.say("porch/status", "online")
	w.available(lockAt)
}
