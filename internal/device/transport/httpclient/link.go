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

// link is the Link to a device. Requests go through its tripper.
type link struct {
	transport.Tracer
	cfg     *Config
	address string
	at      endpoint
	token   string
	tripper *roundTripper
	place   *place // where the device is reached
	closed  chan struct{}

	mu       sync.Mutex
	conns    map[*conn]bool    // open connections; nil after Close
	requests map[*request]bool // requests and dials in progress
}

// newLink returns a link. It does not dial yet: a board that serves one connection
// would wait for seconds on a silent one.
func newLink(cfg *Config, address string, at endpoint, token string, p *place) *link {
	l := &link{
		cfg: cfg, address: address, at: at, token: token, place: p, closed: make(chan struct{}),
		conns: make(map[*conn]bool), requests: make(map[*request]bool),
	}
	l.tripper = newRoundTripper(l)
	return l
}

// HTTP implements transport.HTTP.
func (l *link) HTTP() (url string, tripper http.RoundTripper) { return l.at.url(), l.tripper }

// Info implements transport.Link.
func (l *link) Info() transport.Info { return transport.Info{Transport: Name, Address: l.address} }

// Recv implements transport.Link. There are no messages; it waits for Close.
func (l *link) Recv(ctx context.Context) (transport.Message, error) {
	select {
	case <-l.closed:
		return transport.Message{}, transport.ErrClosed
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	}
}

// Send implements transport.Link. It always fails.
func (l *link) Send(context.Context, transport.Message) error {
	return fmt.Errorf("%w: an HTTP link carries requests, not messages", transport.ErrUnsent)
}

// Close implements transport.Link. It closes every connection to the device.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return nil
	}
	close(l.closed)
	for r := range l.requests {
		r.cancel()
	}
	for c := range l.conns {
		c.Conn.Close()
	}
	l.conns = nil
	return nil
}

// begin registers a request so that Close cancels it. If the link is closed, it
// cancels the request and returns ErrClosed.
func (l *link) begin(r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		r.cancel()
		return transport.ErrClosed
	}
	l.requests[r] = true
	return nil
}

// finish cancels and removes a request.
func (l *link) finish(r *request) {
	l.mu.Lock()
	delete(l.requests, r)
	l.mu.Unlock()
	r.cancel()
}

// reason returns why a request failed: the link was closed, its context ended, it
// timed out, or err.
func (l *link) reason(ctx context.Context, err error) error {
	select {
	case <-l.closed:
		return transport.ErrClosed
	default:
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return errTimeout
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err // without the ports of this connection
	}
	return err
}

var errTimeout = errors.New("the device did not answer in time")

// dial connects to the device. A dial may outlive its request but not the link.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	dialing := &request{cancel: cancel}
	if err := l.begin(dialing); err != nil {
		return nil, err
	}
	defer l.finish(dialing)
	inner, err := l.place.connect(ctx, l.at, l.cfg.DialTimeout, network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, l.reason(ctx, err))
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

// maxWrite bounds one write. A device that does not accept it by then has stopped
// reading.
const maxWrite = 5 * time.Second

// conn is a connection of a link.
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
