package inbound

import (
	"net/netip"
	"time"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

const (
	// maxHosts bounds what is remembered of hosts, however many there are.
	maxHosts = 1 << 16
	// sweepEvery is how often what need not be remembered is forgotten.
	sweepEvery = 10 * time.Second
)

// limits counts. What it remembers goes by itself: nothing is kept about who has
// left and could come again at once.
type limits struct {
	cfg       Config
	inside    int
	hosts     map[netip.Prefix]*host
	addresses map[string]*ratelimit.Limiter
	swept     time.Time
}

// host is what is known about a host.
type host struct {
	inside int
	rate   ratelimit.Limiter
}

func newLimits(cfg Config) limits {
	return limits{cfg: cfg, hosts: make(map[netip.Prefix]*host), addresses: make(map[string]*ratelimit.Limiter)}
}

// HostOf is the host of a peer, which is written as the net package writes one. All whose
// host cannot be told are one.
func HostOf(peer string) netip.Addr {
	at, _ := netip.ParseAddrPort(peer)
	return at.Addr().Unmap()
}

// network is what counts as one host: with IPv6 a host has as many addresses as
// it likes.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // it is in range
	return p
}

// enter counts a connection from a host.
func (l *limits) enter(from netip.Prefix, now time.Time) (err error) {
	l.sweep(now)
	h := l.hosts[from]
	if h == nil {
		if len(l.hosts) >= maxHosts {
			return ErrFull
		}
		h = new(host)
		l.hosts[from] = h
	}
	switch {
	case !h.rate.Allow(l.cfg.Host, now):
		return ErrOften
	case h.inside >= l.cfg.PerHost:
		return ErrHostFull
	case l.inside >= l.cfg.Most:
		return ErrFull
	}
	h.inside++
	l.inside++
	return nil
}

func (l *limits) leave(from netip.Prefix) {
	l.inside--
	l.hosts[from].inside--
}

// sweep forgets what need not be remembered. It looks at everything, and so does
// that seldom.
func (l *limits) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for from, h := range l.hosts {
		if h.inside == 0 && h.rate.Idle(now) {
			delete(l.hosts, from)
		}
	}
	for key, rate := range l.addresses {
		if rate.Idle(now) {
			delete(l.addresses, key)
		}
	}
}

// claim counts a guest. Strangers are counted apart: one who claims an address
// cannot keep its owner out.
func (l *limits) claim(g Guest, now time.Time) error {
	key := g.Address
	if !g.Adopted {
		key = "?" + key
	}
	rate, known := l.addresses[key]
	if !known && len(l.addresses) >= maxHosts+2*l.cfg.Most {
		return ErrFull
	}
	if !known {
		rate = new(ratelimit.Limiter)
	}
	if !rate.Allow(l.cfg.Address, now) {
		return ErrOften
	}
	l.addresses[key] = rate
	return nil
}
