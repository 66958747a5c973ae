package dock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// others is the records of other nodes, controlled by the test.
type others struct {
	mu        sync.Mutex
	devices   map[string]*ferrule.Device
	manifests map[ferrule.Kind]*ferrule.Manifest
}

func (o *others) Known(id string) (*ferrule.Device, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	dev, ok := o.devices[id]
	return dev, ok
}

// Manifest implements dock.Remote.
func (o *others) Manifest(_ context.Context, kind ferrule.Kind) (*ferrule.Manifest, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m := o.manifests[kind]; m != nil {
		return m, nil
	}
	return nil, errors.New("no such manifest")
}

// have makes a device known on the node shed.
func (o *others) have(id, address string, state ferrule.State, change ...func(*ferrule.Device)) {
	dev := &ferrule.Device{ID: id, Address: address, Node: "shed", State: state, Kind: "k", Trust: ferrule.TrustPending, Vouched: true}
	for _, fn := range change {
		fn(dev)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.devices[id] = dev
}

func (o *others) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.devices, id)
}

// openNode starts a dock that is one of several nodes.
func openNode(t *testing.T, dir string) (*world, *others) {
	o := &others{devices: make(map[string]*ferrule.Device)}
	return open(t, dir, o.join), o
}

// join makes the dock the node house.
func (o *others) join(p *dock.Parts) { p.Node, p.Remote = "house", o }

// reconsider calls Reconsider and waits for the effect.
func (w *world) reconsider(id string) {
	w.dock.Reconsider(id)
	synctest.Wait()
}

// wantOpened checks how often a board was opened and how many links are open.
func (b *board) wantOpened(t *testing.T, opened, links int) {
	t.Helper()
	if n, m := b.get(&b.opened), b.get(&b.links); n != opened || m != links {
		t.Errorf("%s was opened %d times and has %d links, want %d and %d", b.address, n, m, opened, links)
	}
}

// TestNode checks that every device has the name of the node.
func TestNode(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w := open(t, dir)
		w.transport.see("g", found(b))
		if dev := w.device("demo"); dev.Node != "" {
			t.Errorf("got %+v", dev)
		}
		w.stop()
		for _, node := range []string{"house", "barn", ""} {
			w = open(t, dir, func(p *dock.Parts) { p.Node = node })
			want := func(id string) {
				t.Helper()
				if dev := w.device(id); dev.Node != node {
					t.Errorf("the node is %q, want %q: %+v", dev.Node, node, dev)
				}
			}
			want("demo") // as stored
			w.transport.see("g", found(b))
			want("demo")
			refusing := &board{address: "a2", refuse: errors.New("off")}
			w.transport.see("h", found(refusing))
			want("a2")
			w.transport.see("g")
			want("demo")
			if err := w.dock.Adopt("demo"); err != nil {
				t.Error(err)
			}
			want("demo")
			w.stop()
			want("demo")
		}
	})
}

// TestNamesOnOtherNodes checks that a name of another device on another node is not
// given away.
func TestNamesOnOtherNodes(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w, o := openNode(t, dir)
		o.have("demo", "x9", ferrule.StateOffline)
		w.transport.see("1", found(&board{address: "a1", model: "demo"}))
		w.wantIDs("demo-f55f:online")

		// It is the same device, although a shorter name is free.
		o.have("lamp-2c3a", "a2", ferrule.StateOffline)
		w.transport.see("2", found(&board{address: "a2", model: "lamp"}))
		o.have("plug", "a3", ferrule.StateOffline)
		w.transport.see("3", found(&board{address: "a3", model: "plug"}))
		w.wantIDs("demo-f55f:online lamp-2c3a:online plug:online")

		// A name configured here is not used for it.
		w.transport.see("4", named(&board{address: "a4", model: "fan"}, "fan"))
		o.have("fan", "a5", ferrule.StateOffline)
		w.transport.see("5", found(&board{address: "a5", model: "fan"}))
		if dev := w.device("fan"); dev.Address != "a4" {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestLocalAddress checks that a local address on another node is another device.
func TestLocalAddress(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w, o := openNode(t, dir)
		o.have("demo", "a1", ferrule.StateOnline, func(d *ferrule.Device) { d.Trust = ferrule.TrustAdopted })
		b := &board{address: "a1", model: "demo"}
		s := found(b)
		s.Local = true
		w.transport.see("1", s)
		all := w.fleet.Devices()
		if len(all) != 1 || all[0].ID == "demo" || !strings.HasPrefix(all[0].ID, "demo-") || all[0].Trust != ferrule.TrustPending {
			t.Fatalf("got %+v", all)
		}
		id := all[0].ID
		o.have(id, "a1", ferrule.StateOnline)
		w.reconsider(id)
		time.Sleep(time.Second)
		if all = w.fleet.Devices(); len(all) != 1 || all[0].ID == id || all[0].State != ferrule.StateOnline {
			t.Errorf("got %+v", all)
		}
	})
}

