package inbound

import (
	"net/netip"
	"time"

	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

const (
	// maxHosts is the number of hosts that are remembered.
	maxHosts = 1 << 16
	// sweepEvery is the time between two sweeps.
	sweepEvery = 10 * time.Second
)

// limits counts connections. It forgets hosts and addresses that could connect again
// at once.
type limits struct {
	cfg       Config
	inside    int
	hosts     map[netip.Prefix]*host
	addresses map[string]*ratelimit.Limiter
	swept     time.Time
}

type host struct {
	inside int
	rate   ratelimit.Limiter
}

func newLimits(cfg Config) limits {
	return limits{cfg: cfg, hosts: make(map[netip.Prefix]*host), addresses: make(map[string]*ratelimit.Limiter)}
}

// HostOf returns the host of a remote address in the form of the net package. All
// unparsable addresses count as one host.
func HostOf(peer string) netip.Addr {
	at, _ := netip.ParseAddrPort(peer)
	return at.Addr().Unmap()
}

// network returns the prefix that counts as one host: the address for IPv4, the /64
// network for IPv6, where a host can choose its addresses.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the length is valid
	return p
}

// enter counts a connection from a host, or returns why it is refused.
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
		return ErrTooOften
	case h.inside >= l.cfg.PerHost:
		return ErrHostFull
	case l.inside >= l.cfg.Max:
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

// sweep forgets idle hosts and addresses. It visits all of them, so it runs rarely.
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

// claim counts an identified peer. Peers without a credential are counted separately,
// so they cannot lock out the owner's device.
func (l *limits) claim(g Peer, now time.Time) error {
	key := g.Address
	if !g.Adopted {
		key = "?" + key
	}
	rate, known := l.addresses[key]
	if !known && len(l.addresses) >= maxHosts+2*l.cfg.Max {
		return ErrFull
	}
	if !known {
		rate = new(ratelimit.Limiter)
	}
	if !rate.Allow(l.cfg.Address, now) {
		return ErrTooOften
	}
	l.addresses[key] = rate
	return nil
}
