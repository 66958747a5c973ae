package dock_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// behind is a sighting of a device behind a hub.
func behind(hub string, b *board, title string) transport.Sighting {
	s := titled(b, title, nil)
	s.Hub = hub
	return s
}

// trusts returns the trust of devices.
func (w *world) trusts(ids ...string) (all []ferrule.Trust) {
	w.t.Helper()
	for _, id := range ids {
		all = append(all, w.device(id).Trust)
	}
	return all
}

func (w *world) wantTrust(want ferrule.Trust, ids ...string) {
	w.t.Helper()
	if got := w.trusts(ids...); slices.ContainsFunc(got, func(t ferrule.Trust) bool { return t != want }) {
		w.t.Errorf("%v are %v", ids, got)
	}
}

// TestAdoptKind checks that one decision adopts all devices of a Kind behind a hub, also
// those that are found later and after a restart, and nothing else, until it is forgotten.
func TestAdoptKind(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		bulb := func(i int, hub, model string) transport.Sighting {
			return behind(hub, &board{address: fmt.Sprintf("%s/%d", hub, i), model: model}, fmt.Sprintf("%s %d", hub, i))
		}
		w := open(t, dir)
		w.transport.see("g", bulb(1, "home", "bulb"), bulb(2, "home", "bulb"), bulb(3, "home", "lock"), bulb(4, "lab", "bulb"), found(&board{address: "a5", model: "toy"}))
		w.wantTrust(ferrule.TrustPending, "home-1", "home-2", "home-3", "lab-4", "toy")
		if others, err := w.dock.AdoptKind("home-1"); err != nil || !slices.Equal(others, []string{"home-2"}) {
			t.Fatalf("got %v, %v", others, err)
		}
		for id, want := range map[string]ferrule.Code{"toy": ferrule.Invalid, "nobody": ferrule.NotFound} {
			if _, err := w.dock.AdoptKind(id); codeOf(err) != want {
				t.Errorf("%s: got %v", id, err)
			}
		}
		check := func() {
			t.Helper()
			w.wantTrust(ferrule.TrustAdopted, "home-1", "home-2")
			w.wantTrust(ferrule.TrustPending, "home-3", "lab-4", "toy")
		}
		check()
		w.transport.see("h", bulb(6, "home", "bulb"), bulb(7, "lab", "bulb"))
		w.wantTrust(ferrule.TrustAdopted, "home-6")
		w.wantTrust(ferrule.TrustPending, "lab-7")
		if dev := w.device("home-6"); dev.Accepted != dev.Kind {
			t.Errorf("got %+v", dev)
		}
		w.stop()
		w = open(t, dir)
		check()
		w.transport.see("i", bulb(8, "home", "bulb"), bulb(9, "home", "lock"))
		w.wantTrust(ferrule.TrustAdopted, "home-8")
		w.wantTrust(ferrule.TrustPending, "home-9")
		if !w.dock.AdoptsKind("home-8") || w.dock.AdoptsKind("home-9") {
			t.Error("AdoptsKind is wrong")
		}
		if others, err := w.dock.ForgetKind("home-8"); err != nil || len(others) != 3 {
			t.Errorf("got %v, %v", others, err)
		}
		w.stop()
		w = open(t, dir)
		w.transport.see("i", bulb(8, "home", "bulb"), bulb(2, "home", "bulb"))
		w.wantTrust(ferrule.TrustPending, "home-8", "home-2")
	})
}

// TestRemovedByHub checks that a pending device disappears when its hub removes it. It stays
// if it is adopted, or if only the gateway stops.
func TestRemovedByHub(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		lamp, lock := behind("home", &board{address: "home/1", model: "bulb"}, "lamp"), behind("home", &board{address: "home/2", model: "lock"}, "lock")
		w.transport.see("g", lamp, lock)
		w.wantTrust(ferrule.TrustPending, "lamp", "lock")
		w.stop()
		w = open(t, dir)
		w.wantTrust(ferrule.TrustPending, "lamp", "lock")
		w.transport.see("g", lamp, lock)
		if err := w.dock.Adopt("lamp"); err != nil {
			t.Fatal(err)
		}
		w.transport.see("g")
		if dev := w.device("lamp"); dev.State != ferrule.StateOffline || dev.Reason != "no longer reported by home" {
			t.Errorf("got %+v", dev)
		}
		if _, _, found := w.fleet.Lookup("lock"); found {
			t.Error("the lock is still listed")
		}
	})
}

// TestAcceptKind checks that a change that is accepted for one device counts for all behind
// its hub that offer the same, also for those that offer it later, and for nothing else.
func TestAcceptKind(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w := open(t, dir)
		var all []*board
		var sightings []transport.Sighting
		for i := range 5 {
			b := &board{address: fmt.Sprint("home/", i), manifest: usual("bulb")}
			s := behind("home", b, fmt.Sprint("bulb ", i))
			if i == 4 {
				s.Hub = "lab"
			}
			all, sightings = append(all, b), append(sightings, s)
		}
		w.transport.see("g", sightings...)
		for _, id := range []string{"bulb-0", "bulb-4"} {
			if _, err := w.dock.AdoptKind(id); err != nil {
				t.Fatal(err)
			}
		}
		update := func(tool string, boards ...int) {
			for _, i := range boards {
				m := usual("bulb")
				m.Version, m.Tools = "2", append(m.Tools, ferrule.Tool{Name: tool})
				all[i].set(func(b *board) { b.manifest = m })
				sightings[i].Instance++
			}
			w.transport.see("g", sightings...)
		}
		update("explode", 0, 1, 4)
		update("sing", 3)
		if w.device("bulb-0").Waiting != 1 || w.device("bulb-1").Waiting != 1 {
			t.Fatalf("got %+v", w.device("bulb-0"))
		}
		_, others, err := w.dock.Accept("bulb-0", w.device("bulb-0").Offered)
		if err != nil || !slices.Equal(others, []string{"bulb-1"}) {
			t.Fatalf("got %v, %v", others, err)
		}
		w.stop()
		w = open(t, dir)
		update("explode", 2)
		for id, want := range map[string]int{"bulb-0": 0, "bulb-1": 0, "bulb-2": 0, "bulb-3": 1, "bulb-4": 1} {
			dev, m, _ := w.fleet.Lookup(id)
			if dev.Waiting != want || (m.Tool("explode") != nil) != (want == 0) || dev.Trust != ferrule.TrustAdopted {
				t.Errorf("%s: %+v", id, dev)
			}
		}
		late := behind("home", &board{address: "home/9", manifest: clone(all[0].manifest)}, "bulb 9")
		w.transport.see("h", late)
		w.wantTrust(ferrule.TrustAdopted, "bulb-9") // it has the new Kind from the start
	})
}
