package homeassistant

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/api"
	"github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"
	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// The values of HubConfig.Adopt.
const (
	AdoptNone    = "none"
	AdoptSensors = "sensors" // devices that nothing can be changed with
	AdoptAll     = "all"
)

// HubConfig is how to use the devices of a Home Assistant.
type HubConfig struct {
	// Home is the name of the Home Assistant, which addresses begin with.
	Home string
	// Local reports that it runs on this machine.
	Local bool
	// Adopt says which devices are trusted at once; AdoptSensors if it is empty.
	Adopt string
	// All includes entities that the owner does not expose to Assist, and Settings those that
	// are settings of devices.
	All, Settings bool
}

// Hub finds the devices of a Home Assistant.
//
//	subscribe_entities ------> states --+--> links of devices
//	registry events -> reader -> build -+--> sightings
type Hub struct {
	cfg    HubConfig
	client *api.Client
	log    *slog.Logger

	mu          sync.Mutex
	conn        *api.Conn // nil while Home Assistant is lost or not ready
	complete    bool      // everything of this connection was read
	reported    bool      // and the devices were reported
	note        string
	states      home.States
	inventory   *home.Inventory
	services    []hubService
	temperature string
	devices     map[string]*hubDevice   // by address
	owners      map[string]*hubDevice   // by entity ID
	missing     map[string]time.Time    // entities that did not come back after a restart, until when they are kept
	checks      map[*hubDevice]struct{} // devices whose availability may have changed
	instance    uint64                  // the last Instance of any Sighting
}

// hubService is a service with its JSON.
type hubService struct {
	home.Service
	encoded json.RawMessage
}

// NewHub returns a Hub. It does nothing until Watch.
func NewHub(cfg HubConfig, client *api.Client, log *slog.Logger) *Hub {
	cfg.Adopt = cmp.Or(cfg.Adopt, AdoptSensors)
	return &Hub{
		cfg: cfg, client: client, log: log, inventory: &home.Inventory{},
		devices: make(map[string]*hubDevice), owners: make(map[string]*hubDevice),
		missing: make(map[string]time.Time), checks: make(map[*hubDevice]struct{}),
	}
}

// HubStatus is what a hub has found.
type HubStatus struct {
	// Devices and Entities are in use. Hidden counts the entities that are not.
	Devices, Entities, Hidden int
	// Complete reports that everything was read, and the devices were reported.
	Complete bool
	// Note is what the owner should know; empty if nothing.
	Note string
}

// Status returns what the hub has found.
func (h *Hub) Status() HubStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := HubStatus{Devices: len(h.devices), Entities: len(h.owners), Complete: h.complete && h.reported, Note: h.note}
	s.Hidden = len(h.inventory.Places) - s.Entities
	return s
}

// Listed is an entity of the home, whether Ferrule uses it or not.
type Listed struct {
	ID string
	// Name, Class, Device and the others are what Home Assistant calls it and where it is.
	Name, Class, Device, Area, Floor string
	Labels                           []string
	// Address is that of the device in Ferrule. It is empty if the entity is not used; then
	// Reason says why.
	Address, Reason string
	State           home.State
}

// Entities returns the entities that match, sorted by ID. An entity that is not loaded has no
// state.
func (h *Hub) Entities(match func(id string) bool) []Listed {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	for id := range h.inventory.Places {
		if match(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var all []Listed
	for _, id := range ids {
		place := h.inventory.Places[id]
		one := Listed{ID: id, Device: place.DeviceName, Area: place.Area, Floor: place.Floor, Labels: place.Labels, Reason: place.Reason}
		if d := h.owners[id]; d != nil {
			one.Address = d.address
		}
		if state := h.states.Get(id); state != nil {
			one.State = *state
			one.Name, one.Class = state.Text("friendly_name"), state.Text("device_class")
		}
		all = append(all, one)
	}
	return all
}

// Watch implements transport.Connector. Each device is a group of its own. Nothing is reported
// before everything was read and Home Assistant is running: a part of the services would describe
// other devices.
func (h *Hub) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	for {
		conn, err := h.client.Connect(ctx)
		if err != nil {
			return nil
		}
		h.serve(ctx, conn, update)
		if ctx.Err() != nil {
			h.leave()
			return nil
		}
		h.lost(conn.Err(), update)
	}
}

// leave ends all links.
func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.complete, h.reported = nil, false, false
	for _, d := range h.devices {
		d.endLink(transport.ErrClosed)
	}
}

// lost reports all devices as absent.
func (h *Hub) lost(reason error, update func(string, []transport.Sighting)) {
	h.report(h.absentAll(fmt.Sprintf("Home Assistant %s is unreachable: %v", h.cfg.Home, reason)), update)
}

// absentAll ends all links and returns the sightings of devices that became absent.
func (h *Hub) absentAll(reason string) (all []transport.Sighting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn, h.complete, h.reported = nil, false, false
	clear(h.checks)
	for _, d := range h.devices {
		d.endLink(fmt.Errorf("the connection was lost: %s", reason))
		d.away = time.Time{}
		if d.absent != reason {
			d.absent = reason
			all = append(all, h.sighting(d, true))
		}
	}
	return all
}

func (h *Hub) report(all []transport.Sighting, update func(string, []transport.Sighting)) {
	for _, s := range all {
		update(s.Address, []transport.Sighting{s})
	}
}
