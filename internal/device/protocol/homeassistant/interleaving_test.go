package homeassistant

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock/docktest"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

var interleavings = flag.Int("interleavings", 1000, "how many devices TestInterleavings has; each is another order of changes")

// fickle is a device that has a switch at some times.
type fickle struct {
	name   string
	person bool // a person decides something about it
	// The entities that it has, and whether the switch was ever one of them.
	switches, second, switched bool
}

func (f *fickle) address() string { return "home/" + f.name }

// device describes it. One that a person decides about is a model of its own, because such a
// decision is about all devices of a Kind.
func (f *fickle) device() *home.Device {
	d := &home.Device{ID: f.name, Name: f.name, Model: "plain", Entities: []home.Entity{{ID: "sensor." + f.name, Key: "r", Domain: "sensor", Measures: true}}}
	if f.person {
		d.Model = f.name
	}
	if f.second {
		d.Entities = append(d.Entities, home.Entity{ID: "sensor." + f.name + "_2", Key: "r2", Domain: "sensor", Measures: true})
	}
	if f.switches {
		d.Entities = append(d.Entities, home.Entity{ID: "switch." + f.name, Key: "s", Domain: "switch"})
	}
	return d
}

// TestInterleavings: whatever Home Assistant says at which time, and however slow the dock is,
// nothing can be switched on a device that nobody has adopted.
func TestInterleavings(t *testing.T) {
	const devices = 100 // of one home
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
				all[i] = &fickle{name: fmt.Sprintf("n%d", i), person: r.IntN(5) == 0}
			}
			cfg := docktest.Config{
				Dir: dir, Seed: seed, Protocols: map[string]protocol.Protocol{Name: New()}, Overlays: overlays, Journal: docktest.NewJournal(),
			}
			for range 1 + r.IntN(2) { // restarts
				interleave(t, cfg, all, r)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// interleave lets a hub and a dock run while devices change.
func interleave(t *testing.T, cfg docktest.Config, all []*fickle, r *rand.Rand) {
	dock := docktest.Open(t, cfg)
	defer dock.Stop()
	hub := NewHub(HubConfig{Home: "home"}, nil, slog.New(slog.DiscardHandler))
	hub.conn = &api.Conn{}
	services := turnOn(t)
	apply := func() {
		inventory := &home.Inventory{}
		for _, f := range all {
			inventory.Devices = append(inventory.Devices, f.device())
		}
		changed := hub.apply(inventory, services, "°C")
		hub.report(append(changed.gone, changed.sightings...), dock.Report)
	}
	hub.available(t, all)
	apply()
	for range 5 + r.IntN(10) {
		time.Sleep(someTime(r, 400*time.Millisecond))
		for range r.IntN(len(all)) {
			f := all[r.IntN(len(all))]
			switch r.IntN(4) {
			case 0, 1:
				f.switches = !f.switches
				f.switched = f.switched || f.switches
			case 2:
				f.second = !f.second
			case 3:
				if f.person {
					[]func(string){dock.Adopt, dock.Accept, dock.Forget}[r.IntN(3)](f.address())
				}
			}
		}
		apply()
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	for _, f := range all {
		p, found := dock.At(f.address())
		switch {
		case !found || p.Device.State != "online":
			t.Errorf("a device is not connected: %v", p)
		case !f.person && !f.switched && p.Device.Trust != "adopted":
			t.Errorf("a sensor cannot be used: %v", p)
		case !f.person && f.switches && p.Device.Trust == "adopted" && p.Device.Waiting == 0:
			t.Errorf("a switch does not wait: %v", p)
		}
	}
	for _, d := range hub.devices {
		dock.Report(d.address, []transport.Sighting{})
	}
	hub.leave()
}

// turnOn returns the service that switches.
func turnOn(t *testing.T) []hubService {
	t.Helper()
	s := home.Service{Domain: "switch", Name: "turn_on", Targets: []home.Target{{Domains: []string{"switch"}}}}
	encoded, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	return []hubService{{s, encoded}}
}

// available sets the states of all entities that devices may have.
func (h *Hub) available(t *testing.T, all []*fickle) {
	t.Helper()
	added := make(map[string]any)
	for _, f := range all {
		for _, id := range []string{"sensor." + f.name, "sensor." + f.name + "_2", "switch." + f.name} {
			added[id] = map[string]any{"s": "1", "a": map[string]any{}, "c": "x", "lc": 1}
		}
	}
	event, err := json.Marshal(map[string]any{"a": added})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := h.states.Apply(event); err != nil || !slices.Contains(c.Changed, "sensor.n0") {
		t.Fatalf("%d states, %v", len(c.Changed), err)
	}
}

// someTime returns a random time below a limit.
func someTime(r *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limit)))
}
