package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// network holds the connections of toys to a server, and can break them.
type network struct {
	from netip.Prefix // local addresses; any if it is not valid

	mu    sync.Mutex
	conns map[*toyConn]bool
}

// toyConn is one connection of a toy.
type toyConn struct {
	net.Conn
	network   *network
	cut       atomic.Bool // by cutAll
	unplugged atomic.Bool
}

var errCut = errors.New("the connection was cut")

// dialer returns the dial function of a toy, which has its own local address if there is a
// prefix.
func (a *network) dialer(t *Toy, number int) func(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if a.from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(nthAddr(a.from, number), 0))
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &toyConn{Conn: conn, network: a}
		a.mu.Lock()
		a.conns[c] = true
		a.mu.Unlock()
		t.mu.Lock()
		t.conn = c
		t.mu.Unlock()
		return c, nil
	}
}

// nthAddr returns an address of a network. It wraps around after the last.
func nthAddr(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr().As4()
	n %= 1 << (32 - p.Bits())
	for i := 3; n > 0; i-- { // n has no bits of the network part
		a[i] |= byte(n)
		n >>= 8
	}
	return netip.AddrFrom4(a)
}

// checkFrom returns an error for local addresses that toys cannot use: only loopback networks
// have many addresses.
func checkFrom(p netip.Prefix) error {
	if p.IsValid() && (!p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8) {
		return fmt.Errorf("local addresses must be in a loopback network such as 127.1.0.0/16, got %s", p)
	}
	return nil
}

// cutAll closes every connection at once.
func (a *network) cutAll() {
	a.mu.Lock()
	all := a.conns
	a.conns = make(map[*toyConn]bool)
	a.mu.Unlock()
	for c := range all {
		c.cut.Store(true)
		c.Conn.Close()
	}
}

func (c *toyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.cut.Load() {
		err = errCut
	}
	return n, err
}

func (c *toyConn) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

// Write discards data after the connection was unplugged.
func (c *toyConn) Write(p []byte) (int, error) {
	if c.unplugged.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// unplug makes the toy unreachable while its connection stays open.
func (t *Toy) unplug() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		t.conn.unplugged.Store(true)
	}
}
