package discovery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mqttclient"
)

// Parts are what New needs.
type Parts struct {
	Node Node
	// Name is the name of the node, as devices have it.
	Name string
	// Broker is the name of the broker; Client is how to connect to it.
	Broker string
	Client mqttclient.Config
	// Watch calls a watcher with all devices and every change, until stop is called.
	Watch func(ferrule.DeviceWatcher) (stop func())
	// Handle is the pipeline.
	Handle ferrule.Handler
	// Visible returns what a caller is shown; Changed is closed when that changes.
	Visible func(ferrule.Principal) ferrule.Visibility
	Changed func() <-chan struct{}
	// Latest returns the latest values of devices in earlier runs; it may be nil.
	Latest func(ctx context.Context, ids []string) (map[string][]ferrule.Latest, error)
	// Skip are the protocols whose devices Home Assistant has already.
	Skip []string
	Log  *slog.Logger
}

// Timing and limits.
const (
	brokerTimeout = 5 * time.Second
	// pause is the shortest time between two rounds of messages.
	pause = 200 * time.Millisecond
	// readTime is how long retained messages of earlier runs are waited for.
	readTime = 500 * time.Millisecond
	// eventDelay is how long Home Assistant may take to read that there is a new sort of
	// event.
	eventDelay = 2 * time.Second
	// sweepAfter is how long devices may take to become known after a start. What is still
	// unknown then, and was published in an earlier run, was forgotten.
	sweepAfter = 30 * time.Second

	maxSignals    = 256 // of a device
	maxEventTypes = 16
	maxEvents     = 16 // of a device that wait
	maxWorkers    = 64 // calls at the same time
	maxQueue      = 8  // commands of one entity that wait
	maxFound      = 4096
)

// Publisher keeps what Home Assistant knows of this node's devices up to date. It is a
// ferrule.DeviceWatcher.
type Publisher struct {
	parts   Parts
	who     ferrule.Principal
	started time.Time
	wake    chan struct{} // has an element if something has changed
	tasks   sync.WaitGroup

	mu      sync.Mutex
	devices map[string]*device // by ID
	byKey   map[string]*device
	// gone are keys of devices that were removed, with the topics that have retained
	// messages.
	gone    map[string][]string
	found   map[string]retained // configs on the broker, by key
	queues  map[string][]order  // of entities that are busy, by command topic
	workers int
	problem string
	leaving bool
}

// retained is a config that the broker has.
type retained struct {
	own        bool // of this gateway
	components map[string]string
}

// device is a device of this node.
type device struct {
	dev      *ferrule.Device
	manifest *ferrule.Manifest
	// elsewhere reports that another node holds the device.
	elsewhere bool
	resumed   bool // signals of earlier runs are known
	signals   map[string]*signal
	events    []string
	waiting   []event

	described Description
	stale     bool              // the description
	states    map[string]string // by entity
	attrs     []byte            // of the last command

	// What the broker has, over this connection.
	sentConfig string
	sentOnline string
	sentStates map[string]string
	sentAttrs  string
}

type signal struct {
	Signal
	value float64
	known bool
	named bool // it is binary because its device says so
}

type event struct {
	data  []byte
	after time.Time
}

// New returns a Publisher. Run connects it.
func New(p Parts) *Publisher {
	return &Publisher{
		parts: p, who: ferrule.Principal{Role: ferrule.Agent, Name: "mqtt:" + p.Broker, Auth: ferrule.AuthEndpoint},
		wake: make(chan struct{}, 1), devices: make(map[string]*device), byKey: make(map[string]*device),
		gone: make(map[string][]string), found: make(map[string]retained), queues: make(map[string][]order),
	}
}

// Problem says why devices are not published; "" if they are.
func (p *Publisher) Problem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

