package dock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The endpoints of the tests.
const (
	home      = "10.0.0.7:80/mcp"
	elsewhere = "10.0.0.9:80/mcp"
)

// network has a board at some endpoints.
type network struct {
	mu      sync.Mutex
	boards  map[string]*board
	reached string
}

// set replaces the boards.
func (n *network) set(boards map[string]*board) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.boards = boards
}

// at returns the board at an endpoint, or nil.
func (n *network) at(endpoint string) *board {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.boards[endpoint]
}

// announce returns the sighting of one device that is announced at some endpoints, whatever
// is there.
func (n *network) announce(instance uint64, endpoints ...string) transport.Sighting {
	openAt := func(ctx context.Context, endpoint string) (transport.Link, error) {
		b := n.at(endpoint)
		if b == nil {
			return nil, errors.New("no route to host")
		}
		n.mu.Lock()
		n.reached = endpoint
		n.mu.Unlock()
		return b.open(ctx)
	}
	return transport.Sighting{
		Address: "mdns:98:a3:16:f9:d9:34", Instance: instance, Transport: "http", AdoptFirst: "connecting may disturb it", Protocols: []string{"testProtocol"},
		Open: func(ctx context.Context) (transport.Link, error) { return openAt(ctx, endpoints[0]) },
		Reached: func() string {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.reached
		},
		Announced: &transport.Announced{
			Endpoints: func() []string { return endpoints },
			OpenAt:    openAt,
			Accepts:   func(_ context.Context, endpoint string) bool { return n.at(endpoint) != nil },
		},
	}
}

// adopted returns a dock with an adopted lamp that was announced at home.
func adopted(t *testing.T, dir string, n *network) *world {
	t.Helper()
	w := open(t, dir)
	w.transport.see("http", n.announce(1, home))
	if err := w.dock.Adopt("mdns:98:a3:16:f9:d9:34"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	w.wantTrusted("lamp", home)
	return w
}

// wantTrusted checks that a device is online and adopted at an endpoint.
func (w *world) wantTrusted(id, endpoint string) {
	w.t.Helper()
	dev := w.device(id)
	if dev.State != ferrule.StateOnline || dev.Trust != ferrule.TrustAdopted || dev.Trusted == nil || dev.Trusted.Endpoint != endpoint {
		w.t.Errorf("got %+v, trusted %+v, want it online at %s", dev, dev.Trusted, endpoint)
	}
}

// TestAnnouncedElsewhere: a device that announces the address of an adopted device does not
// take its place while that one can be reached where it was, not even as the same Kind:
// neither its session, nor its next session, nor after a restart of the gateway.
func TestAnnouncedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		lamp, evil := &board{model: "lamp"}, &board{model: "lamp"}
		n := &network{boards: map[string]*board{home: lamp, elsewhere: evil}}
		w := adopted(t, dir, n)
		w.transport.see("http", n.announce(2, elsewhere))
		w.transport.see("http", n.announce(3, elsewhere, home))
		time.Sleep(time.Minute)
		if w.wantTrusted("lamp", home); lamp.get(&lamp.opened) != 1 {
			t.Error("an announcement ended its session")
		}
		lamp.hangUp()
		time.Sleep(time.Minute)
		w.wantTrusted("lamp", home)
		w.transport.see("http") // a goodbye, which anybody can send
		w.transport.see("http", n.announce(4, elsewhere))
		time.Sleep(time.Minute)
		w.wantTrusted("lamp", home)
		w.stop()
		w = open(t, dir)
		w.transport.see("http", n.announce(1, elsewhere))
		time.Sleep(time.Minute)
		w.wantTrusted("lamp", home)
		if evil.get(&evil.opened) != 0 {
			t.Errorf("the other device was opened %d times", evil.opened)
		}
	})
}

// TestAnnouncedMoved: an adopted device that has another endpoint, for example from DHCP, is
// followed there at once.
func TestAnnouncedMoved(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		lamp := &board{model: "lamp"}
		n := &network{boards: map[string]*board{home: lamp}}
		w := adopted(t, dir, n)
		n.set(map[string]*board{elsewhere: lamp})
		w.transport.see("http", n.announce(2, elsewhere))
		w.wantTrusted("lamp", elsewhere)

		// Another device got its endpoint.
		n.set(map[string]*board{elsewhere: {model: "kettle"}, home: lamp})
		w.transport.see("http", n.announce(3, home))
		lamp.hangUp()
		time.Sleep(time.Minute)
		w.wantTrusted("lamp", home)
	})
}

