package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// link is the Link to a device: requests go through its carrier.
type link struct {
	transport.Tap
	cfg     *Config
	address string
	at      endpoint
	token   string
	carrier *carrier
	closed  chan struct{}

	mu    sync.Mutex
	conns map[*conn]bool    // that are open; nil after Close
	under map[*request]bool // requests, and attempts to connect, that are under way
}

// newLink makes a link. It dials nothing: a board that serves one connection would
// wait for seconds on one that says nothing.
func newLink(cfg *Config, address string, at endpoint, token string) *link {
	l := &link{
		cfg: cfg, address: address, at: at, token: token, closed: make(chan struct{}),
		conns: make(map[*conn]bool), under: make(map[*request]bool),
	}
	l.carrier = newCarrier(l)
	return l
}

// HTTP implements wire.HTTP.
func (l *link) HTTP() (url string, carrier http.RoundTripper) { return l.at.url(), l.carrier }

// Info implements wire.Link.
func (l *link) Info() transport.Info { return transport.Info{Transport: Medium, Address: l.address} }

// Recv implements wire.Link: there are no messages to wait for.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	select {
	case <-l.closed:
		return transport.Message{}, transport.ErrClosed
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	}
}

// Send implements wire.Link.
func (l *link) Send(context.Context, transport.Message) error {
	return fmt.Errorf("%w: HTTP carries requests, and no messages", transport.ErrUnsent)
}

// Close implements wire.Link. When it returns, no connection to the device is left.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return nil
	}
	close(l.closed)
	for r := range l.under {
		r.cancel()
	}
	for c := range l.conns {
		c.Conn.Close()
	}
	l.conns = nil
	return nil
}

// begin registers a request, so that Close ends it. It is ended here if the link is
// closed already.
func (l *link) begin(r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		r.cancel()
		return transport.ErrClosed
	}
	l.under[r] = true
	return nil
}

// finish ends a request.
func (l *link) finish(r *request) {
	l.mu.Lock()
	delete(l.under, r)
	l.mu.Unlock()
	r.cancel()
}

// why says why a request failed: because the link was closed, because its context
// ended, or as it was told.
func (l *link) why(ctx context.Context, err error) error {
	select {
	case <-l.closed:
		return transport.ErrClosed
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return errSilent
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err // without the ports of this one connection
	}
	return err
}

// errSilent is told of a device that neither takes nor says anything.
var errSilent = errors.New("the device did not answer in time")

// dial connects to the device.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// It can outlast the request that it is for, and must not outlast the link.
	ctx, cancel := context.WithCancel(ctx)
	dialling := &request{cancel: cancel}
	if err := l.begin(dialling); err != nil {
		return nil, err
	}
	defer l.finish(dialling)
	inner, err := l.at.connect(ctx, l.cfg.DialTimeout, network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, l.why(ctx, err))
	}
	c := &conn{Conn: inner, link: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		inner.Close()
		return nil, transport.ErrClosed
	}
	l.conns[c] = true
	return c, nil
}

// maxWrite is how long a piece of a request may take to be sent. A device that does
// not take it by then does not read.
const maxWrite = 5 * time.Second

// conn is a connection of a link's.
type conn struct {
	net.Conn
	link *link
}

func (c *conn) Write(p []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(maxWrite)) // fails only on a closed conn, and then Write does
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
