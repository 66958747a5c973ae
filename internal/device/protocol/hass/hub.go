package hass

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqttclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// DefaultPrefix is where publishers put their discovery messages.
const DefaultPrefix = "homeassistant"

// The values of HubConfig.Adopt.
const (
	AdoptNone    = "none"
	AdoptSensors = "sensors" // devices that nothing can be changed with
	AdoptAll     = "all"
)

// HubConfig is how to read the devices of a broker.
type HubConfig struct {
	// Broker is the name of the broker, which addresses begin with: two brokers may have
	// devices with the same identifiers.
	Broker string
	// Prefix is the discovery prefix; DefaultPrefix if it is empty.
	Prefix string
	// Local reports that the broker runs on this machine.
	Local bool
	// Adopt says which devices are trusted at once; AdoptSensors if it is empty.
	Adopt string
	// Settings lets agents change settings of devices. Disabled includes entities that
	// their publisher marks as disabled.
	Settings, Disabled bool
}

// The limits of a hub. What exceeds one is refused and counted.
const (
	maxDevices = 50_000
	maxConfigs = 1024      // of one device
	maxDevice  = 4 << 20   // bytes of the configs of one device
	maxRules   = 32        // different availabilities of one device
	maxClaims  = 4096      // topics of one device
	maxStored  = 256 << 20 // bytes of all configs, compressed
	maxFresh   = 16 << 20  // bytes of configs that are not compressed yet
	maxReasons = 5
	maxRefused = 100_000 // topics that are counted
)

// The times of a hub.
const (
	// settleTime is for how long the configs of a device must not change before it is
	// connected again: several messages describe one device.
	settleTime = 300 * time.Millisecond
	// goneTime is how long a device without configs is kept: a publisher may be about to
	// write them again. migrateTime is the same if it announced that.
	goneTime    = 2 * time.Second
	migrateTime = 10 * time.Second
	// flapTime is the time between two changes of a device's availability. A device is
	// reported as unavailable only if it is so for that long, because a call to a device
	// that is away for a moment should not fail. Coming back is reported at once, unless
	// it is a flap.
	flapTime = time.Second
	// tickTime is how often due devices are looked for, while there are any. idleTime is
	// the same if there are none.
	tickTime = 50 * time.Millisecond
	idleTime = 500 * time.Millisecond
)

// Hub finds the devices that describe themselves on one broker.
type Hub struct {
	cfg    HubConfig
	client *mqttclient.Client
	log    *slog.Logger
	seed   maphash.Seed

	mu       sync.Mutex
	conn     *mqttclient.Conn // nil while the broker is lost
	complete bool             // all configs of this connection were read
	devices  map[string]*device
	byConfig map[uint64]*device // by hash of the topic of a config
	byID     map[uint64]*device // by hash of an identifier
	claims   map[uint64]*device // by hash of a topic or root
	// contested has claims that more than one device made before all were read.
	contested map[uint64]struct{}
	refused   map[uint64]struct{}      // hashes of topics whose messages could not be used
	tasmota   map[string]*tasmotaParts // by MAC
	sources   sources
	waiting   map[*device]struct{} // devices with something due
	fresh     map[*device]struct{} // devices with configs that are not compressed
	instance  uint64               // the last Instance of any Sighting
	sequence  uint64               // the number of the last new device
	read      uint16               // number of the current read of all configs
	size      int                  // bytes of compressed configs
	raw       int                  // bytes of others
	status    HubStatus            // the part that is not counted elsewhere
	wanted    []string             // availability topics to subscribe to
}

// HubStatus is what a hub has found.
type HubStatus struct {
	Devices, Entities int
	// Refused counts topics whose messages could not be used. Reasons has the first few.
	Refused int
	Reasons []string
	// Missing is how many messages the broker has dropped, as far as that is known.
	Missing int
	// Note is what the owner should know, for example how to get the missing messages.
	Note string
	// Complete reports that everything that the broker has kept was read.
	Complete bool
}

// NewHub returns a Hub. It does nothing until Watch.
func NewHub(cfg HubConfig, client *mqttclient.Client, log *slog.Logger) *Hub {
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	cfg.Adopt = cmp.Or(cfg.Adopt, AdoptSensors)
	return &Hub{
		cfg: cfg, client: client, log: log, seed: maphash.MakeSeed(),
		tasmota: make(map[string]*tasmotaParts), devices: make(map[string]*device), byConfig: make(map[uint64]*device), byID: make(map[uint64]*device),
		claims: make(map[uint64]*device), contested: make(map[uint64]struct{}), refused: make(map[uint64]struct{}), sources: newSources(cfg.Prefix),
		waiting: make(map[*device]struct{}), fresh: make(map[*device]struct{}),
	}
}

