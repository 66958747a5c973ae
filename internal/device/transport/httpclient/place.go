package httpclient

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// place is where a device was reached last. One link at a time uses it.
type place struct {
	onReach func(netip.AddrPort) // is told the address that was dialed; may be nil

	mu     sync.Mutex
	target netip.AddrPort // invalid until the link has connected
	path   string
	drops  time.Time // when it last closed a connection that was in use again
}

// begin forgets the target before a link is opened.
func (p *place) begin(at endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target, p.path = netip.AddrPort{}, at.path
}

// connect dials an endpoint. If only an announcement says where that is, all connections
// of a link go to the host that the first one reached.
func (p *place) connect(ctx context.Context, at endpoint, timeout time.Duration, network, address string) (net.Conn, error) {
	p.mu.Lock()
	if p.target.IsValid() && (at.announced() || len(at.targets) > 0) {
		at.targets = []netip.AddrPort{p.target}
	}
	p.mu.Unlock()
	conn, err := at.connect(ctx, timeout, network, address)
	if err != nil {
		return nil, err
	}
	if to, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		p.reach(netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), uint16(to.Port)))
	}
	return conn, nil
}

func (p *place) reach(target netip.AddrPort) {
	p.mu.Lock()
	news := p.target != target
	p.target = target
	p.mu.Unlock()
	if news && p.onReach != nil {
		p.onReach(target)
	}
}

// reached returns the endpoint at which the device was reached, or "".
func (p *place) reached() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.target.IsValid() {
		return ""
	}
	return p.target.String() + p.path
}

// announced returns how a device is opened at other endpoints than the announced one.
// Open opens it at an endpoint with one target.
func (c *Connector) announced(at endpoint, targets func() []netip.AddrPort, open func(ctx context.Context, at endpoint) (transport.Link, error)) *transport.Announced {
	return &transport.Announced{
		Endpoints: func() (all []string) {
			for _, target := range targets() {
				all = append(all, target.String()+at.path)
			}
			return all
		},
		OpenAt: func(ctx context.Context, endpoint string) (transport.Link, error) {
			at, err := at.moveTo(endpoint)
			if err != nil {
				return nil, err
			}
			return open(ctx, at)
		},
		Accepts: func(ctx context.Context, endpoint string) bool {
			at, err := at.moveTo(endpoint)
			if err != nil {
				return false
			}
			conn, err := at.connect(ctx, c.cfg.DialTimeout, "tcp", at.host)
			if err != nil {
				return false
			}
			conn.Close()
			return true
		},
	}
}

// moveTo returns the endpoint at an address and path from place.reached.
func (e endpoint) moveTo(reached string) (endpoint, error) {
	host, path, _ := strings.Cut(reached, "/")
	target, err := netip.ParseAddrPort(host)
	if err != nil {
		return e, err
	}
	e.targets, e.path = []netip.AddrPort{target}, "/"+path
	return e, nil
}