// TestRemoteRecord checks that the record of another node wins over the stored one.
func TestRemoteRecord(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", found(b))
		kind := w.device("demo").Kind
		if err := w.dock.Adopt("demo"); err != nil {
			t.Fatal(err)
		}
		w.transport.see("g")

		labels := map[string]string{"room": "kitchen"}
		last := func(d *ferrule.Device) { d.Trust, d.Labels, d.Kind = ferrule.TrustPending, labels, kind }
		o.have("demo", "a1", ferrule.StateOffline, last)
		w.transport.see("g", found(b))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustPending || !maps.Equal(dev.Labels, labels) || dev.Previous != "" {
			t.Errorf("got %+v", dev)
		}
		w.transport.see("g")
		o.have("demo", "a1", ferrule.StateOffline, last, func(d *ferrule.Device) { d.Trust, d.Kind = ferrule.TrustAdopted, "k0" })
		w.transport.see("g", found(b))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.Previous != "k0" || dev.Changed.IsZero() {
			t.Errorf("got %+v", dev)
		}
		w.transport.see("g")

		// A configured device is adopted; a remote record that was never reached does
		// not matter.
		o.have("demo", "a1", ferrule.StateOffline, last)
		s := found(b)
		s.Adopted = true
		w.transport.see("g", s)
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted {
			t.Errorf("got %+v", dev)
		}
		w.transport.see("g")
		o.have("demo", "a1", ferrule.StateOffline, func(d *ferrule.Device) { d.Kind = "" })
		w.transport.see("g", found(b))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || !maps.Equal(dev.Labels, labels) {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestFirstTimeHere checks that a new device brings its trust and labels from
// another node.
func TestFirstTimeHere(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w, o := openNode(t, dir)
		o.have("demo", "a1", ferrule.StateOffline, func(d *ferrule.Device) {
			d.Trust, d.Labels = ferrule.TrustAdopted, map[string]string{"room": "kitchen"}
		})
		w.transport.see("g", found(&board{address: "a1", model: "demo"}))
		if dev := w.device("demo"); dev.Trust != ferrule.TrustAdopted || dev.Labels["room"] != "kitchen" || dev.Previous != "k" || dev.Node != "house" {
			t.Errorf("got %+v", dev)
		}
	})
}

// TestAdoptFirstAdoptedRemotely checks that a waiting board is opened if it was adopted on
// another node.
func TestAdoptFirstAdoptedRemotely(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w, o := openNode(t, dir)
		b := &board{address: "a1", model: "demo"}
		w.transport.see("g", found(b))
		w.transport.see("g")
		s := found(b)
		s.AdoptFirst = "it may restart"
		w.transport.see("g", s)
		b.wantOpened(t, 1, 0)
		w.transport.see("g")
		o.have("demo", "a1", ferrule.StateOffline, func(d *ferrule.Device) { d.Trust = ferrule.TrustAdopted })
		w.transport.see("g", s)
		b.wantOpened(t, 2, 1)
	})
}

