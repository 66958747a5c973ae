package dock_test

import (
	"maps"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// titled is a sighting of a board that calls itself something.
func titled(b *board, title string, claims map[string]string) transport.Sighting {
	s := found(b)
	s.Title, s.Claims = title, claims
	return s
}

// TestTitle checks that a title becomes the ID, that two equal ones differ by digits, and
// that an ID stays when the device calls itself something else, also after a restart.
func TestTitle(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		a, b := &board{address: "a1", model: "bulb"}, &board{address: "a2", model: "bulb"}
		absent := titled(&board{address: "a3"}, "Cellar", nil)
		absent.Absent = "unavailable"
		w.transport.see("g", titled(a, "Desk lamp", map[string]string{"area": "Office"}), titled(b, "desk LAMP", nil), absent)
		w.wantIDs("cellar:offline desk-lamp:online desk-lamp-2c3a:online")
		if dev := w.device("cellar"); dev.State != ferrule.StateOffline || dev.Title != "Cellar" {
			t.Errorf("got %+v", dev)
		}
		if err := w.dock.Adopt("desk-lamp"); err != nil {
			t.Fatal(err)
		}
		renamed := titled(a, "Reading\nlamp", map[string]string{"area": "Library\u202e", "Bad Key": "x", "": "y"})
		w.transport.see("g", renamed, titled(b, "desk LAMP", nil))
		check := func(state string) {
			t.Helper()
			w.wantIDs("desk-lamp:" + state + " desk-lamp-2c3a:" + state)
			dev := w.device("desk-lamp")
			if dev.Title != "Reading lamp" || !maps.Equal(dev.Claims, map[string]string{"area": "Library"}) || dev.Labels != nil || dev.Trust != ferrule.TrustAdopted {
				t.Errorf("got %+v", dev)
			}
		}
		check("online")
		if a.get(&a.opened) != 1 {
			t.Errorf("another title reconnected the device: opened %d times", a.opened)
		}
		w.stop()
		w = open(t, dir)
		check("offline")
		renamed.Instance++
		w.transport.see("g", renamed, titled(b, "desk LAMP", nil))
		check("online")
	})
}

// TestClaimsAreNotLabels checks that what a device says about itself never becomes a label
// of its owner: policies use those.
func TestClaimsAreNotLabels(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		b := &board{address: "a1", model: "bulb"}
		claims := map[string]string{"area": "Lab", "zone": "free"}
		w.transport.see("g", titled(b, "Lamp", claims))
		if _, err := w.dock.Label("lamp", map[string]string{"area": "Kitchen"}, nil); err != nil {
			t.Fatal(err)
		}
		s := titled(b, "Lamp", claims)
		s.Instance++
		w.transport.see("g", s)
		dev := w.device("lamp")
		if !maps.Equal(dev.Labels, map[string]string{"area": "Kitchen"}) || !maps.Equal(dev.Claims, claims) {
			t.Errorf("labels %v, claims %v", dev.Labels, dev.Claims)
		}
	})
}
