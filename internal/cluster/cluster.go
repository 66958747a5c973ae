// Package cluster connects the nodes of a tenant by NATS, which runs in this process or
// in an existing cluster. Nodes see and call each other's devices, and store their
// events, readings and journals in shared streams.
//
//	engine     the connection to NATS, and the server in this process
//	registry   where each device is, which nodes are alive
//	calls      calls to devices of other nodes, and theirs to this node's
//	streams    events, readings and copies of journals
//	shared     small records that all nodes know
//	taskstore  records of calls that outlive their requests
//	seal       authenticates what nodes keep on NATS
//
// This package runs them: it starts the engine, opens what nodes share, and starts over
// if that fails. Own devices are served whatever the state of the cluster.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/calls"
	"github.com/ferrulehq/ferrule/internal/cluster/engine"
	"github.com/ferrulehq/ferrule/internal/cluster/registry"
	"github.com/ferrulehq/ferrule/internal/cluster/shared"
	"github.com/ferrulehq/ferrule/internal/cluster/streams"
	"github.com/ferrulehq/ferrule/internal/cluster/taskstore"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config configures a node's part in the cluster.
type Config = engine.Config

// Mode is where NATS runs.
type Mode = engine.Mode

// The modes.
const (
	Embedded = engine.Embedded
	Leaf     = engine.Leaf
	Join     = engine.Join
)

// DefaultConfig returns the config of a single node that is named after its host.
func DefaultConfig() Config { return engine.DefaultConfig() }

// Parts are the parts that a Cluster needs.
type Parts struct {
	Config Config
	// Dir is the directory of NATS' files and the node's identity.
	Dir       string
	Fleet     registry.Fleet
	Overlays  registry.Overlays
	Manifests registry.Manifests
	Journal   streams.Journal
	// Serve is the pipeline of this node, for calls of other nodes. Call.Via is set.
	Serve ferrule.Handler
	// Refused is called with calls that no node of the tenant vouches for. It must not
	// block.
	Refused func(call *ferrule.Call)
	// Moved is called with own devices that another node took or released. It must not
	// block.
	Moved func(id string)
	// Interrupted is called when readings and events of other nodes may have been lost. It
	// must not block. It may be nil.
	Interrupted func()
	// Meters measure calls to and from other nodes. It may be nil.
	Meters  ferrule.Meters
	Version string
	Log     *slog.Logger
}

// Cluster is one node's part in the cluster. It is a ferrule.DeviceWatcher of the node's own
// devices.
type Cluster struct {
	parts    Parts
	cfg      Config
	registry *registry.Registry
	calls    *calls.Calls
	streams  *streams.Streams
	shared   *shared.Records
	tasks    *taskstore.Store
	boot     string
	farewell time.Duration                 // how long writing the last records may take
	engine   atomic.Pointer[engine.Engine] // nil while it is not running

	mu       sync.Mutex
	problems [concerns]string
	state    State
}