// TestStoredNameGivenAway checks that a stored name is given up if another node gave
// it to another device.
func TestStoredNameGivenAway(t *testing.T) {
	for name, test := range map[string]struct {
		refuse error
		want   string
	}{
		"in reach":     {nil, "demo-f55f:online"},
		"not in reach": {errors.New("off"), "demo-f55f:offline"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				b := &board{address: "a1", model: "demo"}
				w, o := openNode(t, dir)
				w.transport.see("g", found(b))
				w.transport.see("g")
				dev := *w.device("demo")
				dev.Trust, dev.Labels = ferrule.TrustAdopted, map[string]string{"room": "kitchen"}
				if err := w.store.Keep(&dev, nil); err != nil {
					t.Fatal(err)
				}
				w.stop()
				b.set(func(b *board) { b.refuse = test.refuse })

				o.have("demo", "x9", ferrule.StateOffline)
				w = open(t, dir, o.join)
				w.transport.see("g", found(b))
				w.wantIDs(test.want)
				now := w.device("demo-f55f")
				if now.Trust != ferrule.TrustAdopted || now.Labels["room"] != "kitchen" || now.Kind != dev.Kind || now.Previous != "" {
					t.Errorf("got %+v", now)
				}
				if _, m, _ := w.fleet.Lookup("demo-f55f"); m == nil || m.Tool("look") == nil {
					t.Error("what it can do was lost")
				}
				o.forget("demo") // it keeps the new name
				w.stop()
				w = open(t, dir, o.join)
				w.wantIDs("demo-f55f:offline")
			})
		})
	}
}

// TestNameGivenAwayWhileGreeting checks that a name lost during the greeting is not
// used.
func TestNameGivenAwayWhileGreeting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", found(b))
		w.transport.see("g")
		s := found(b)
		s.Open = func(ctx context.Context) (transport.Link, error) {
			time.Sleep(time.Second)
			return b.open(ctx)
		}
		w.transport.see("g", s)
		o.have("demo", "x9", ferrule.StateOnline)
		w.reconsider("demo")
		time.Sleep(2 * time.Second)
		w.wantIDs("demo-f55f:online")
		b.wantOpened(t, 2, 1)
	})
}

// TestNameLost checks that an online device gets another ID when it has lost its
// name.
func TestNameLost(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", found(b))
		if err := w.dock.Adopt("demo"); err != nil {
			t.Fatal(err)
		}
		o.have("demo", "x9", ferrule.StateOffline)
		w.reconsider("demo")
		w.wantIDs("demo-f55f:online")
		b.wantOpened(t, 2, 1)
		if dev := w.device("demo-f55f"); dev.Trust != ferrule.TrustAdopted || len(dev.Notes) > 0 {
			t.Errorf("got %+v", dev)
		}
		w.reconsider("demo")
		w.reconsider("demo-f55f")
		time.Sleep(time.Hour)
		b.wantOpened(t, 2, 1)
		if _, err := w.call(t.Context(), ferrule.Agent, "demo-f55f", "look"); err != nil {
			t.Error(err)
		}
	})
}

// TestNameLostOutOfSight checks that a stored device out of sight gets another ID,
// too.
func TestNameLostOutOfSight(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", found(b))
		w.transport.see("g")
		o.have("demo", "a1", ferrule.StateOnline)
		w.reconsider("demo")
		w.wantIDs("demo:offline")
		o.have("demo", "x9", ferrule.StateOnline)
		w.reconsider("demo")
		w.wantIDs("demo-f55f:offline")
		w.transport.see("g", found(b))
		w.wantIDs("demo-f55f:online")
	})
}

// TestConfiguredNameOnOtherNode checks that a configured name stays, with a note
// while another node uses it.
func TestConfiguredNameOnOtherNode(t *testing.T) {
	const note = "another device is named robot on node shed, and other nodes see that one; rename one of the two"
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		wantNotes := func(want ...string) {
			t.Helper()
			if dev := w.device("robot"); dev.State != ferrule.StateOnline || !slices.Equal(dev.Notes, want) {
				t.Errorf("got %+v", dev)
			}
			b.wantOpened(t, 1, 1)
		}
		o.have("robot", "x9", ferrule.StateOnline)
		w.transport.see("g", named(b, "robot"))
		wantNotes(note)
		for range 3 {
			w.reconsider("robot")
		}
		time.Sleep(time.Hour)
		wantNotes(note)
		o.forget("robot")
		w.reconsider("robot")
		wantNotes()
		o.have("robot", "x9", ferrule.StateOffline)
		w.reconsider("robot")
		wantNotes(note)
		w.transport.see("g")
		w.wantIDs("robot:offline")
	})
}

