// Package inbound is a registry of the connections that devices opened, for the
// transports that listen. It limits who may connect, and reports each waiting peer as
// a Sighting.
//
//	transport --Accept--> Conn --Identify--> Peer --Register--> Sighting --Open--> Link
//	          (limits)        (limits)             (Watch)           (once)
//
// An address has one registered connection. The newest replaces the previous one,
// unless the previous peer is adopted and the new one is not: a stranger who knows an
// address cannot disconnect its owner's device.
package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Config configures a Registry.
type Config struct {
	// Protocols are tried on each peer, in order.
	Protocols []string
	// Max is the number of connections at once, PerHost the number from one host.
	// Peers behind a proxy all come from its host.
	Max, PerHost int
	// Host limits how often one host may connect, Address how often an address may
	// be identified successfully.
	Host, Address Rate
	// OpenTimeout is how long a registered peer waits to be opened.
	OpenTimeout time.Duration
}

// Rate is how often something may happen.
type Rate = ratelimit.Rate

// DefaultConfig suits a house, and a company whose devices connect one by one.
func DefaultConfig() Config {
	return Config{
		Max: 10_000, PerHost: 64,
		Host:        Rate{Burst: 64, Every: time.Second},
		Address:     Rate{Burst: 10, Every: 5 * time.Second},
		OpenTimeout: 30 * time.Second,
	}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	switch {
	case c.Max < 1:
		return fmt.Errorf("max: must be at least 1, got %d", c.Max)
	case c.PerHost < 1:
		return fmt.Errorf("per host: must be at least 1, got %d", c.PerHost)
	case c.OpenTimeout <= 0:
		return fmt.Errorf("open timeout: must be greater than 0, got %v", c.OpenTimeout)
	}
	for name, r := range map[string]Rate{"host": c.Host, "address": c.Address} {
		if r.Burst < 1 || r.Every <= 0 {
			return fmt.Errorf("%s: burst must be at least 1 and every greater than 0, got %d and %v", name, r.Burst, r.Every)
		}
	}
	return nil
}

// Why a connection is refused or closed.
var (
	ErrClosed       = errors.New("the gateway is not accepting devices")
	ErrFull         = errors.New("the gateway's device limit is reached")
	ErrHostFull     = errors.New("too many connections from this host")
	ErrTooOften     = errors.New("too many connections in a short time")
	ErrAddressTaken = errors.New("an adopted device is connected with this address")

	ErrReplaced  = errors.New("the device reconnected")
	errRevoked   = errors.New("a credential was revoked while the device connected; it may try again")
	errNotOpened = errors.New("the gateway did not open the connection in time")
	errGone      = errors.New("the device disconnected")
)

// Registry holds the inbound connections of one transport.
type Registry struct {
	transport string
	cfg       Config
	log       *refusalLog

	mu          sync.Mutex
	open        bool
	limits      limits
	current     map[string]*Conn // registered connections by address
	instance    uint64
	revocations uint64          // number of calls of Drop
	changed     map[string]bool // addresses that Watch has not reported
	signal      chan struct{}   // wakes Watch
}

// New returns a Registry for a config that passed Check. Peers that connect before
// Watch runs wait for it.
func New(transport string, cfg Config, log *slog.Logger) *Registry {
	return &Registry{
		transport: transport, cfg: cfg, log: &refusalLog{log: log}, open: true, limits: newLimits(cfg),
		current: make(map[string]*Conn), changed: make(map[string]bool), signal: make(chan struct{}, 1),
	}
}

// Conn is one accepted connection.
type Conn struct {
	registry    *Registry
	host        netip.Prefix
	revocations uint64 // of the registry when it was accepted

	// The following fields are guarded by the registry's mu.

	peer     Peer
	link     transport.Link
	drop     func(reason error)
	instance uint64
	timer    *time.Timer // runs until the peer is opened
	opened   bool
	released bool
}

// Peer is the identity of a connected device.
type Peer struct {
	// Address identifies the hardware.
	Address string
	// Name is the name that the owner gave it. Adopted reports that it presented a
	// credential of the owner.
	Name    string
	Adopted bool
}

// Accept counts a connection from a host against the limits, or returns why it is
// refused. The caller must call Release of the returned Conn.
func (r *Registry) Accept(host netip.Addr) (*Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil, ErrClosed
	}
	c := &Conn{registry: r, host: network(host), revocations: r.revocations}
	if err := r.limits.enter(c.host, time.Now()); err != nil {
		return nil, err
	}
	return c, nil
}

