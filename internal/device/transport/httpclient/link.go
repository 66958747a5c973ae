package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

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
	requests map[*request]bool // requests in progress
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
	if isTimeout(err) {
		return errTimeout
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err // without the ports of this connection
	}
	return err
}

func isTimeout(err error) bool {
	timeout := net.Error(nil)
	return errors.As(err, &timeout) && timeout.Timeout()
}

var errTimeout = errors.New("the device did not answer in time")

// register registers a connection so that Close closes it. It returns false if the link is
// closed.
func (l *link) register(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.conns[c] = true
	return true
}