// TestConfiguredNameStored checks that a configured name stays if it is already
// stored.
func TestConfiguredNameStored(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", named(b, "robot"))
		w.stop()
		o.have("robot", "x9", ferrule.StateOnline)
		w = open(t, dir, o.join)
		w.transport.see("g", named(b, "robot"))
		w.wantIDs("robot:online")
		if notes := w.device("robot").Notes; len(notes) != 1 {
			t.Errorf("got %q", notes)
		}
	})
}

// TestStandby checks that a device that another node holds is not opened until it is
// released.
func TestStandby(t *testing.T) {
	for name, sight := range map[string]func(*board) transport.Sighting{
		"remembered": found,
		"given":      func(b *board) transport.Sighting { return named(b, "demo") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				b := &board{address: "a1", model: "demo"}
				w, o := openNode(t, dir)
				opened := 0
				if name == "remembered" {
					w.transport.see("g", sight(b))
					w.transport.see("g")
					opened = 1
				}
				o.have("demo", "a1", ferrule.StateOnline)
				s := sight(b)
				w.transport.see("g", s)
				s.Instance++
				w.transport.see("g", s)
				w.transport.see("g", s)
				w.reconsider("demo")
				time.Sleep(time.Hour)
				b.wantOpened(t, opened, 0)
				if dev := w.device("demo"); dev.State != ferrule.StateOffline || dev.Reason != "node shed holds it" || dev.Node != "house" {
					t.Errorf("got %+v", dev)
				}
				if name == "remembered" {
					if _, err := w.call(t.Context(), ferrule.Agent, "demo", "look"); ferrule.AsError(err).Code != ferrule.Offline {
						t.Errorf("got %v", err)
					}
				}
				o.have("demo", "a1", ferrule.StateOffline)
				w.reconsider("nonsense")
				b.wantOpened(t, opened, 0)
				w.reconsider("demo")
				w.wantIDs("demo:online")
				b.wantOpened(t, opened+1, 1)
			})
		})
	}
}

// TestStandbyUntilForgotten checks that a device that no other node knows is
// connected.
func TestStandbyUntilForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		o.have("robot", "a1", ferrule.StateOnline, func(d *ferrule.Device) { d.Node = "" })
		w.transport.see("g", named(b, "robot"))
		if dev := w.device("robot"); dev.Reason != "another node holds it" {
			t.Errorf("got %+v", dev)
		}
		o.forget("robot")
		w.reconsider("robot")
		w.wantIDs("robot:online")
	})
}

// TestTakenByOtherNode checks that a session ends when another node has taken the
// device.
func TestTakenByOtherNode(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", named(b, "robot"))
		o.have("robot", "a1", ferrule.StateOnline)
		w.reconsider("robot")
		time.Sleep(time.Hour)
		b.wantOpened(t, 1, 0)
		if dev := w.device("robot"); dev.State != ferrule.StateOffline || dev.Reason != "node shed holds it" {
			t.Errorf("got %+v", dev)
		}
		if n := w.logged.count("device offline"); n != 1 {
			t.Errorf("that it is offline was logged %d times", n)
		}
		o.have("robot", "a1", ferrule.StateOffline)
		w.reconsider("robot")
		w.wantIDs("robot:online")
	})
}

// TestTakenWhileConnecting checks that a greeting or a wait ends when another node
// has taken the device.
func TestTakenWhileConnecting(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w, o := openNode(t, dir)
		waiting := &board{address: "a1", model: "demo", refuse: errors.New("off")}
		w.transport.see("1", named(waiting, "waiting"))
		greeted := &board{address: "a2", model: "demo"}
		s := named(greeted, "greeted")
		s.Open = func(ctx context.Context) (transport.Link, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w.transport.see("2", s)
		for _, dev := range []*ferrule.Device{w.device("waiting"), w.device("greeted")} {
			o.have(dev.ID, dev.Address, ferrule.StateOnline)
			w.reconsider(dev.ID)
			if dev = w.device(dev.ID); dev.Reason != "node shed holds it" {
				t.Errorf("got %+v", dev)
			}
		}
		opened := waiting.get(&waiting.opened)
		time.Sleep(time.Hour)
		waiting.wantOpened(t, opened, 0)
	})
}

