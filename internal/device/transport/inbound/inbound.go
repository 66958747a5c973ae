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
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Config is what can be set about a lobby.
type Config struct {
	// Dialects names the grammars to try on each peer.
	Dialects []string
	// Most is how many peers there may be at once, and PerHost how many of them
	// from one host. Peers that come through a proxy all come from its host.
	Most, PerHost int
	// Host is how often one host may dial in, and Address how often an address
	// may be claimed with success.
	Host, Address Rate
	// Wait is how long a peer waits to be opened before it is sent away.
	Wait time.Duration
}

// Rate is how often something may happen.
type Rate = ratelimit.Rate

// DefaultConfig suits a house, and a company whose devices come one by one.
func DefaultConfig() Config {
	return Config{
		Most: 10_000, PerHost: 64,
		Host:    Rate{Burst: 64, Every: time.Second},
		Address: Rate{Burst: 10, Every: 5 * time.Second},
		Wait:    30 * time.Second,
	}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	switch {
	case c.Most < 1:
		return fmt.Errorf("most: want at least 1, got %d", c.Most)
	case c.PerHost < 1:
		return fmt.Errorf("per host: want at least 1, got %d", c.PerHost)
	case c.Wait <= 0:
		return fmt.Errorf("wait: want more than nothing, got %v", c.Wait)
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
	ErrShut     = errors.New("the gateway takes no devices now")
	ErrFull     = errors.New("the gateway has as many devices as it may")
	ErrHostFull = errors.New("there are too many connections from this host")
	ErrOften    = errors.New("too many connections in a short time")
	ErrTaken    = errors.New("a device with a credential is connected with this address")

	errReplaced = errors.New("the device has connected anew")
	errRevoked  = errors.New("a credential was revoked while the device came; it may come again")
	errWaited   = errors.New("the gateway did not answer the device in time")
	errLeft     = errors.New("the device has gone")
)

// Lobby keeps the peers of one medium.
type Lobby struct {
	medium string
	cfg    Config
	log    *refusals

	mu       sync.Mutex
	open     bool
	limits   limits
	seats    map[string]*Place // by address
	instance uint64
	drops    uint64          // how often Drop was called
	news     map[string]bool // addresses whose seat has changed
	some     chan struct{}   // holds something if there is news
}

// New makes a lobby of a config that was checked. Whoever comes before Watch runs
// waits for it.
func New(medium string, cfg Config, log *slog.Logger) *Lobby {
	return &Lobby{
		medium: medium, cfg: cfg, log: &refusals{log: log}, open: true, limits: newLimits(cfg),
		seats: make(map[string]*Place), news: make(map[string]bool), some: make(chan struct{}, 1),
	}
}

// Place is the place of one connection, from the moment that it is let in.
type Place struct {
	lobby *Lobby
	host  netip.Prefix
	drops uint64 // the lobby's when it was let in

	// What follows is guarded by the lobby's mu.

	guest    Guest
	link     transport.Link
	drop     func(why error)
	instance uint64
	timer    *time.Timer // runs until the guest is opened
	opened   bool
	left     bool
}

// Guest is a peer that is known by now.
type Guest struct {
	// Address tells its hardware apart from all other.
	Address string
	// Name is what its owner called it, and Adopted tells that it has shown
	// that they asked for it.
	Name    string
	Adopted bool
}

// Enter lets in a connection from a host, or tells why not. Whoever is let in
// leaves by Leave.
func (l *Lobby) Enter(host netip.Addr) (*Place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil, ErrShut
	}
	p := &Place{lobby: l, host: network(host), drops: l.drops}
	if err := l.limits.enter(p.host, time.Now()); err != nil {
		return nil, err
	}
	return p, nil
}

// Claim tells who the peer is, or why it may not have the seat of its address.
func (p *Place) Claim(g Guest) error {
	l := p.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admissible(g); err != nil {
		return err
	}
	p.guest = g
	return l.limits.claim(g, time.Now())
}

// admissible tells why a guest may not be seated. It is called with mu held.
func (l *Lobby) admissible(g Guest) error {
	at := l.seats[g.Address]
	switch {
	case !l.open:
		return ErrShut
	case at != nil && at.guest.Adopted && !g.Adopted:
		return ErrTaken
	}
	return nil
}

