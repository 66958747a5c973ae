package dock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// registry is shared by several nodes: one record per ID. The last node
// that brought a device online holds it; a name belongs to the address that had it
// first.
type registry struct {
	mu      sync.Mutex
	records map[string]*ferrule.Device
	docks   map[string]*dock.Dock
}

// member is one node's view of the registry: it watches the node's own devices and
// knows those of others.
type member struct {
	node string
	*registry
}

func (m member) Known(id string) (*ferrule.Device, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dev := m.records[id]
	if dev == nil || dev.Node == m.node {
		return nil, false
	}
	vouched := *dev
	vouched.Vouched = true
	return &vouched, true
}

// Manifest implements dock.Remote. Each node has the boards' manifests itself.
func (m member) Manifest(context.Context, ferrule.Kind) (*ferrule.Manifest, error) {
	return nil, errors.New("no such manifest")
}

func (m member) Put(dev *ferrule.Device, _ *ferrule.Manifest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch had := m.records[dev.ID]; {
	case dev.Kind == "": // never reached
	case had != nil && had.Address != dev.Address:
		if dev.State == ferrule.StateOnline {
			m.docks[m.node].Reconsider(dev.ID)
		}
	case had == nil || had.Node == m.node || dev.State == ferrule.StateOnline:
		m.records[dev.ID] = dev
		m.tell(dev.ID)
	}
}

func (m member) Remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if had := m.records[id]; had != nil && had.Node == m.node {
		delete(m.records, id)
		m.tell(id)
	}
}

// tell makes the other nodes reconsider an ID.
func (m member) tell(id string) {
	for node, d := range m.docks {
		if node != m.node {
			d.Reconsider(id)
		}
	}
}

// twoNodes is two nodes in reach of the same boards.
type twoNodes struct {
	worlds   []*world
	boards   [][]*board // by node
	instance uint64
}

func newCoast(t *testing.T, dir string, boards, models int) *twoNodes {
	c := &twoNodes{}
	shared := &registry{records: make(map[string]*ferrule.Device), docks: make(map[string]*dock.Dock)}
	for n := range 2 {
		m := member{fmt.Sprint("n", n), shared}
		w := open(t, filepath.Join(dir, m.node), func(p *dock.Parts) { p.Node, p.Remote = m.node, m })
		shared.mu.Lock()
		shared.docks[m.node] = w.dock
		shared.mu.Unlock()
		w.fleet.WatchOwn(m)
		c.worlds = append(c.worlds, w)
		c.boards = append(c.boards, nil)
		for i := range boards {
			c.boards[n] = append(c.boards[n], &board{address: fmt.Sprint("a", i), model: fmt.Sprint("m", i%models)})
		}
	}
	return c
}

// sight shows a board to a node. The first board dials in and is configured; the
// others are dialed.
func (c *twoNodes) sight(n, i int) {
	s := found(c.boards[n][i])
	s.Instance, s.Inbound, s.Adopted = c.instance, i == 0, i == 0
	c.worlds[n].transport.updates <- func(update func(string, []transport.Sighting)) { update(s.Address, []transport.Sighting{s}) }
}

// shake makes one random change.
func (c *twoNodes) shake(rng *rand.Rand) {
	n := rng.IntN(len(c.worlds))
	i := rng.IntN(len(c.boards[n]))
	b := c.boards[n][i]
	switch rng.IntN(6) {
	case 0:
		c.sight(n, i)
	case 1:
		c.instance++
		c.sight(n, i)
	case 2:
		c.worlds[n].transport.updates <- func(update func(string, []transport.Sighting)) { update(b.address, nil) }
	case 3:
		b.set(func(b *board) {
			if b.cut != nil {
				b.cut()
			}
		})
	case 4:
		b.set(func(b *board) { b.refuse = errors.New("off") })
	case 5:
		b.set(func(b *board) { b.refuse = nil })
	}
}

// settle shows all boards to all nodes and waits.
func (c *twoNodes) settle() {
	c.instance++
	for n := range c.worlds {
		for i, b := range c.boards[n] {
			b.set(func(b *board) { b.refuse = nil })
			c.sight(n, i)
		}
	}
	time.Sleep(2 * time.Minute)
}

// TestRandomNodes connects boards to two nodes at random and checks that each ends
// up at one.
func TestRandomNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const boards = 4
	for seed := range uint64(150) {
		models := 2 + 2*int(seed%2)
		bubble(t, func(t *testing.T, dir string) {
			c := newCoast(t, dir, boards, models)
			rng := rand.New(rand.NewPCG(seed, 3))
			for range 60 {
				c.shake(rng)
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
				}
			}
			c.settle()
			address, online := make(map[string]string), make(map[string]int)
			for n, w := range c.worlds {
				for _, dev := range w.fleet.Devices() {
					if at := address[dev.ID]; at != "" && at != dev.Address {
						t.Errorf("seed %d: %s is %s and %s", seed, dev.ID, at, dev.Address)
					}
					address[dev.ID] = dev.Address
					is := dev.State == ferrule.StateOnline
					if is {
						online[dev.ID]++
					}
					b := c.boards[n][slices.IndexFunc(c.boards[n], func(b *board) bool { return b.address == dev.Address })]
					if links := b.get(&b.links); links > 1 || (links == 1) != is {
						t.Errorf("seed %d: %d links: %+v", seed, links, dev)
					}
				}
			}
			for id := range address {
				if online[id] != 1 {
					t.Errorf("seed %d: %s is online %d times: %s and %s", seed, id, online[id], c.worlds[0].ids(), c.worlds[1].ids())
				}
			}
			if models == boards && len(address) != boards {
				t.Errorf("seed %d: there are %v", seed, address)
			}
			for _, w := range c.worlds {
				w.stop()
			}
		})
	}
}
