package inbound

import (
	"net/netip"
	"time"
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
	addresses map[string]bucket
	swept     time.Time
}

// host is what is known about a host.
type host struct {
	inside int
	bucket bucket
}

// bucket is the time until which what has happened is paid for, at one thing
// Every so often.
type bucket time.Time

func newLimits(cfg Config) limits {
	return limits{cfg: cfg, hosts: make(map[netip.Prefix]*host), addresses: make(map[string]bucket)}
}

// take counts one more thing, if it may happen now.
func (b bucket) take(r Rate, now time.Time) (bucket, bool) {
	paid := time.Time(b)
	if paid.Before(now) {
		paid = now
	}
	if paid.Sub(now) > time.Duration(r.Burst-1)*r.Every {
		return b, false
	}
	return bucket(paid.Add(r.Every)), true
}

// idle tells that a bucket says nothing any more.
func (b bucket) idle(now time.Time) bool { return !time.Time(b).After(now) }

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
	bucket, ok := h.bucket.take(l.cfg.Host, now)
	h.bucket = bucket
	switch {
	case !ok:
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

// sweep forgets what need not be remembered. It looks at everything, and so does
// that seldom.
func (l *limits) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for from, h := range l.hosts {
		if h.inside == 0 && h.bucket.idle(now) {
			delete(l.hosts, from)
		}
	}
	for key, b := range l.addresses {
		if b.idle(now) {
			delete(l.addresses, key)
		}
	}
}

// claim counts a guest. Strangers are counted apart: one who claims an address
// cannot keep its owner out.
func (l *limits) claim(g Peer, now time.Time) error {
	key := g.Address
	if !g.Adopted {
		key = "?" + key
	}
	before, known := l.addresses[key]
	if !known && len(l.addresses) >= maxHosts+2*l.cfg.Max {
		return ErrFull
	}
	bucket, ok := before.take(l.cfg.Address, now)
	if !ok {
		return ErrTooOften
	}
	l.addresses[key] = bucket
	return nil
}
