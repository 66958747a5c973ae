package dock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// thermometer is a manifest with a tool that reads, and the tools of a heater if it is one.
func thermometer(heater ...ferrule.Tool) *ferrule.Manifest {
	return &ferrule.Manifest{Model: "meter", Tools: append([]ferrule.Tool{{Name: "look", Text: "Looks.", Effect: ferrule.Reads}}, heater...)}
}

var heat = ferrule.Tool{Name: "open", Text: "Opens the valve."}

// sensor is a sighting of what a hub takes for a sensor.
func sensor(b *board, instance uint64) transport.Sighting {
	s := found(b)
	s.Sensor, s.Hub, s.Instance = true, "home", instance
	return s
}

// wantSensor checks the trust of a device, and whether it can be used to look and to open.
func (w *world) wantSensor(b *board, id string, trust ferrule.Trust, look, open bool) {
	w.t.Helper()
	if dev := w.device(id); dev.Trust != trust {
		w.t.Errorf("it is %s, want %s: %+v", dev.Trust, trust, dev)
	}
	if usable := w.usable(b, id); usable["look"] != look || usable["open"] != open {
		w.t.Errorf("it can be used to look: %t, to open: %t; want %t, %t", usable["look"], usable["open"], look, open)
	}
}

// TestSensor: a sensor is adopted without a person. One that has a tool that changes something
// when it is read waits for a person, although its connector took it for a sensor.
func TestSensor(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: thermometer()}
		w.transport.see("g", sensor(b, 1))
		w.wantSensor(b, "meter", ferrule.TrustAdopted, true, false)
		if !w.device("meter").Sensor {
			t.Error("it is not remembered as a sensor")
		}
		liar := &board{address: "a2", manifest: thermometer(heat)}
		liar.manifest.Model = "liar"
		w.transport.see("h", sensor(liar, 1))
		w.wantSensor(liar, "liar", ferrule.TrustPending, false, false)
		if w.logged.count("liar") == 0 || w.logged.count("its tool open changes something") != 1 {
			t.Errorf("logged %s", w.logged.text.String())
		}
		if err := w.dock.Adopt("liar"); err != nil {
			t.Fatal(err)
		}
		w.wantSensor(liar, "liar", ferrule.TrustAdopted, true, true)
		liar.hangUp()
		time.Sleep(time.Second)
		w.wantSensor(liar, "liar", ferrule.TrustAdopted, true, true)
	})
}

// TestSensorChanges: a device that was adopted as a sensor and gets a tool that changes
// something is used as a sensor until a person accepts the tool, in every way to come back.
func TestSensorChanges(t *testing.T) {
	for _, way := range []string{"reconnect", "mid-session", "instance", "restart", "restart as sensor"} {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			b := &board{address: "a1", manifest: thermometer(), renews: make(chan *ferrule.Manifest)}
			w.transport.see("g", sensor(b, 1))
			b.set(func(b *board) { b.manifest = thermometer(heat) })
			other := sensor(b, 2)
			other.Sensor = way == "restart as sensor"
			switch way {
			case "mid-session":
				b.renews <- thermometer(heat)
			case "reconnect":
				b.hangUp()
			case "instance":
				w.transport.see("g", other)
			default:
				w.stop()
				w = open(t, dir)
				w.transport.see("g", other)
			}
			time.Sleep(time.Second)
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, false)
			dev := w.device("meter")
			if dev.Waiting != 1 || !dev.Sensor {
				t.Errorf("%s: got %+v", way, dev)
			}
			if _, _, err := w.dock.Accept("meter", dev.Offered); err != nil {
				t.Fatal(err)
			}
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, true)
			w.stop()
			w = open(t, dir)
			w.transport.see("g", other)
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, true)
		})
	}
}

// TestSensorStricter: a tool that did only read and changes something now is not in use,
// unlike on a device that a person has adopted.
func TestSensorStricter(t *testing.T) {
	for _, way := range []string{"reconnect", "mid-session", "restart"} {
		bubble(t, func(t *testing.T, dir string) {
			w := open(t, dir)
			reads, changes := heat, heat
			reads.Effect, changes.Effect = ferrule.Reads, ferrule.Changes
			b := &board{address: "a1", manifest: thermometer(reads), renews: make(chan *ferrule.Manifest)}
			w.transport.see("g", sensor(b, 1))
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, true)
			b.set(func(b *board) { b.manifest = thermometer(changes) })
			switch way {
			case "mid-session":
				b.renews <- thermometer(changes)
			case "reconnect":
				b.hangUp()
			case "restart":
				w.stop()
				w = open(t, dir)
				w.transport.see("g", sensor(b, 2))
			}
			time.Sleep(time.Second)
			w.wantSensor(b, "meter", ferrule.TrustPending, false, false)

			// It is a sensor again.
			b.set(func(b *board) { b.manifest = thermometer(reads) })
			b.hangUp()
			time.Sleep(time.Second)
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, true)
			b.set(func(b *board) { b.manifest = thermometer(changes) })
			b.hangUp()
			time.Sleep(time.Second)
			if err := w.dock.Adopt("meter"); err != nil {
				t.Fatal(err)
			}
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, true)
		})
	}
}

