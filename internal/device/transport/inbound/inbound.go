// Package inbound is where peers wait that have dialled in, for the media that are
// listened on. It keeps floods out and the doors apart from what goes on inside:
//
//	medium ──Enter──▶ Place ──Claim──▶ Guest ──Seat──▶ Sighting ──Open──▶ Link
//	        (limits)                                   (Watch)     (once)
//
// One address has one seat. Whoever comes last has it, unless they cannot show
// what whoever sits there could: nobody is put out by a stranger who knows an
// address.
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
)

// Config is what can be set about a lobby.
type Config struct {
	// Dialects names the grammars to try on each peer.
	Protocols []string
	// Most is how many peers there may be at once, and PerHost how many of them
	// from one host. Peers that come through a proxy all come from its host.
	Max, PerHost int
	// Host is how often one host may dial in, and Address how often an address
	// may be claimed with success.
	Host, Address Rate
	// Wait is how long a peer waits to be opened before it is sent away.
	OpenTimeout time.Duration
}

// Rate is how often something may happen: Burst times at once, and then once
// Every so often.
type Rate struct {
	Burst int
	Every time.Duration
}

// DefaultConfig suits a house, and a company whose devices come one by one.
func DefaultConfig() Config {
	return Config{
		Max: 10_000, PerHost: 64,
		Host:        Rate{Burst: 64, Every: time.Second},
		Address:     Rate{Burst: 10, Every: 5 * time.Second},
		OpenTimeout: 30 * time.Second,
	}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	switch {
	case c.Max < 1:
		return fmt.Errorf("most: want at least 1, got %d", c.Max)
	case c.PerHost < 1:
		return fmt.Errorf("per host: want at least 1, got %d", c.PerHost)
	case c.OpenTimeout <= 0:
		return fmt.Errorf("wait: want more than nothing, got %v", c.OpenTimeout)
	}
	for name, r := range map[string]Rate{"host": c.Host, "address": c.Address} {
		if r.Burst < 1 || r.Every <= 0 {
			return fmt.Errorf("%s: want at least 1 at once and one in more than no time, got %d and %v", name, r.Burst, r.Every)
		}
	}
	return nil
}

// Why a peer is not let in, or has to leave.
var (
	ErrClosed       = errors.New("the gateway takes no devices now")
	ErrFull         = errors.New("the gateway has as many devices as it may")
	ErrHostFull     = errors.New("there are too many connections from this host")
	ErrTooOften     = errors.New("too many connections in a short time")
	ErrAddressTaken = errors.New("a device with a credential is connected with this address")

	errReplaced  = errors.New("the device has connected anew")
	errRevoked   = errors.New("a credential was revoked while the device came; it may come again")
	errNotOpened = errors.New("the gateway did not answer the device in time")
	errGone      = errors.New("the device has gone")
)

// Lobby keeps the peers of one medium.
type Registry struct {
	transport string
	cfg       Config
	log       *refusals

	mu          sync.Mutex
	open        bool
	limits      limits
	current     map[string]*Conn // by address
	instance    uint64
	revocations uint64          // how often Drop was called
	changed     map[string]bool // addresses whose seat has changed
	signal      chan struct{}   // holds something if there is news
}

// New makes a lobby of a config that was checked. Whoever comes before Watch runs
// waits for it.
func New(medium string, cfg Config, log *slog.Logger) *Registry {
	return &Registry{
		transport: medium, cfg: cfg, log: &refusals{log: log}, open: true, limits: newLimits(cfg),
		current: make(map[string]*Conn), changed: make(map[string]bool), signal: make(chan struct{}, 1),
	}
}

// Place is the place of one connection, from the moment that it is let in.
type Conn struct {
	registry    *Registry
	host        netip.Prefix
	revocations uint64 // the lobby's when it was let in

	// What follows is guarded by the lobby's mu.

	peer     Peer
	link     transport.Link
	drop     func(why error)
	instance uint64
	timer    *time.Timer // runs until the guest is opened
	opened   bool
	released bool
}

// Guest is a peer that is known by now.
type Peer struct {
	// Address tells its hardware apart from all other.
	Address string
	// Name is what its owner called it, and Adopted tells that it has shown
	// that they asked for it.
	Name    string
	Adopted bool
}

// Enter lets in a connection from a host, or tells why not. Whoever is let in
// leaves by Leave.
func (l *Registry) Accept(host netip.Addr) (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil, ErrClosed
	}
	p := &Conn{registry: l, host: network(host), revocations: l.revocations}
	if err := l.limits.enter(p.host, time.Now()); err != nil {
		return nil, err
	}
	return p, nil
}

