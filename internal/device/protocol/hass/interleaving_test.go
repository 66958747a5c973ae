package hass

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock/docktest"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

var interleavings = flag.Int("interleavings", 2000, "how many devices TestInterleavings has; each is another order of messages")

// fickle is a device that describes itself by several messages in any order. Its states have
// topics that no hub subscribes to, so no broker is needed.
type fickle struct {
	node   string
	person bool // a person decides something about it
	events []event
	// switched reports that it had a switch at some time.
	switched bool
}

// event is something that happens at a time after the start.
type event struct {
	at     time.Duration
	topic  string // of a message; empty if a person acts
	text   string
	person func(*docktest.Home)
}

func (f *fickle) address() string { return "home/" + f.node }

// topics of the messages about a device.
func (f *fickle) topic(component, object string) string {
	return fmt.Sprintf("homeassistant/%s/%s/%s/config", component, f.node, object)
}
func (f *fickle) whole() string        { return fmt.Sprintf("homeassistant/device/%s/config", f.node) }
func (f *fickle) availability() string { return f.node + "/up" }

// describes returns a message about the device with these members. One that a person
// decides about is a model of its own, because such a decision is about all devices of a Kind.
func (f *fickle) describes(members string) string {
	model := "plain"
	if f.person {
		model = f.node
	}
	return fmt.Sprintf(`{"dev":{"ids":%q,"name":%q,"mdl":%q},"o":{"name":"fw"},"avty_t":%q,%s}`, f.node, f.node, model, f.availability(), members)
}

func (f *fickle) reading(unit string) string {
	return f.describes(fmt.Sprintf(`"stat_t":"$%s","uniq_id":"r","unit_of_meas":%q`, f.node, unit))
}

func (f *fickle) switching() string {
	return f.describes(fmt.Sprintf(`"stat_t":"$%s","cmd_t":"%s/set","uniq_id":"s"`, f.node, f.node))
}

// components describes the whole device by one message.
func (f *fickle) components(switching bool) string {
	parts := fmt.Sprintf(`"r":{"p":"sensor","stat_t":"$%s","uniq_id":"r"}`, f.node)
	if switching {
		parts += fmt.Sprintf(`,"s":{"p":"switch","stat_t":"$%s","cmd_t":"%s/set","uniq_id":"s"}`, f.node, f.node)
	}
	return f.describes(`"cmps":{` + parts + `}`)
}

// newFickle returns a device that is a sensor at first, and whatever comes later.
func newFickle(node string, r *rand.Rand) *fickle {
	f := &fickle{node: node, person: r.IntN(5) == 0}
	say := func(at time.Duration, topic, text string) {
		f.events = append(f.events, event{at: at, topic: topic, text: text})
	}
	say(150*time.Millisecond, f.availability(), "online") // when it is known
	say(6*time.Second, f.availability(), "online")        // at the end
	if r.IntN(2) == 0 {
		say(someTime(r, 100*time.Millisecond), f.topic("sensor", "r"), f.reading("V"))
	} else {
		say(someTime(r, 100*time.Millisecond), f.whole(), f.components(false))
	}
	for range r.IntN(6) {
		at := 100*time.Millisecond + someTime(r, 2*time.Second)
		switch r.IntN(10) {
		case 0, 1, 2:
			f.switched = true
			say(at, f.topic("switch", "s"), f.switching())
		case 3:
			f.switched = true
			say(at, f.whole(), f.components(true))
		case 4:
			say(at, f.whole(), f.components(false))
		case 5:
			say(at, f.topic("switch", "s"), "")
		case 6:
			say(at, f.topic("switch", "s"), `{"migrate_discovery":true}`)
		case 7:
			say(at, f.topic("sensor", "r"), f.reading("A"))
		default:
			say(at, f.availability(), "offline")
			say(at+someTime(r, 2*time.Second), f.availability(), "online")
		}
	}
	if f.person {
		for range 1 + r.IntN(2) {
			person := []func(*docktest.Home){
				func(h *docktest.Home) { h.Adopt(f.address()) },
				func(h *docktest.Home) { h.Accept(f.address()) },
				func(h *docktest.Home) { h.Forget(f.address()) },
			}[r.IntN(3)]
			f.events = append(f.events, event{at: 100*time.Millisecond + someTime(r, 4*time.Second), person: person})
		}
	}
	return f
}