func (p *Publisher) setProblem(err error) {
	text := ""
	if err != nil {
		text = "does not show devices in Home Assistant: " + err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if text != "" && text != p.problem {
		p.parts.Log.Warn("devices are not published on the broker", "err", err)
	}
	p.problem = text
}

func (p *Publisher) changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Put implements ferrule.DeviceWatcher.
func (p *Publisher) Put(dev *ferrule.Device, m *ferrule.Manifest) {
	if dev.ID == ferrule.GatewayID {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.devices[dev.ID]
	elsewhere := dev.Node != "" && dev.Node != p.parts.Name
	if d == nil && elsewhere {
		return
	}
	if d == nil {
		d = &device{signals: make(map[string]*signal), states: make(map[string]string), sentStates: make(map[string]string)}
		p.devices[dev.ID] = d
	}
	if d.elsewhere != elsewhere {
		d.sentConfig = "" // the other node has published its own
	}
	d.dev, d.manifest, d.elsewhere, d.stale = dev, m, elsewhere, true
	p.changed()
}

// Remove implements ferrule.DeviceWatcher.
func (p *Publisher) Remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.devices[id]; d != nil {
		p.withdraw(d)
		delete(p.devices, id)
		p.changed()
	}
}

// withdraw has a device removed from Home Assistant. It is called with mu held.
func (p *Publisher) withdraw(d *device) {
	key := d.described.Key
	if key == "" || p.byKey[key] != d {
		return
	}
	delete(p.byKey, key)
	if !d.elsewhere {
		n := p.parts.Node
		topics := []string{n.availability(key), n.attributes(key, outcomeKey)}
		for entity := range d.described.Entities { // also those that it got over an earlier connection
			topics = append(topics, n.state(key, entity))
		}
		p.gone[key] = topics
	}
	d.described = Description{}
	d.sentConfig, d.sentOnline, d.sentAttrs, d.sentStates = "", "", "", make(map[string]string)
}

// Leave has Run remove everything from Home Assistant when it ends, because it is not wanted
// there any longer.
func (p *Publisher) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	for _, d := range p.devices {
		p.withdraw(d)
		d.stale = true
	}
	p.gone[p.parts.Node.key()] = []string{p.parts.Node.status()}
}

// Measured takes a reading of a device of this node. It does not block.
func (p *Publisher) Measured(r ferrule.Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.devices[r.Device]
	if d == nil {
		return
	}
	for i := range r.Batches {
		b := &r.Batches[i]
		if len(b.Samples) == 0 {
			continue
		}
		d.measure(b.Signal, b.Unit, b.State, b.Samples[len(b.Samples)-1].Value, true)
	}
	p.changed()
}

// measure notes a value. A signal that has another value than 0 and 1 is a number from then
// on.
func (d *device) measure(name, unit string, state bool, value float64, now bool) {
	s := d.signals[name]
	if s == nil {
		if len(d.signals) >= maxSignals {
			return
		}
		named := d.manifest != nil && isBoolean(d.manifest, name)
		s = &signal{Signal: Signal{Name: name, Binary: named || state && unit == ""}, named: named}
		d.signals[name], d.stale = s, true
	}
	binary := s.named || s.Binary && (value == 0 || value == 1)
	if s.Unit != unit || s.State != state || s.Binary != binary {
		s.Unit, s.State, s.Binary, d.stale = unit, state, binary, true
	}
	if !now {
		return
	}
	s.value, s.known = value, true
	for key, e := range d.described.Entities {
		if e.Signal == name {
			d.setState(key, e, value)
		}
	}
}

func (d *device) setState(key string, e *Entity, value float64) {
	if text, ok := e.State(value); ok {
		d.states[key] = text
	}
}

// HandleEvent takes a notification of a device. It does not block.
func (p *Publisher) HandleEvent(e ferrule.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.devices[e.Device]
	if d == nil || d.elsewhere || e.Type != ferrule.Notified {
		return
	}
	name := ferrule.Clean(e.Method, maxLength)
	after := time.Now()
	if !slices.Contains(d.events, name) {
		if len(d.events) >= maxEventTypes {
			return
		}
		d.events = append(slices.Clip(d.events), name)
		d.stale, after = true, after.Add(eventDelay)
	}
	if len(d.waiting) < maxEvents {
		d.waiting = append(d.waiting, event{encodeEvent(name, e), after})
		p.changed()
	}
}