// TestInbound checks that a peer that dials in is greeted although another node
// claims it.
func TestInbound(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		s := named(b, "robot")
		s.Inbound = true
		o.have("robot", "a1", ferrule.StateOnline)
		w.transport.see("g", s)
		w.wantIDs("robot:online")
		b.wantOpened(t, 1, 1)

		// The other node has a newer record.
		w.reconsider("robot")
		time.Sleep(time.Hour)
		w.transport.see("g", s)
		b.wantOpened(t, 1, 0)
		if dev := w.device("robot"); dev.Reason != "node shed holds it" {
			t.Errorf("got %+v", dev)
		}
		s.Instance++
		w.transport.see("g", s)
		w.wantIDs("robot:online")
		b.wantOpened(t, 2, 1)
	})
}

// TestInboundUnknown checks that an unknown peer that claims the address of a
// device on another node does not get its name.
func TestInboundUnknown(t *testing.T) {
	for _, state := range []ferrule.State{ferrule.StateOnline, ferrule.StateOffline} {
		bubble(t, func(t *testing.T, dir string) {
			w, o := openNode(t, dir)
			o.have("demo", "a1", state, func(d *ferrule.Device) { d.Trust = ferrule.TrustAdopted })
			s := found(&board{address: "a1", model: "demo"})
			s.Inbound = true
			w.transport.see("g", s)
			w.wantIDs("demo-f55f:online")
			if dev := w.device("demo-f55f"); dev.Trust != ferrule.TrustPending {
				t.Errorf("got %+v", dev)
			}
		})
	}
}

// TestInboundAndReconsidered checks that the greeting of a peer that dialed in is
// not interrupted.
func TestInboundAndReconsidered(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		o.have("robot", "a1", ferrule.StateOnline)
		s := named(b, "robot")
		s.Inbound = true
		s.Open = func(ctx context.Context) (transport.Link, error) {
			select {
			case <-time.After(time.Second):
				return b.open(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		w.transport.see("g", s)
		w.reconsider("robot")
		time.Sleep(2 * time.Second)
		w.wantIDs("robot:online")
	})
}

// TestReconsiderHarmless checks that irrelevant changes on other nodes have no
// effect.
func TestReconsiderHarmless(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		w, o := openNode(t, dir)
		one, two, shy := &board{address: "a1", model: "one"}, &board{address: "a2", model: "two"}, &board{address: "a3", model: "shy"}
		away := &board{address: "a4", model: "away", refuse: errors.New("off")}
		w.transport.see("1", found(one))
		w.transport.see("2", named(two, "two"))
		s := found(shy)
		s.AdoptFirst = "it may restart"
		w.transport.see("3", s)
		w.transport.see("4", named(away, "away"))
		w.transport.see("5", transport.Sighting{Address: "/dev/port", Instance: 1, Name: "none", Absent: "there is no port"})
		o.have("two", "a2", ferrule.StateOffline)
		told := &counter{}
		w.fleet.WatchOwn(told)
		told.n.Store(0)
		tried := away.get(&away.opened)
		for range 3 {
			for _, id := range []string{"one", "two", "a3", "away", "none", "nobody"} {
				w.reconsider(id)
			}
		}
		if n := told.n.Load(); n != 0 {
			t.Errorf("the fleet was told of %d changes", n)
		}
		one.wantOpened(t, 1, 1)
		two.wantOpened(t, 1, 1)
		shy.wantOpened(t, 0, 0)
		away.wantOpened(t, tried, 0)

		// A released device stays released.
		if err := w.dock.Release(t.Context(), "one", time.Minute); err != nil {
			t.Fatal(err)
		}
		told.n.Store(0)
		o.have("one", "a1", ferrule.StateOnline)
		w.reconsider("one")
		if dev := w.device("one"); dev.State != ferrule.StateReleased || told.n.Load() != 0 {
			t.Errorf("got %+v after %d changes", dev, told.n.Load())
		}
		time.Sleep(time.Hour)
		one.wantOpened(t, 1, 0)
		if dev := w.device("one"); dev.Reason != "node shed holds it" {
			t.Errorf("got %+v", dev)
		}
	})
}

// counter counts calls.
type counter struct{ n atomic.Int64 }