// Claim tells who the peer is, or why it may not have the seat of its address.
func (p *Conn) Identify(g Peer) error {
	l := p.registry
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(g); err != nil {
		return err
	}
	p.peer = g
	return l.limits.claim(g, time.Now())
}

// admissible tells why a guest may not be seated. It is called with mu held.
func (l *Registry) check(g Peer) error {
	at := l.current[g.Address]
	switch {
	case !l.open:
		return ErrClosed
	case at != nil && at.peer.Adopted && !g.Adopted:
		return ErrAddressTaken
	}
	return nil
}

// Seat has a peer wait to be opened, once it has claimed its address. Whoever had
// the seat is dropped. Drop ends the link and says why; it is called with nothing
// locked, and has Leave called before or after it returns.
func (p *Conn) Register(link transport.Link, drop func(why error)) error {
	before, err := p.register(link, drop)
	if before != nil {
		before.drop(errReplaced)
	}
	return err
}

func (p *Conn) register(link transport.Link, drop func(why error)) (before *Conn, err error) {
	l := p.registry
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.released:
		return nil, errGone
	case p.revocations != l.revocations:
		return nil, errRevoked // it may have shown just that one
	}
	if err := l.check(p.peer); err != nil {
		return nil, err
	}
	// Growing with time as well, instances differ from those of the same
	// address on another medium.
	l.instance = max(l.instance+1, uint64(time.Now().UnixNano()))
	p.link, p.drop, p.instance = link, drop, l.instance
	p.timer = time.AfterFunc(l.cfg.OpenTimeout, p.expire)
	before = l.current[p.peer.Address]
	l.current[p.peer.Address] = p
	l.notify(p.peer.Address)
	return before, nil
}

// expire sends away a guest that nobody has opened.
func (p *Conn) expire() {
	p.registry.mu.Lock()
	waits := !p.opened && !p.released
	p.registry.mu.Unlock()
	if waits {
		p.drop(errNotOpened)
	}
}

// take hands over the guest, once.
func (p *Conn) open(context.Context) (transport.Link, error) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	if p.opened || p.released {
		return nil, errGone
	}
	p.opened = true
	p.timer.Stop()
	p.timer = nil
	return p.link, nil
}

// Leave gives back the place. It may be called twice.
func (p *Conn) Release() {
	l := p.registry
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	l.limits.leave(p.host)
	if p.timer != nil {
		p.timer.Stop()
	}
	if address := p.peer.Address; l.current[address] == p {
		delete(l.current, address)
		l.notify(address)
	}
}

// Drop sends away whoever has the seat of an address, if somebody has: its credential
// was revoked. Who has come in by now and has no seat yet gets none.
func (l *Registry) Drop(address string, why error) {
	l.mu.Lock()
	l.revocations++
	p := l.current[address]
	l.mu.Unlock()
	if p != nil {
		p.drop(why)
	}
}

// tell has Watch look at an address. It is called with mu held.
func (l *Registry) notify(address string) {
	l.changed[address] = true
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// Watch reports who waits in the lobby, each address as a group of its own, until
// ctx ends. Then the lobby is shut, and whoever was not opened is sent away.
func (l *Registry) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	defer l.close()
	for {
		select {
		case <-l.signal:
		case <-ctx.Done():
			return nil
		}
		for address, all := range l.changes() {
			update(l.transport+" "+address, all)
		}
	}
}

// changes is the picture of every address whose seat has changed.
func (l *Registry) changes() map[string][]transport.Sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]transport.Sighting, len(l.changed))
	for address := range l.changed {
		all[address] = nil
		if p := l.current[address]; p != nil {
			all[address] = []transport.Sighting{p.sighting()}
		}
	}
	l.changed = make(map[string]bool)
	return all
}

func (p *Conn) sighting() transport.Sighting {
	return transport.Sighting{
		Address: p.peer.Address, Instance: p.instance, Inbound: true, Transport: p.registry.transport,
		Name: p.peer.Name, Adopted: p.peer.Adopted, Protocols: p.registry.cfg.Protocols, Open: p.open,
	}
}

func (l *Registry) close() {
	l.mu.Lock()
	l.open = false
	var waiting []*Conn
	for _, p := range l.current {
		if !p.opened {
			waiting = append(waiting, p)
		}
	}
	l.mu.Unlock()
	for _, p := range waiting {
		p.drop(ErrClosed)
	}
}

// Refused notes that somebody was not let in, for people to see. Address is empty
// if it is not known.
func (l *Registry) LogRefusal(host netip.Addr, address string, why error) {
	l.log.add(l.transport, host, address, why)
}