// update brings the description of a device up to date. It is called with mu held.
func (p *Publisher) update(d *device, seen ferrule.Visibility) {
	if !d.stale {
		return
	}
	d.stale = false
	if !p.isPublished(d, seen) {
		if !d.elsewhere {
			p.withdraw(d)
		}
		return
	}
	in := p.input(d, seen)
	was := d.described
	d.described = Describe(in)
	p.byKey[d.described.Key] = d
	delete(p.gone, d.described.Key)
	if was.Key != "" && was.Key != d.described.Key {
		delete(p.byKey, was.Key)
		p.gone[was.Key] = nil
	}
	for key := range d.states {
		if e, before := d.described.Entities[key], was.Entities[key]; e == nil || before != nil && before.Component != e.Component {
			delete(d.states, key)
		}
	}
	for key, e := range d.described.Entities {
		if s := d.signals[e.Signal]; s != nil && s.known && d.states[key] == "" {
			d.setState(key, e, s.value)
		}
	}
}

func (p *Publisher) input(d *device, seen ferrule.Visibility) Input {
	in := Input{Node: p.parts.Node, Device: d.dev, Manifest: d.manifest, Seen: seen, Events: d.events}
	for _, name := range slices.Sorted(maps.Keys(d.signals)) {
		in.Signals = append(in.Signals, d.signals[name].Signal)
	}
	return in
}

// isPublished reports whether Home Assistant is to know a device of this node.
func (p *Publisher) isPublished(d *device, seen ferrule.Visibility) bool {
	return !p.leaving && !d.elsewhere && d.manifest != nil && d.resumed && d.dev.Trust == ferrule.TrustAdopted &&
		!slices.Contains(p.parts.Skip, d.dev.Protocol) && seen.Device(d.dev, d.manifest) && !p.isAnothers(d)
}

// isAnothers reports whether another node has published a device that is not online here:
// this node may not know yet that the device has moved.
func (p *Publisher) isAnothers(d *device) bool {
	found, known := p.found[DeviceKey(p.parts.Node, d.dev)]
	return known && !found.own && d.dev.State != ferrule.StateOnline
}

// refresh makes all descriptions stale, because callers see other things now.
func (p *Publisher) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		d.stale = true
	}
	p.changed()
}

// resume reads which signals devices had in earlier runs, so that nothing of them disappears
// from Home Assistant until they are measured again.
func (p *Publisher) resume(ctx context.Context) {
	var ids []string
	p.mu.Lock()
	for id, d := range p.devices {
		if !d.resumed && !d.elsewhere {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	var latest map[string][]ferrule.Latest
	if p.parts.Latest != nil {
		limited, cancel := context.WithTimeout(ctx, brokerTimeout)
		defer cancel()
		var err error
		if latest, err = p.parts.Latest(limited, ids); err != nil {
			p.parts.Log.Warn("earlier signals are published when they are measured again", "err", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		d := p.devices[id]
		if d == nil {
			continue
		}
		d.resumed, d.stale = true, true
		for _, l := range latest[id] {
			if d.signals[l.Signal] == nil {
				d.measure(l.Signal, l.Unit, l.State, l.Value, false)
			}
		}
	}
}

// isBoolean reports whether a tool declares that its answer has a boolean from which a
// poll makes this signal.
func isBoolean(m *ferrule.Manifest, signal string) bool {
	for i := range m.Tools {
		t := &m.Tools[i]
		rest, ok := strings.CutPrefix(signal, ferrule.SignalName(t.Name))
		if ok && len(t.Output) > 0 && hasBoolean(t.Output, strings.TrimPrefix(rest, "_"), 0) {
			return true
		}
	}
	return false
}