// TestAnnouncedKind: an adopted device that appears at another endpoint as another Kind is
// pending. It is adopted again when it is back, or when its owner adopts it.
func TestAnnouncedKind(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		lamp, other := &board{model: "lamp"}, &board{model: "door opener"}
		n := &network{boards: map[string]*board{home: lamp}}
		w := adopted(t, dir, n)
		n.set(map[string]*board{elsewhere: other})
		wantPending := func() {
			t.Helper()
			dev := w.device("lamp")
			if dev.Model != "door opener" || dev.Trust != ferrule.TrustPending || len(dev.Notes) == 0 || dev.Trusted.Endpoint != home {
				t.Errorf("got %+v, want it pending", dev)
			}
		}
		w.transport.see("http", n.announce(2, elsewhere))
		wantPending()
		other.hangUp()
		time.Sleep(time.Minute)
		wantPending()
		w.stop()
		w = open(t, dir)
		w.transport.see("http", n.announce(1, elsewhere))
		wantPending()

		n.set(map[string]*board{elsewhere: other, home: lamp})
		w.transport.see("http", n.announce(2, home))
		w.wantTrusted("lamp", home)

		n.set(map[string]*board{elsewhere: other})
		w.transport.see("http", n.announce(3, elsewhere))
		wantPending()
		if err := w.dock.Adopt("lamp"); err != nil {
			t.Fatal(err)
		}
		other.hangUp()
		time.Sleep(time.Minute)
		if w.wantTrusted("lamp", elsewhere); len(w.device("lamp").Notes) > 0 {
			t.Errorf("got notes %q", w.device("lamp").Notes)
		}
		other.set(func(b *board) { b.model = "door opener 2" }) // new firmware
		other.hangUp()
		time.Sleep(time.Minute)
		w.wantTrusted("lamp", elsewhere)
		if dev := w.device("lamp"); dev.Model != "door opener" || dev.Waiting != 1 {
			t.Errorf("got %+v, want the new model to wait", dev)
		}
		if _, _, err := w.dock.Accept("lamp", w.device("lamp").Offered); err != nil {
			t.Fatal(err)
		}
		if w.wantTrusted("lamp", elsewhere); w.device("lamp").Model != "door opener 2" {
			t.Errorf("got %+v", w.device("lamp"))
		}
	})
}

// TestConfiguredLocalName: the same holds for a device that its owner named by a .local
// URL, which is resolved by announcements.
func TestConfiguredLocalName(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		lamp, other := &board{model: "lamp"}, &board{model: "door opener"}
		n := &network{boards: map[string]*board{home: lamp}}
		configured := func(endpoint string) transport.Sighting {
			s := n.announce(1, endpoint)
			s.Name, s.Adopted, s.AdoptFirst = "kitchen", true, ""
			return s
		}
		w := open(t, dir)
		w.transport.see("http", configured(home))
		w.wantTrusted("kitchen", home)
		n.set(map[string]*board{elsewhere: other})
		w.transport.see("http", configured(elsewhere))
		for range 2 {
			lamp.hangUp()
			time.Sleep(time.Minute)
			if dev := w.device("kitchen"); dev.Trust != ferrule.TrustPending || dev.State != ferrule.StateOnline {
				t.Errorf("got %+v, want it pending", dev)
			}
			lamp = other // which hangs up next
		}
	})
}

// TestConfiguredAfterAdoption: a device that was found, adopted and then named by its URL is
// one device, with its name and labels. A device of another Kind is not.
func TestConfiguredAfterAdoption(t *testing.T) {
	for _, test := range []struct{ name, model, want string }{
		{"", "lamp", "lamp:online"}, {"kitchen", "lamp", "kitchen:online"}, {"", "kettle", "kettle:online lamp:offline"},
	} {
		bubble(t, func(t *testing.T, dir string) {
			n := &network{boards: map[string]*board{home: {model: "lamp"}}}
			w := adopted(t, dir, n)
			if _, err := w.dock.Label("lamp", map[string]string{"room": "attic"}, nil); err != nil {
				t.Fatal(err)
			}
			w.stop()
			n.set(map[string]*board{home: {model: test.model}})
			s := n.announce(1, home)
			s.Address, s.Name, s.Adopted, s.AdoptFirst, s.Announced = home, test.name, true, "", nil
			for range 2 { // and after a restart
				w = open(t, dir)
				w.transport.see("http", s)
				w.wantIDs(test.want)
				dev := w.device("lamp")
				if dev.Labels["room"] != "attic" || (dev.Address == home) != (test.model == "lamp") {
					t.Errorf("%+v: got %+v", test, dev)
				}
				w.stop()
			}
		})
	}
}