// TestInterleavings: whatever the order of messages, and however slow the dock is, nothing can
// be switched on a device that nobody has adopted.
func TestInterleavings(t *testing.T) {
	const devices = 100 // of one hub
	file, err := overlay.Parse(Overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlays := overlay.NewCache(overlay.NewSet(file))
	for seed := range uint64((*interleavings + devices - 1) / devices) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			all := make([]*fickle, devices)
			for i := range all {
				all[i] = newFickle(fmt.Sprintf("n%d", i), r)
			}
			cfg := docktest.Config{
				Dir: dir, Seed: seed, Protocols: map[string]protocol.Protocol{Name: New()}, Overlays: overlays, Journal: docktest.NewJournal(),
			}
			interleave(t, cfg, all, r.IntN(4) == 0)
		})
		if t.Failed() {
			return
		}
	}
}

// interleave lets a hub and a dock run with the messages of devices. If restart is set, the
// gateway is restarted in the middle.
func interleave(t *testing.T, cfg docktest.Config, all []*fickle, restart bool) {
	var events []event
	for _, f := range all {
		events = append(events, f.events...)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	if restart {
		half := len(events) / 2
		runHub(t, cfg, events[:half], 0, nil)
		var kept []event // a broker keeps the last message of each topic
		last := make(map[string]string)
		for _, e := range events[:half] {
			if e.person == nil {
				last[e.topic] = e.text
			}
		}
		for topic, text := range last {
			kept = append(kept, event{topic: topic, text: text})
		}
		events = append(kept, events[half:]...)
	}
	runHub(t, cfg, events, 2*time.Minute, func(h *docktest.Home) {
		for _, f := range all {
			f.check(t, h, restart)
		}
	})
}

// runHub runs a hub and a dock until all has happened, and for some time after that.
func runHub(t *testing.T, cfg docktest.Config, events []event, after time.Duration, then func(*docktest.Home)) {
	home := docktest.Open(t, cfg)
	defer home.Stop()
	hub := newOffline(t, HubConfig{})
	hub.conn, hub.complete = &mqttclient.Conn{}, true
	report := func(group string, all []transport.Sighting) {
		for i := range all {
			all[i].Open = judged(t, all[i])
		}
		home.Report(group, all)
	}
	start := time.Now()
	people := make(chan struct{})
	go func(events []event) {
		defer close(people)
		for _, e := range events {
			if e.person != nil {
				time.Sleep(time.Until(start.Add(e.at)))
				e.person(home)
			}
		}
	}(events)
	var end time.Time
	for { // as Hub.serve does
		var messages []mqttclient.Message
		for len(events) > 0 && time.Since(start) >= events[0].at {
			if events[0].person == nil {
				messages = append(messages, mqttclient.Message{Topic: events[0].topic, Payload: []byte(events[0].text)})
			}
			events = events[1:]
		}
		hub.take(messages)
		idle := hub.settleDue(time.Now(), report)
		if len(events) == 0 {
			if end.IsZero() {
				end = time.Now().Add(after)
			}
			if !time.Now().Before(end) {
				break
			}
		}
		pause := tickTime
		if idle && len(events) == 0 {
			pause = 10 * time.Second
		}
		time.Sleep(pause)
	}
	<-people
	synctest.Wait()
	if then != nil {
		then(home)
	}
	for _, d := range hub.devices {
		home.Report(d.address, []transport.Sighting{})
	}
}

// judged returns an opener that checks that what is read of a sensor is a sensor.
func judged(t *testing.T, s transport.Sighting) func(context.Context) (transport.Link, error) {
	return func(ctx context.Context) (transport.Link, error) {
		opened, err := s.Open(ctx)
		if err == nil && s.Sensor && len(opened.(*link).terms.offer.Topics) > 0 {
			t.Errorf("%s was reported as a sensor, and can be commanded when it is opened", s.Address)
		}
		return opened, err
	}
}

// check checks what has become of a device: a sensor works, and a switch waits for a person.
func (f *fickle) check(t *testing.T, h *docktest.Home, restarted bool) {
	t.Helper()
	p, found := h.At(f.address())
	switch {
	case !found:
		t.Errorf("%s is unknown", f.node)
	case f.person || restarted:
	case !f.switched && (p.Device.Trust != "adopted" || p.Device.State != "online"):
		t.Errorf("a sensor cannot be used: %v", p)
	case f.switched && p.Device.State != "online":
		t.Errorf("a device is not connected: %v", p)
	}
}

// someTime returns a random time below a limit.
func someTime(r *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limit)))
}