// TestSensorForgotten: a device whose hub still takes it for a sensor does not get its tools
// because a person forgets it, or names it before it was read.
func TestSensorForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", manifest: thermometer()}
		w.transport.see("g", sensor(b, 1))
		b.set(func(b *board) { b.manifest = thermometer(heat) })
		if err := w.dock.Forget("meter"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantSensor(b, "meter", ferrule.TrustPending, false, false)

		late := &board{address: "a2", manifest: thermometer(heat), refuse: errors.New("busy")}
		s := sensor(late, 1)
		s.Title = "late"
		w.transport.see("h", s)
		if err := w.dock.Rename("late", "boiler"); err != nil {
			t.Fatal(err)
		}
		late.set(func(b *board) { b.refuse = nil })
		time.Sleep(time.Minute)
		for _, id := range []string{"late", "boiler"} {
			if dev, _, known := w.fleet.Lookup(id); known && dev.Trust != ferrule.TrustPending {
				t.Errorf("got %+v", dev)
			}
		}
	})
}

// TestSensorJudged: what was read before a hub took the device for a sensor is not what the hub
// judged.
func TestSensorJudged(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		reading := make(chan struct{})
		b := &board{address: "a1", manifest: thermometer(), listing: func(context.Context) { <-reading }}
		unknown := sensor(b, 1)
		unknown.Sensor = false
		w.transport.see("g", unknown)
		w.transport.see("g", sensor(b, 2)) // while it is greeted
		if dev := w.device("a1"); dev.Kind != "" {
			t.Errorf("got %+v", dev)
		}
		b.set(func(b *board) { b.manifest = thermometer(heat) })
		reading <- struct{}{}
		synctest.Wait()
		if dev, _, known := w.fleet.Lookup("meter"); known {
			t.Errorf("an outdated greeting was admitted: %+v", dev)
		}
		b.set(func(b *board) { b.manifest = thermometer() })
		close(reading)
		synctest.Wait()
		w.wantSensor(b, "meter", ferrule.TrustAdopted, true, false)
	})
}

// TestSensorOverlay: an overlay that says that a tool of a sensor changes something makes the
// device wait for a person, at once and after a restart.
func TestSensorOverlay(t *testing.T) {
	strict, err := overlay.Parse([]byte(`{"match": {"protocol": "testProtocol"}, "tools": {"look": {"effect": "changes"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		bubble(t, func(t *testing.T, dir string) {
			cache := overlay.NewCache(overlay.NewSet())
			using := func(p *dock.Parts) { p.Overlays = cache }
			w := open(t, dir, using)
			b := &board{address: "a1", manifest: thermometer()}
			w.transport.see("g", sensor(b, 1))
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, false)
			if restart {
				w.stop()
				cache.Replace(overlay.NewSet(strict))
				w = open(t, dir, using)
			} else if changed := w.dock.ReplaceOverlays(func() { cache.Replace(overlay.NewSet(strict)) }); strings.Join(changed, " ") != "meter" {
				t.Errorf("changed %q", changed)
			}
			w.wantSensor(b, "meter", ferrule.TrustPending, false, false)
			w.transport.see("g", sensor(b, 2))
			w.wantSensor(b, "meter", ferrule.TrustPending, false, false)
			if err := w.dock.Adopt("meter"); err != nil {
				t.Fatal(err)
			}
			w.wantSensor(b, "meter", ferrule.TrustAdopted, true, false)
		})
	}
}

// TestSensorOfNode: another node's record of a sensor is one of a sensor.
func TestSensorOfNode(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		reads, changes := heat, heat
		reads.Effect, changes.Effect = ferrule.Reads, ferrule.Changes
		was := thermometer(reads)
		kind, err := was.Kind()
		if err != nil {
			t.Fatal(err)
		}
		remote := &others{devices: map[string]*ferrule.Device{}, manifests: map[ferrule.Kind]*ferrule.Manifest{kind: was}}
		remote.have("meter", "a1", ferrule.StateOffline, func(dev *ferrule.Device) {
			dev.Kind, dev.Accepted, dev.Trust, dev.Sensor = kind, kind, ferrule.TrustAdopted, true
		})
		w := open(t, dir, func(p *dock.Parts) { p.Remote = remote })
		b := &board{address: "a1", manifest: thermometer(changes)}
		s := sensor(b, 1)
		s.Sensor = false // this node has seen the change
		w.transport.see("g", s)
		w.wantSensor(b, "meter", ferrule.TrustPending, false, false)
		b.set(func(b *board) { b.manifest = thermometer(reads) })
		b.hangUp()
		time.Sleep(time.Second)
		w.wantSensor(b, "meter", ferrule.TrustAdopted, true, true)
	})
}