// New returns a Cluster. It creates the directory of its files.
func New(p Parts) (*Cluster, error) {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	identity, err := readIdentity(filepath.Join(p.Dir, identityFile))
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	secret, err := readSecret(p.Config)
	if err != nil {
		return nil, fmt.Errorf("cluster.secret: %w", err)
	}
	boot := strings.ToLower(cryptorand.Text()[:10])
	c := &Cluster{
		parts: p, cfg: p.Config, boot: boot, farewell: farewell,
		state: State{Mode: p.Config.Mode, Node: p.Config.Node, Tenant: p.Config.Tenant, Since: time.Now(), Reason: starting},
	}
	c.problems[connecting] = starting
	c.streams, err = streams.New(streams.Options{
		Config: p.Config, Identity: identity, Boot: boot, Secret: secret, Journal: p.Journal, Problem: func() string { return c.State().Reason }, Log: p.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c.registry, err = registry.New(registry.Options{
		Config: p.Config, Identity: identity, Boot: boot, Version: p.Version, Secret: secret, IdentityFile: filepath.Join(filepath.Base(p.Dir), identityFile),
		Fleet: p.Fleet, Overlays: p.Overlays, Manifests: p.Manifests,
		Remote: c.call, Event: c.streams.AddEvent, Moved: p.Moved,
		Synced:       func() { c.report(connecting, "") },
		LeaseProblem: func(problem string) { c.report(leasing, problem) },
		WriteProblem: func(problem string) { c.report(writing, problem) },
		Log:          p.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c.calls = calls.New(calls.Options{
		Names: engine.Names{Tenant: p.Config.Tenant, Node: p.Config.Node}, Boot: boot, Devices: c.registry,
		Secret: secret, Serve: p.Serve, Refused: p.Refused, Meters: p.Meters, Log: p.Log,
	})
	if p.Config.Alone() {
		secret = []byte(identity) // its records must be valid in its next run
	}
	names := engine.Names{Tenant: p.Config.Tenant, Node: p.Config.Node}
	if c.shared, err = shared.New(shared.Options{Names: names, Secret: secret, Log: p.Log}); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if c.tasks, err = taskstore.New(taskstore.Options{Names: names, Secret: secret, Log: p.Log}); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return c, nil
}

// identityFile has the identity of this node, which distinguishes it from another of the
// same name.
const identityFile = "node"

// readIdentity reads the identity of this node, or creates it.
func readIdentity(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && len(data) >= 16 && len(data) < 64 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	identity := strings.ToLower(cryptorand.Text()[:20])
	return identity, os.WriteFile(path, []byte(identity+"\n"), 0o600)
}

// maxSecret limits what is read of a secret's file.
const maxSecret = 4096

// readSecret reads what the nodes of a tenant share. A single node shares nothing.
func readSecret(cfg Config) ([]byte, error) {
	if cfg.Alone() {
		return []byte(cryptorand.Text() + cryptorand.Text()), nil
	}
	data, err := os.ReadFile(cfg.Secret)
	if errors.Is(err, os.ErrNotExist) { // the name may be the secret, by mistake
		return nil, errors.New("the file does not exist; it must be the name of a file that has the secret")
	}
	if err != nil {
		return nil, err
	}
	if data = bytes.TrimSpace(data); len(data) < calls.MinSecret || len(data) > maxSecret {
		return nil, fmt.Errorf("%s has %d characters, must have %d to %d; `openssl rand -hex 32` makes one", cfg.Secret, len(data), calls.MinSecret, maxSecret)
	}
	return data, nil
}

// Put implements ferrule.DeviceWatcher.
func (c *Cluster) Put(dev *ferrule.Device, manifest *ferrule.Manifest) {
	c.registry.Put(dev, manifest)
}

// Remove implements ferrule.DeviceWatcher.
func (c *Cluster) Remove(id string) { c.registry.Remove(id) }

// Known returns a device that another node holds or held last.
func (c *Cluster) Known(id string) (*ferrule.Device, bool) { return c.registry.Known(id) }

// Manifest returns a manifest that any node stored.
func (c *Cluster) Manifest(ctx context.Context, kind ferrule.Kind) (*ferrule.Manifest, error) {
	return c.registry.Manifest(ctx, kind)
}

// Find looks up a device of another node that does not fit into memory.
func (c *Cluster) Find(id string) (*ferrule.Device, *ferrule.Manifest, ferrule.Handler, bool) {
	dev, manifest, ok := c.registry.Find(id)
	if !ok {
		return nil, nil, nil, false
	}
	return dev, manifest, c.call, true
}

// call calls a device of another node.
func (c *Cluster) call(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return c.calls.Call(ctx, call)
}

// Forward sends a call of the gateway's own tools to the node that it concerns.
func (c *Cluster) Forward(ctx context.Context, node string, call *ferrule.Call) (*ferrule.Result, error) {
	return c.calls.Forward(ctx, node, call)
}

// AddDeviceEvent takes an event that an own device sent. It does not block. If too many are
// waiting, the event is lost and counted.
func (c *Cluster) AddDeviceEvent(e ferrule.Event) {
	if !c.registry.Say(e) {
		c.streams.LoseEvent()
	}
}

// AddEvent takes an event of this node that is not about the state of one device. It does
// not block.
func (c *Cluster) AddEvent(e ferrule.Event) { c.streams.AddEvent(e) }

// Listen calls fn with every new event of the tenant. See streams.Streams.Listen.
func (c *Cluster) Listen(fn func(ferrule.Event), only ...ferrule.EventType) (stop func()) {
	return c.streams.Listen(fn, only...)
}

// Recent returns the last stored events of a device at all nodes, the oldest first.
func (c *Cluster) Recent(ctx context.Context, device string, limit int) ([]ferrule.Event, error) {
	return c.streams.Recent(ctx, device, limit)
}

// Measured queues a reading of an own device to be stored. It does not block. It reports
// false if too many are waiting.
func (c *Cluster) Measured(r ferrule.Reading) bool { return c.streams.Measured(r) }

// Samples calls fn with every new reading of a device. See streams.Streams.Samples.
func (c *Cluster) Samples(device, signal string, fn func(ferrule.Reading)) (stop func()) {
	return c.streams.Samples(device, signal, fn)
}

// Readings calls fn with this node's stored readings. See streams.Streams.Readings.
func (c *Cluster) Readings(ctx context.Context, after string, fn func(ferrule.StoredReading) error) error {
	return c.streams.Readings(ctx, after, fn)
}

// Journals returns a reader of the journals of all nodes, or nil for a single node.
func (c *Cluster) Journals() *streams.Journals { return c.streams.Journals() }

// Shared returns the records that all nodes of the tenant know.
func (c *Cluster) Shared() *shared.Records { return c.shared }

// Tasks returns the records of tasks of all nodes of the tenant.
func (c *Cluster) Tasks() *taskstore.Store { return c.tasks }

// Boot identifies this run of the node.
func (c *Cluster) Boot() string { return c.boot }

// Peer returns the current run of another node, empty if it is not alive, and when the node
// was last known to be. The time is zero if the node was never seen.
func (c *Cluster) Peer(node string) (boot string, lastSeen time.Time) { return c.registry.Peer(node) }

// Stats are counts for metrics.
type Stats struct {
	// Spooled is how many events wait in memory, and Lost how many were dropped
	// because too many did.
	Spooled int
	Lost    uint64
	// Sending is how many calls to other nodes are in progress, and Serving how many
	// of theirs.
	Sending int
	Serving int
}

// Stats returns the counts. It may be called at any time.
func (c *Cluster) Stats() Stats {
	s := c.streams.Stats()
	return Stats{Spooled: s.Spooled, Lost: s.Lost, Sending: c.calls.Sending(), Serving: c.calls.Serving()}
}

// State is the state of a node in the cluster.
type State struct {
	Mode   Mode   `json:"mode"`
	Node   string `json:"node"`
	Tenant string `json:"tenant"`
	// Working means that this node's records reach the registry. Since is when that
	// last changed, and Reason is the problem if it does not work.
	Working bool      `json:"working"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`
	// Nodes are the other nodes that are alive.
	Nodes []string `json:"nodes,omitempty"`
	// Waiting is how many own records are not yet written, and Unstored how many
	// readings are not yet stored.
	Waiting  int `json:"waiting"`
	Unstored int `json:"unstored"`
}

// State returns the state. It may be called at any time.
func (c *Cluster) State() State {
	c.mu.Lock()
	s := c.state
	c.mu.Unlock()
	s.Nodes, s.Waiting, s.Unstored = c.registry.Nodes(), c.registry.Waiting(), c.streams.Unstored()
	return s
}

// starting is the problem until the first connection.
const starting = "starting"

// concern is a part of a Cluster that can have a problem of its own.
type concern int

const (
	connecting concern = iota
	leasing            // this node's lease
	writing            // the records of its devices
	concerns
)

// report sets the problem of a concern, empty if it has none, and logs a change of
// whether the cluster works.
func (c *Cluster) report(about concern, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := about == connecting && c.problems[connecting] == starting
	c.problems[about] = ferrule.MaskURLs(problem)
	why := cmp.Or(c.problems[:]...)
	if why == starting {
		return
	}
	if working := why == ""; c.state.Working == working && !first {
		c.state.Reason = why
		return
	}
	c.state.Working, c.state.Reason, c.state.Since = why == "", why, time.Now()
	switch {
	case why != "":
		c.parts.Log.Warn("cluster: not working; own devices are still served", "node", c.cfg.Node, "err", why)
	case !c.cfg.Alone():
		c.parts.Log.Info("cluster: joined tenant "+c.cfg.Tenant, "node", c.cfg.Node)
	}
}
