package homeassistant

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// TestJudged: a device that was reported as a sensor cannot be read as anything else. A session
// hears of a change, and what was reported before the change cannot be opened later.
func TestJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fickle{name: "n0"}
		hub := NewHub(HubConfig{Home: "home"}, nil, slog.New(slog.DiscardHandler))
		hub.conn = &api.Conn{}
		hub.available(t, []*fickle{f})
		var last transport.Sighting
		set := func(switches bool) transport.Sighting {
			f.switches = switches
			c := hub.apply(&home.Inventory{Devices: []*home.Device{f.device()}}, turnOn(t), "°C")
			if len(c.sightings) != 1 || c.sightings[0].Sensor == switches {
				t.Fatalf("reported %+v", c)
			}
			last = c.sightings[0]
			return last
		}
		sensor := set(false)
		if with := set(true); with.Instance == sensor.Instance {
			t.Error("it is the same instance, and nobody has connected it")
		}
		if _, err := sensor.Open(t.Context()); !errors.Is(err, errChanged) {
			t.Errorf("after it changed, Open returned %v", err)
		}

		opened, err := set(false).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		set(true)
		if _, _, err := New().Greet(t.Context(), opened); err == nil {
			t.Error("it was greeted with what was not judged")
		}
		opened.Close()

		sensor = set(false)
		if opened, err = sensor.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		session, manifest, err := New().Greet(t.Context(), opened)
		if err != nil || manifest.Tool("turn_on") != nil {
			t.Fatalf("got %+v, %v", manifest, err)
		}
		if with := set(true); with.Instance != sensor.Instance {
			t.Error("its session does not continue")
		}
		if m, err := session.(*Session).link.Recv(t.Context()); err != nil || m.Channel != channelOffer {
			t.Errorf("the session heard %+v, %v", m, err)
		}
		opened.Close()
		if _, err := sensor.Open(t.Context()); !errors.Is(err, errChanged) {
			t.Errorf("after the session, Open returned %v", err)
		}
		if _, err = last.Open(t.Context()); err != nil {
			t.Errorf("what was reported last cannot be opened: %v", err)
		}

		// A change between the offer and the first states.
		sensor = set(false)
		if opened, err = sensor.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := opened.(*link)
		l.items = l.items[:1] // it has no states
		offer, err := receiveOffer(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		set(true)
		_, plan := New().describe(offer)
		if err := newSession(New(), l, offer, plan).firstStates(t.Context()); !errors.Is(err, errChanged) {
			t.Errorf("with another offer, the greeting returned %v", err)
		}
		l.Close()
	})
}
