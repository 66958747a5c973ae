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

// cables is how toys reach a server, and what can go wrong on the way.
type cables struct {
	from netip.Prefix // where they dial from; anywhere if it is not valid

	mu  sync.Mutex
	all map[*cable]bool
}

// cable is one connection of a toy.
type cable struct {
	net.Conn
	of        *cables
	severed   atomic.Bool // by cut
	unplugged atomic.Bool
}

var errCut = errors.New("the connection was cut")

// dialler is how a toy dials: from an address of its own, if it has one.
func (a *cables) dialler(t *Toy, number int) func(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if a.from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(nth(a.from, number), 0))
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &cable{Conn: conn, of: a}
		a.mu.Lock()
		a.all[c] = true
		a.mu.Unlock()
		t.mu.Lock()
		t.cable = c
		t.mu.Unlock()
		return c, nil
	}
}

// nth is an address of a network. They begin again after the last.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr().As4()
	n %= 1 << (32 - p.Bits())
	for i := 3; n > 0; i-- { // there are no bits of the network among those of n
		a[i] |= byte(n)
		n >>= 8
	}
	return netip.AddrFrom4(a)
}

// checkFrom tells why toys cannot dial from a network: others than those of this
// machine's own have one address here, if any.
func checkFrom(p netip.Prefix) error {
	if p.IsValid() && (!p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8) {
		return fmt.Errorf("toys can dial from addresses of this machine alone, such as 127.1.0.0/16, not from %s", p)
	}
	return nil
}

// cut ends every connection at once.
func (a *cables) cut() {
	a.mu.Lock()
	all := a.all
	a.all = make(map[*cable]bool)
	a.mu.Unlock()
	for c := range all {
		c.severed.Store(true)
		c.Conn.Close()
	}
}

// Read implements net.Conn.
func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.severed.Load() {
		err = errCut
	}
	return n, err
}

// Close implements net.Conn.
func (c *cable) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn. Nothing that is said over a cable that was unplugged
// arrives anywhere.
func (c *cable) Write(p []byte) (int, error) {
	if c.unplugged.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// unplug has nobody hear the toy any more, while its connection stays.
func (t *Toy) unplug() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cable != nil {
		t.cable.unplugged.Store(true)
	}
}