// Seat has a peer wait to be opened, once it has claimed its address. Whoever had
// the seat is dropped. Drop ends the link and says why; it is called with nothing
// locked, and has Leave called before or after it returns.
func (p *Place) Seat(link transport.Link, drop func(why error)) error {
	before, err := p.seat(link, drop)
	if before != nil {
		before.drop(errReplaced)
	}
	return err
}

func (p *Place) seat(link transport.Link, drop func(why error)) (before *Place, err error) {
	l := p.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.left:
		return nil, errLeft
	case p.drops != l.drops:
		return nil, errRevoked // it may have shown just that one
	}
	if err := l.admissible(p.guest); err != nil {
		return nil, err
	}
	// Growing with time as well, instances differ from those of the same
	// address on another medium.
	l.instance = max(l.instance+1, uint64(time.Now().UnixNano()))
	p.link, p.drop, p.instance = link, drop, l.instance
	p.timer = time.AfterFunc(l.cfg.Wait, p.expire)
	before = l.seats[p.guest.Address]
	l.seats[p.guest.Address] = p
	l.tell(p.guest.Address)
	return before, nil
}

// expire sends away a guest that nobody has opened.
func (p *Place) expire() {
	p.lobby.mu.Lock()
	waits := !p.opened && !p.left
	p.lobby.mu.Unlock()
	if waits {
		p.drop(errWaited)
	}
}

// take hands over the guest, once.
func (p *Place) take(context.Context) (transport.Link, error) {
	p.lobby.mu.Lock()
	defer p.lobby.mu.Unlock()
	if p.opened || p.left {
		return nil, errLeft
	}
	p.opened = true
	p.timer.Stop()
	p.timer = nil
	return p.link, nil
}

// Leave gives back the place. It may be called twice.
func (p *Place) Leave() {
	l := p.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	l.limits.leave(p.host)
	if p.timer != nil {
		p.timer.Stop()
	}
	if address := p.guest.Address; l.seats[address] == p {
		delete(l.seats, address)
		l.tell(address)
	}
}

// Drop sends away whoever has the seat of an address, if somebody has: its credential
// was revoked. Who has come in by now and has no seat yet gets none.
func (l *Lobby) Drop(address string, why error) {
	l.mu.Lock()
	l.drops++
	p := l.seats[address]
	l.mu.Unlock()
	if p != nil {
		p.drop(why)
	}
}

// tell has Watch look at an address. It is called with mu held.
func (l *Lobby) tell(address string) {
	l.news[address] = true
	select {
	case l.some <- struct{}{}:
	default:
	}
}

// Watch reports who waits in the lobby, each address as a group of its own, until
// ctx ends. Then the lobby is shut, and whoever was not opened is sent away.
func (l *Lobby) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	defer l.shut()
	for {
		select {
		case <-l.some:
		case <-ctx.Done():
			return nil
		}
		for address, all := range l.changes() {
			update(l.medium+" "+address, all)
		}
	}
}

// changes is the picture of every address whose seat has changed.
func (l *Lobby) changes() map[string][]transport.Sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string][]transport.Sighting, len(l.news))
	for address := range l.news {
		all[address] = nil
		if p := l.seats[address]; p != nil {
			all[address] = []transport.Sighting{p.sighting()}
		}
	}
	l.news = make(map[string]bool)
	return all
}

func (p *Place) sighting() transport.Sighting {
	return transport.Sighting{
		Address: p.guest.Address, Instance: p.instance, DialledIn: true, Transport: p.lobby.medium,
		Name: p.guest.Name, Adopted: p.guest.Adopted, Protocols: p.lobby.cfg.Dialects, Open: p.take,
	}
}

func (l *Lobby) shut() {
	l.mu.Lock()
	l.open = false
	var waiting []*Place
	for _, p := range l.seats {
		if !p.opened {
			waiting = append(waiting, p)
		}
	}
	l.mu.Unlock()
	for _, p := range waiting {
		p.drop(ErrShut)
	}
}

// Refused notes that somebody was not let in, for people to see. Address is empty
// if it is not known.
func (l *Lobby) Refused(host netip.Addr, address string, why error) {
	l.log.add(l.medium, host, address, why)
}