// Status returns what the hub has found.
func (h *Hub) Status() HubStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.status
	s.Reasons = slices.Clone(s.Reasons)
	s.Complete, s.Refused = h.complete, len(h.refused)
	for _, d := range h.devices {
		s.Devices++
		s.Entities += d.entities
	}
	if s.Missing > 0 {
		s.Note = fmt.Sprintf("the broker dropped %d messages, so devices may be missing; set max_queued_messages 0 in mosquitto.conf and restart the broker", s.Missing)
	}
	return s
}

// Watch implements transport.Connector. Each device is a group of its own. Nothing is
// reported before all configs were read: a device would be connected with a part of them.
func (h *Hub) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	for {
		conn, err := h.client.Connect(ctx)
		if err != nil {
			return nil
		}
		h.serve(ctx, conn, update)
		if ctx.Err() != nil {
			return nil
		}
		h.lost(conn, update)
	}
}

// serve reads configs and availability over one connection until it is lost or ctx ends.
func (h *Hub) serve(ctx context.Context, conn *mqttclient.Conn, update func(string, []transport.Sighting)) {
	ctx, cancel := context.WithCancel(ctx)
	r := newReader(h, conn)
	h.mu.Lock()
	h.conn, h.complete = conn, false
	h.read++
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	tick, idle := time.NewTimer(tickTime), false
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-conn.Done():
			return
		case <-r.queue.ready:
			h.take(r.queue.drain())
			if idle {
				idle = false
				tick.Reset(tickTime)
			}
		case <-tick.C:
			if idle = h.settleDue(time.Now(), update); idle {
				tick.Reset(idleTime)
			} else {
				tick.Reset(tickTime)
			}
			r.wake()
		}
	}
}

// lost marks all devices as absent.
func (h *Hub) lost(conn *mqttclient.Conn, update func(string, []transport.Sighting)) {
	reason := fmt.Sprintf("the broker %s is unreachable: %v", h.cfg.Broker, conn.Err())
	h.mu.Lock()
	h.conn, h.complete, h.wanted = nil, false, nil
	h.sources.forget()
	var sightings []transport.Sighting
	for _, d := range h.devices {
		d.endLink(fmt.Errorf("the connection to the broker was lost: %w", conn.Err()))
		if d.reported {
			d.absent, d.changed, d.lost = reason, time.Now(), true
			sightings = append(sightings, h.sighting(d))
		}
	}
	h.mu.Unlock()
	for _, s := range sightings {
		update(s.Address, []transport.Sighting{s})
	}
}

// take applies messages to what is known.
func (h *Hub) take(messages []mqttclient.Message) {
	const batch = 64 // so that others get the lock
	for len(messages) > 0 {
		n := min(batch, len(messages))
		h.mu.Lock()
		for i := range messages[:n] {
			if !h.applyTasmota(&messages[i]) {
				h.apply(&messages[i])
			}
			messages[i].Payload = nil
		}
		if h.raw > maxFresh {
			h.packAll()
		}
		h.mu.Unlock()
		messages = messages[n:]
	}
}

// settleDue acts on all devices with something due. It reports whether nothing is left.
func (h *Hub) settleDue(now time.Time, update func(string, []transport.Sighting)) (idle bool) {
	type report struct {
		group string
		all   []transport.Sighting
	}
	var reports []report
	h.mu.Lock()
	if h.complete {
		for d := range h.waiting {
			if all, changed := h.settle(d, now); changed {
				reports = append(reports, report{d.address, all})
			}
		}
		h.sources.sweep()
	}
	idle = h.complete && len(h.waiting) == 0 && len(h.wanted) == 0
	h.mu.Unlock()
	for _, r := range reports {
		update(r.group, r.all)
	}
	return idle
}

// hash returns the hash of texts, with a seed that nobody outside can know.
func (h *Hub) hash(parts ...string) uint64 {
	var m maphash.Hash
	m.SetSeed(h.seed)
	for _, part := range parts {
		m.WriteString(part)
		m.WriteByte(0)
	}
	return m.Sum64()
}

// sum returns the hash of a payload.
func (h *Hub) sum(payload []byte) uint32 { return uint32(maphash.Bytes(h.seed, payload)) }

// refuse notes a message that cannot be used.
func (h *Hub) refuse(topic, reason string) {
	key := h.hash(topic)
	if _, known := h.refused[key]; known || len(h.refused) >= maxRefused {
		return
	}
	h.refused[key] = struct{}{}
	if len(h.status.Reasons) < maxReasons {
		h.status.Reasons = append(h.status.Reasons, ferrule.Clean(topic, 128)+": "+reason)
	}
}
