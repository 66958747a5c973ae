// Package registry keeps track of where each device of a tenant is. Device records, node
// leases and manifests are in NATS key-value buckets.
//
//	own devices    fleet ─▶ intake ─▶ view ─ plan, write ─▶ buckets
//	other nodes'   buckets ─ watch ─▶ view ─▶ fleet
//
// The registry is an index that can be lost: devices describe themselves, so every node
// writes its own records again.
//
// One node holds a device at a time, under an epoch that grows with each node that
// takes it. A write that is based on an old revision fails, so two nodes cannot take a
// device under the same epoch.
package registry

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Fleet receives the devices of other nodes.
type Fleet interface {
	PutRemote(dev *ferrule.Device, manifest *ferrule.Manifest, remote ferrule.Handler)
	RemoveRemote(id string)
}

// Overlays adds to a manifest what its device cannot say.
type Overlays interface {
	Apply(protocol string, kind ferrule.Kind, device string, m *ferrule.Manifest) *ferrule.Manifest
	// MatchesDevice reports whether there is an overlay for this one device.
	MatchesDevice(device string) bool
}

// Manifests returns the manifests of own devices.
type Manifests interface {
	Manifest(kind ferrule.Kind) (*ferrule.Manifest, error)
}

// Options are the parts that a registry needs. The functions must not block.
type Options struct {
	Config engine.Config
	// Identity is permanent for this node, Boot differs in each run.
	Identity, Boot, Version string
	// Secret is shared by the nodes of the tenant.
	Secret []byte
	// IdentityFile is the path that users know the identity's file by.
	IdentityFile string
	Fleet        Fleet
	Overlays     Overlays
	Manifests    Manifests
	// Remote calls any device of another node.
	Remote ferrule.Handler
	// Event receives the events of own devices, one at a time.
	Event func(ferrule.Event)
	// Moved is called with own devices that another node took or released.
	Moved func(id string)
	// Synced is called when all records have been read.
	Synced func()
	// LeaseProblem and WriteProblem report why this node's lease or records are not
	// written; empty if they are.
	LeaseProblem, WriteProblem func(problem string)
	Log                        *slog.Logger
}

// Registry is this node's view of the registry and its own part of it. It is a
// ferrule.DeviceWatcher of the node's own devices.
type Registry struct {
	options Options
	cfg     engine.Config
	names   engine.Names

	view    *view
	kinds   *kinds
	intake  *intake
	dirty   chan struct{}           // wakes keepOwn
	refresh chan struct{}           // wakes keepView
	session atomic.Pointer[Session] // nil while the buckets are not open
	rival   string                  // boot of a copy of this node that has its lease; used by renew only
}

// New returns a registry. It starts nothing.
func New(o Options) (*Registry, error) {
	key, err := recordKey(o.Secret, o.Config.Tenant)
	if err != nil {
		return nil, err
	}
	r := &Registry{
		options: o, cfg: o.Config, names: engine.Names{Tenant: o.Config.Tenant, Node: o.Config.Node},
		dirty: make(chan struct{}, 1), refresh: make(chan struct{}, 1),
	}
	r.kinds = newKinds(r.names, o.Overlays, o.Log)
	r.view = newView(o.Config, o.Fleet, r.kinds, o.Remote, key)
	r.kinds.arrived = r.view.arrived
	r.intake = &intake{wake: r.view.wake}
	return r, nil
}

// Put implements ferrule.DeviceWatcher.
func (r *Registry) Put(dev *ferrule.Device, manifest *ferrule.Manifest) {
	r.intake.add(change{id: dev.ID, device: dev, manifest: manifest})
}

// Remove implements ferrule.DeviceWatcher.
func (r *Registry) Remove(id string) { r.intake.add(change{id: id}) }

// Say queues an event that an own device sent, in order with the changes of that
// device. It reports false if too many are waiting.
func (r *Registry) Say(e ferrule.Event) bool { return r.intake.say(e) }

// Run processes changes of own devices, and reports devices that moved, until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	for {
		select {
		case <-r.view.news:
		case <-ctx.Done():
			return
		}
		r.Settle()
		for _, id := range r.view.takeMoved() {
			r.options.Moved(id)
		}
		select {
		case r.dirty <- struct{}{}:
		default:
		}
	}
}

// Settle processes the changes of own devices that are waiting, and reports their
// events.
func (r *Registry) Settle() {
	for _, e := range r.view.settle(r.intake) {
		r.options.Event(e)
	}
}

// Known returns a device that another node holds or held last.
func (r *Registry) Known(id string) (*ferrule.Device, bool) { return r.view.known(id) }

// Nodes returns the names of other nodes that are alive.
func (r *Registry) Nodes() []string { return r.view.nodes() }

// Waiting returns how many own records are not yet written.
func (r *Registry) Waiting() int { return r.view.waiting(r.intake) }

// Peer returns the current run of another node, empty if it is not alive, and when the
// node was last known to be.
func (r *Registry) Peer(node string) (boot string, lastSeen time.Time) { return r.view.peer(node) }

// Held returns a device that this node holds under an epoch, with its effective
// manifest.
func (r *Registry) Held(id string, epoch uint64) (ferrule.Target, bool) {
	return r.view.held(id, epoch)
}

// Time limits of a lookup.
const (
	findTime   = time.Second
	lookupTime = time.Second
)

// Lookup reads the record of a device and updates the view. It returns nil if there is
// none, or the registry cannot be read.
func (r *Registry) Lookup(ctx context.Context, id string) *ferrule.Device {
	s := r.session.Load()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	e, err := s.devices.get(ctx, id)
	if err != nil {
		return nil
	}
	r.view.update(id, e)
	return e.device
}

// Manifest returns a manifest that any node stored.
func (r *Registry) Manifest(ctx context.Context, kind ferrule.Kind) (*ferrule.Manifest, error) {
	s := r.session.Load()
	if s == nil {
		return nil, errors.New("the registry cannot be read now")
	}
	return r.kinds.get(ctx, s.kinds, kind)
}

// Find looks up a device of another node that does not fit into the view.
func (r *Registry) Find(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	s := r.session.Load()
	if s == nil || !r.view.incomplete() || ferrule.CheckID(id) != nil {
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	e, err := s.devices.get(ctx, id)
	if err != nil || e.device == nil || e.device.Node == r.cfg.Node {
		return nil, nil, false
	}
	if e.device.Trust == ferrule.TrustPending {
		return r.view.withNodeState(e.device, nil), nil, true
	}
	manifest := r.kinds.manifest(e.device)
	if manifest == nil {
		m, err := r.kinds.get(ctx, s.kinds, e.device.Kind)
		if err != nil {
			return nil, nil, false
		}
		manifest = r.kinds.overlay(r.kinds.key(e.device), m)
	}
	return r.view.withNodeState(e.device, manifest), manifest, true
}
