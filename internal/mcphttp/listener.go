package mcphttp

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ConnLimits limit the connections of a listener. A host is an IPv4 address, or a network
// of IPv6, which one machine usually has for itself.
type ConnLimits struct {
	// Total is the limit of open connections, PerHost the one for each host.
	Total, PerHost int
	// Waiting is the limit, for each host, of connections that no request was accepted on
	// for more than a second. Many agents may connect at once.
	Waiting int
}

// patience is how long a connection may wait for its first request before it counts.
const patience = time.Second

// Listener limits connections. At a limit it closes the connection that has waited for
// longest without an accepted request, so that a program which opens connections and says
// nothing locks nobody out. If there is none, it closes the new one.
type Listener struct {
	net.Listener
	limits ConnLimits

	mu      sync.Mutex
	open    int
	waiting *list.List // of *limitedConn, the oldest first
	hosts   map[netip.Prefix]*hostConns
}

type hostConns struct {
	open    int
	waiting *list.List // of *limitedConn, the oldest first
}

// NewListener returns a listener that limits the connections of ln. The HTTP server must
// have ConnContext, and call Accepted for each accepted request.
func NewListener(ln net.Listener, limits ConnLimits) *Listener {
	return &Listener{Listener: ln, limits: limits, waiting: list.New(), hosts: make(map[netip.Prefix]*hostConns)}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: conn, listener: l, host: HostOf(conn.RemoteAddr().String()), since: time.Now()}
		ended, ok := l.add(c)
		if ended != nil {
			ended.Conn.Close()
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// HostOf returns the host of an address, with or without a port. All addresses of an IPv6
// network of 64 bits are one host. Addresses that are not of IP share one.
func HostOf(address string) netip.Prefix {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		if ip, err := netip.ParseAddr(address); err == nil {
			at = netip.AddrPortFrom(ip, 0)
		}
	}
	ip := at.Addr().Unmap().WithZone("")
	if !ip.IsValid() {
		return netip.Prefix{}
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	host, _ := ip.Prefix(bits) // bits are in range
	return host
}

// add counts a connection. It returns one that has to be closed for it, if any. Ok is
// false if there is no room.
func (l *Listener) add(c *limitedConn) (ended *limitedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hosts[c.host]
	if h == nil {
		h = &hostConns{waiting: list.New()}
	}
	var from *list.List
	switch first := h.waiting.Front(); {
	case h.open >= l.limits.PerHost:
		from = h.waiting
	case h.waiting.Len() >= l.limits.Waiting && first != nil && time.Since(first.Value.(*limitedConn).since) > patience:
		from = h.waiting
	case l.open >= l.limits.Total:
		from = l.waiting
	}
	if from != nil {
		first := from.Front()
		if first == nil {
			return nil, false
		}
		ended = first.Value.(*limitedConn)
		l.remove(ended)
	}
	l.hosts[c.host] = h // the connection that ended may have been its last
	l.open++
	h.open++
	c.counted, c.all, c.own = true, l.waiting.PushBack(c), h.waiting.PushBack(c)
	return ended, true
}

// remove forgets a connection. It is called with mu held.
func (l *Listener) remove(c *limitedConn) {
	if !c.counted {
		return
	}
	l.accepted(c)
	c.counted = false
	l.open--
	h := l.hosts[c.host]
	if h.open--; h.open == 0 {
		delete(l.hosts, c.host)
	}
}

// accepted records that a connection no longer waits. It is called with mu held.
func (l *Listener) accepted(c *limitedConn) {
	if c.all != nil {
		l.waiting.Remove(c.all)
		l.hosts[c.host].waiting.Remove(c.own)
		c.all, c.own = nil, nil
	}
}

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	listener *Listener
	host     netip.Prefix
	since    time.Time

	// Guarded by the listener's mu.
	counted  bool
	all, own *list.Element // in the lists of those that wait; nil after the first accepted request
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// ConnContext is for http.Server. It works with TLS, too.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		switch c := conn.(type) {
		case *limitedConn:
			return context.WithValue(ctx, connKey{}, c)
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return ctx
		}
	}
}

// Accepted records that the request of ctx was accepted: its client may use the server.
func Accepted(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*limitedConn); ok {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.accepted(c)
	}
}