func (c *counter) Put(*ferrule.Device, *ferrule.Manifest) { c.n.Add(1) }
func (c *counter) Remove(string)                          { c.n.Add(1) }

// TestReconsiderDoesNotBlock checks that Reconsider returns at once.
func TestReconsiderDoesNotBlock(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		o := &stuck{enter: make(chan struct{}), leave: make(chan struct{})}
		w := open(t, dir, func(p *dock.Parts) { p.Remote = o })
		w.transport.see("g", found(&board{address: "a1", model: "demo"}))
		o.on.Store("demo", true)
		w.dock.Reconsider("demo")
		<-o.enter
		for i := range 10000 {
			w.dock.Reconsider(fmt.Sprint("other", i))
			w.dock.Reconsider("demo")
		}
		o.on.Delete("demo")
		close(o.leave)
		w.stop()
		w.dock.Reconsider("demo")
	})
}

// stuck is a Remote that blocks for some devices.
type stuck struct {
	on           sync.Map
	enter, leave chan struct{}
}

func (s *stuck) Known(id string) (*ferrule.Device, bool) {
	if _, is := s.on.Load(id); is {
		s.enter <- struct{}{}
		<-s.leave
	}
	return nil, false
}

// Manifest implements dock.Remote.
func (*stuck) Manifest(context.Context, ferrule.Kind) (*ferrule.Manifest, error) {
	return nil, errors.New("no such manifest")
}

// TestCutOff checks that a call that was sent when the session ended may have run,
// and one that waited has not.
func TestCutOff(t *testing.T) {
	for _, test := range []struct {
		tool    string
		closing time.Duration // of the link
	}{{"move", 0}, {"look", 0}, {"move", 100 * time.Millisecond}, {"look", 100 * time.Millisecond}} {
		tool := test.tool
		bubble(t, func(t *testing.T, dir string) {
			b := &board{address: "a1", model: "demo", lingers: true, closing: test.closing}
			w, o := openNode(t, dir)
			b.invoke = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
				for b.get(&b.ended) == 0 {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Millisecond)
				return nil, ferrule.Errorf(ferrule.Unanswered, "the link broke")
			}
			w.transport.see("g", named(b, "robot"))
			var wg sync.WaitGroup
			var told []string
			start := time.Now()
			sent := w.later(t.Context(), &wg, ferrule.Agent, tool, "{}", &told)
			waiting := w.later(t.Context(), &wg, ferrule.Agent, tool, "{}", &told)
			o.have("robot", "a1", ferrule.StateOnline, func(d *ferrule.Device) { d.Trust = ferrule.TrustAdopted })
			w.dock.Reconsider("robot")
			wg.Wait()
			if e := ferrule.AsError(*sent); e.Code != ferrule.Unanswered || !e.MayHaveRun() {
				t.Errorf("%s that was sent: %+v", tool, e)
			}
			if e := ferrule.AsError(*waiting); e.Code != ferrule.Offline || e.MayHaveRun() || !strings.Contains(e.Message, "node shed holds it") {
				t.Errorf("%s that waited: %+v", tool, e)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s took %v", tool, took)
			}
		})
	}
}

// TestHeldByOtherNode checks that decisions about a device are refused if another
// node holds it.
func TestHeldByOtherNode(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		b := &board{address: "a1", model: "demo"}
		w, o := openNode(t, dir)
		w.transport.see("g", found(b))
		o.have("demo", "a1", ferrule.StateOnline)
		w.reconsider("demo")
		decide := map[string]func(string) error{
			"adopt": w.dock.Adopt, "forget": w.dock.Forget,
			"release": func(id string) error { return w.dock.Release(t.Context(), id, time.Minute) },
		}
		for name, fn := range decide {
			if e := ferrule.AsError(fn("demo")); e.Code != ferrule.Offline || e.Message != "demo is held by node shed" {
				t.Errorf("%s: %+v", name, e)
			}
		}
		b.wantOpened(t, 1, 0)
		o.have("demo", "a1", ferrule.StateOffline)
		w.reconsider("demo")
		for name, fn := range decide {
			if err := fn("demo"); err != nil && name != "release" { // may be forgotten already
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
		}
	})
}