// Identify sets the peer, or returns why it may not connect with its address.
func (c *Conn) Identify(peer Peer) error {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(peer); err != nil {
		return err
	}
	c.peer = peer
	return r.limits.claim(peer, time.Now())
}

// check returns why a peer may not be registered. Called with mu held.
func (r *Registry) check(peer Peer) error {
	registered := r.current[peer.Address]
	switch {
	case !r.open:
		return ErrClosed
	case registered != nil && registered.peer.Adopted && !peer.Adopted:
		return ErrAddressTaken
	}
	return nil
}

// Register makes an identified peer wait to be opened, and drops the previous
// connection of its address. Drop must end the link with a reason. It is called
// without a lock, and must lead to a call of Release before or after it returns.
func (c *Conn) Register(link transport.Link, drop func(reason error)) error {
	before, err := c.register(link, drop)
	if before != nil {
		before.drop(ErrReplaced)
	}
	return err
}

func (c *Conn) register(link transport.Link, drop func(reason error)) (before *Conn, err error) {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c.released:
		return nil, errGone
	case c.revocations != r.revocations:
		return nil, errRevoked // its credential may be the revoked one
	}
	if err := r.check(c.peer); err != nil {
		return nil, err
	}
	// The clock keeps instances distinct from those of the same address on another
	// transport.
	r.instance = max(r.instance+1, uint64(time.Now().UnixNano()))
	c.link, c.drop, c.instance = link, drop, r.instance
	c.timer = time.AfterFunc(r.cfg.OpenTimeout, c.expire)
	before = r.current[c.peer.Address]
	r.current[c.peer.Address] = c
	r.notify(c.peer.Address)
	return before, nil
}

// expire drops a peer that was not opened in time.
func (c *Conn) expire() {
	c.registry.mu.Lock()
	waiting := !c.opened && !c.released
	c.registry.mu.Unlock()
	if waiting {
		c.drop(errNotOpened)
	}
}

// open returns the link, once.
func (c *Conn) open(context.Context) (transport.Link, error) {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	if c.opened || c.released {
		return nil, errGone
	}
	c.opened = true
	c.timer.Stop()
	c.timer = nil
	return c.link, nil
}

// Release removes the connection. It may be called more than once.
func (c *Conn) Release() {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	r.limits.leave(c.host)
	if c.timer != nil {
		c.timer.Stop()
	}
	if address := c.peer.Address; r.current[address] == c {
		delete(r.current, address)
		r.notify(address)
	}
}

// Drop ends the connection of an address, because its credential was revoked.
// Connections that are accepted but not yet registered are refused, too: their
// credentials may have been checked before.
func (r *Registry) Drop(address string, reason error) {
	r.mu.Lock()
	r.revocations++
	c := r.current[address]
	r.mu.Unlock()
	if c != nil {
		c.drop(reason)
	}
}

// notify makes Watch report an address. Called with mu held.
func (r *Registry) notify(address string) {
	r.changed[address] = true
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// Watch reports the registered peers, each address as a group of its own, until ctx
// ends. It then closes the registry and drops the peers that were not opened.
func (r *Registry) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	defer r.close()
	for {
		select {
		case <-r.signal:
		case <-ctx.Done():
			return nil
		}
		for address, all := range r.changes() {
			update(r.transport+" "+address, all)
		}
	}
}

// changes returns the sightings of every changed address.
func (r *Registry) changes() map[string][]transport.Sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]transport.Sighting, len(r.changed))
	for address := range r.changed {
		all[address] = nil
		if c := r.current[address]; c != nil {
			all[address] = []transport.Sighting{c.sighting()}
		}
	}
	r.changed = make(map[string]bool)
	return all
}

func (c *Conn) sighting() transport.Sighting {
	return transport.Sighting{
		Address: c.peer.Address, Instance: c.instance, Inbound: true, Transport: c.registry.transport,
		Name: c.peer.Name, Adopted: c.peer.Adopted, Protocols: c.registry.cfg.Protocols, Open: c.open,
	}
}

func (r *Registry) close() {
	r.mu.Lock()
	r.open = false
	var waiting []*Conn
	for _, c := range r.current {
		if !c.opened {
			waiting = append(waiting, c)
		}
	}
	r.mu.Unlock()
	for _, c := range waiting {
		c.drop(ErrClosed)
	}
}

// LogRefusal logs that a connection was refused. Address is empty if it is unknown.
func (r *Registry) LogRefusal(host netip.Addr, address string, reason error) {
	r.log.add(r.transport, host, address, reason)
}
