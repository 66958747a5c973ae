// Package docktest lets hubs report to a dock that is slow, and checks what the dock
// publishes: a tool that changes something can be used only if a person has adopted its
// device.
//
//	Hub --Report--> Home --late--> Dock --Put--> Home checks
//	                     <--Open, late--
//
// Everything that is late by chance follows from one seed. Use it in a synctest bubble.
package docktest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is what a Home uses.
type Config struct {
	// Dir is where the dock stores devices. A second Home with the same one is a gateway
	// after a restart.
	Dir       string
	Seed      uint64
	Protocols map[string]protocol.Protocol
	Overlays  dock.Overlays
	// Journal has what people decided. Homes after a restart share it.
	Journal *Journal
}

// Home is a dock with its fleet.
type Home struct {
	Dock *dock.Dock
	t    testing.TB
	cfg  Config
	stop func()

	mu      sync.Mutex
	random  *rand.Rand
	devices map[string]Published // by ID
	update  func(group string, all []transport.Sighting)
}

// Published is a device as the dock has published it.
type Published struct {
	Device   *ferrule.Device
	Manifest *ferrule.Manifest // may be nil
}

// Changes returns the names of the tools that can be used to change something.
func (p Published) Changes() (names []string) {
	if p.Device.Trust == ferrule.TrustPending || p.Manifest == nil {
		return nil
	}
	for i := range p.Manifest.Tools {
		if t := &p.Manifest.Tools[i]; t.Effect != ferrule.Reads && t.Quarantine == "" {
			names = append(names, t.Name)
		}
	}
	return names
}

// Journal has the addresses of the devices that a person has adopted, or whose changes a person
// has accepted.
type Journal struct {
	mu sync.Mutex
	// A device that was forgotten is no longer adopted. A change stays accepted, because that
	// is a decision about all devices of its Kind.
	adopted, accepted map[string]bool
}

// NewJournal returns a journal without decisions.
func NewJournal() *Journal {
	return &Journal{adopted: make(map[string]bool), accepted: make(map[string]bool)}
}

// set sets a decision about a device, and returns what it was.
func (j *Journal) set(decisions map[string]bool, address string, made bool) (was bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, decisions[address] = decisions[address], made
	return was
}

func (j *Journal) has(address string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.adopted[address] || j.accepted[address]
}

// Open starts a dock. It runs until Stop.
func Open(t testing.TB, cfg Config) *Home {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := dock.OpenStore(cfg.Dir, log)
	if err != nil {
		t.Fatal(err)
	}
	h := &Home{t: t, cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 1)), devices: make(map[string]Published)}
	watching := make(chan struct{})
	h.Dock = dock.New(dock.Parts{
		Config: dock.DefaultConfig(), Connectors: []transport.Connector{connector{h, watching}}, Protocols: cfg.Protocols,
		Overlays: cfg.Overlays, Fleet: h, Store: store, Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Dock.Run(ctx) }()
	<-watching
	h.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	return h
}

// Stop ends the dock.
func (h *Home) Stop() { h.stop() }

// connector passes the dock's function to Report.
type connector struct {
	home     *Home
	watching chan struct{}
}

// Watch implements transport.Connector.
func (c connector) Watch(ctx context.Context, update func(string, []transport.Sighting)) error {
	c.home.update = update
	close(c.watching)
	<-ctx.Done()
	return nil
}

// late returns a time that something takes: often none.
func (h *Home) late(limit time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.random.IntN(2) == 0 {
		return 0
	}
	return time.Duration(h.random.Int64N(int64(limit)))
}

// Report passes sightings to the dock, which is busy with other devices before that, and
// before it opens one. A hub must call it from one goroutine at a time.
func (h *Home) Report(group string, all []transport.Sighting) {
	const busy, opening = 100 * time.Millisecond, time.Second
	all = slices.Clone(all)
	for i := range all {
		open, before, after := all[i].Open, h.late(opening), h.late(opening)
		all[i].Hub = "home"
		all[i].Open = func(ctx context.Context) (transport.Link, error) {
			time.Sleep(before)
			link, err := open(ctx)
			time.Sleep(after)
			return link, err
		}
	}
	time.Sleep(h.late(busy))
	h.update(group, all)
}

// Put implements dock.Fleet.
func (h *Home) Put(dev *ferrule.Device, effective *ferrule.Manifest, _ ferrule.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices[dev.ID] = Published{dev, effective}
	h.check(dev.ID)
}

// check fails the test if a device can be used without having been adopted by a person.
func (h *Home) check(id string) {
	p := h.devices[id]
	if names := p.Changes(); len(names) > 0 && !h.cfg.Journal.has(p.Device.Address) {
		h.t.Errorf("seed %d: %s is %s and %s with %q, and nobody has adopted it", h.cfg.Seed, p.Device.Address, p.Device.Trust, p.Device.State, names)
	}
}

// Remove implements dock.Fleet.
func (h *Home) Remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.devices, id)
}

// At returns the device at an address.
func (h *Home) At(address string) (p Published, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.devices {
		if p.Device.Address == address {
			return p, true
		}
	}
	return p, false
}

// Adopt adopts the device at an address as a person does, if there is one.
func (h *Home) Adopt(address string) {
	if p, found := h.At(address); found {
		h.cfg.Journal.set(h.cfg.Journal.adopted, address, true)
		h.Dock.Adopt(p.Device.ID) // fails if it is gone by now
	}
}

// Accept accepts what the device at an address offers as a person does, if there is one.
func (h *Home) Accept(address string) {
	if p, found := h.At(address); found && p.Device.Offered != "" {
		j := h.cfg.Journal
		was := j.set(j.accepted, address, true)
		if _, _, err := h.Dock.Accept(p.Device.ID, p.Device.Offered); err != nil {
			j.set(j.accepted, address, was)
		}
	}
}

// Forget forgets the device at an address as a person does. It may come back.
func (h *Home) Forget(address string) {
	p, found := h.At(address)
	if !found || h.Dock.Forget(p.Device.ID) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg.Journal.set(h.cfg.Journal.adopted, address, false)
	for id, p := range h.devices {
		if p.Device.Address == address {
			h.check(id)
		}
	}
}

// String describes the device at an address, for errors.
func (p Published) String() string {
	if p.Device == nil {
		return "no device"
	}
	return fmt.Sprintf("%s: %s, %s %s, %d changes wait, usable %q", p.Device.Address, p.Device.Trust, p.Device.State, p.Device.Reason, p.Device.Waiting, p.Changes())
}
