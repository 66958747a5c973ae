package httpclient

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/idna"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// maxHeader is the length of the longest response header.
const maxHeader = 64 << 10

// maxWrite bounds one write. A device that does not accept it by then has stopped
// reading.
const maxWrite = 5 * time.Second

// earlyTime is how long a response may take to arrive if the device stopped reading the
// request. Some devices refuse a request by its header.
const earlyTime = 100 * time.Millisecond

// conn is a connection of a link, for one request at a time. The goroutine of the request
// writes it and reads the response. The connections of an http.Transport have goroutines
// of their own, and waking them up takes as long as a device on this machine needs to
// answer.
type conn struct {
	net.Conn // TCP
	link     *link

	stream net.Conn         // TLS over Conn, or the same
	limit  io.LimitedReader // reads stream; ends if a header is too long
	in     *bufio.Reader    // reads limit
	text   bytes.Buffer     // the request

	// The following fields belong to the current request.

	reused bool // the connection served another one before
	wrote  bool // something of it may have been sent
	heard  bool // the response has begun
	// unwatch stops watching the context, which closes the connection when it ends. It
	// returns false if that has happened.
	unwatch func() bool
}

// dial connects to the device.
func (l *link) dial(ctx context.Context) (*conn, error) {
	host, port, err := net.SplitHostPort(l.at.host)
	if err != nil {
		return nil, err
	}
	if ascii, err := idna.Lookup.ToASCII(host); err == nil { // fails for addresses, which stay as they are
		host = ascii
	}
	address := net.JoinHostPort(host, port)
	inner, err := l.place.connect(ctx, l.at, l.cfg.DialTimeout, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, l.reason(ctx, err))
	}
	c := &conn{Conn: inner, link: l}
	if !l.register(c) {
		inner.Close()
		return nil, transport.ErrClosed
	}
	c.stream = c
	if l.at.secure() {
		if c.stream, err = c.secure(ctx, host); err != nil {
			c.Close()
			return nil, fmt.Errorf("connecting to %s with TLS: %w", address, l.reason(ctx, err))
		}
	}
	c.limit.R = c.stream
	c.in = bufio.NewReader(&c.limit)
	return c, nil
}

// secure makes sure by TLS that the device is the one of that name.
func (c *conn) secure(ctx context.Context, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.link.cfg.DialTimeout)
	defer cancel()
	secured := tls.Client(c, &tls.Config{ServerName: host})
	err := secured.HandshakeContext(ctx)
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && string(plain.RecordHeader[:]) == "HTTP/" {
		err = errors.New("the device answers without TLS; use http in its URL")
	}
	return secured, err
}

// exchange sends a request and waits for the header of the response. If the context ends
// before the body of the response does, the connection is closed.
func (c *conn) exchange(ctx context.Context, out *http.Request) (*http.Response, error) {
	c.unwatch = context.AfterFunc(ctx, func() { c.Conn.Close() })
	failed := c.send(out)
	patience := c.link.cfg.ResponseTimeout
	if failed != nil {
		if !c.wrote {
			return nil, failed
		}
		patience = earlyTime
	}
	c.SetReadDeadline(time.Now().Add(patience)) // fails only on a closed conn, and then reading does
	response, err := c.receive(out)
	if err != nil {
		return nil, cmp.Or(failed, err)
	}
	c.SetReadDeadline(time.Time{})
	response.Body = &body{Reader: response.Body, conn: c, keep: failed == nil && !response.Close && !out.Close}
	return response, nil
}

// send sends a request.
func (c *conn) send(out *http.Request) error {
	c.wrote, c.heard = false, false
	c.text.Reset()
	if err := out.Write(&c.text); err != nil {
		return err
	}
	_, err := c.stream.Write(c.text.Bytes())
	if c.text.Cap() > maxHeader {
		c.text = bytes.Buffer{} // most requests are short
	}
	return err
}

// receive reads the header of a response.
func (c *conn) receive(out *http.Request) (*http.Response, error) {
	c.limit.N = maxHeader
	first, err := c.in.Peek(1)
	for err == nil && c.reused && (first[0] == '\r' || first[0] == '\n') { // follows the last response of some boards
		c.in.Discard(1)
		first, err = c.in.Peek(1)
	}
	if errors.Is(err, io.EOF) {
		err = errSilent
	}
	if err != nil {
		return nil, err
	}
	c.heard = true
	response, err := http.ReadResponse(c.in, out)
	for err == nil && response.StatusCode < http.StatusOK { // provisional; the limit ends this
		if response.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the device switches to another protocol")
		}
		response, err = http.ReadResponse(c.in, out)
	}
	if err != nil && c.limit.N <= 0 {
		err = fmt.Errorf("%w: header limit is %d bytes", transport.ErrTooLong, maxHeader)
	}
	c.limit.N = math.MaxInt64
	return response, err
}

// unused reports whether the connection is still open and nothing has arrived on it since the
// last response.
func (c *conn) unused() bool {
	if !quiet(c.Conn) {
		return false
	}
	if c.stream == net.Conn(c) {
		return true
	}
	c.SetReadDeadline(time.Unix(1, 0)) // reads only what TLS has received already
	_, err := c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// errSilent is why there is no response on a connection that the device closed.
var errSilent = errors.New("the device closed the connection without an answer")

// body is the body of a response. At its end, the connection is free for another request.
// If it is closed before, so is the connection.
type body struct {
	io.Reader
	conn *conn
	keep bool // the device keeps the connection
	once sync.Once
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.end(err == io.EOF && b.keep)
	}
	return n, err
}

func (b *body) Close() error {
	b.end(false)
	return nil
}

func (b *body) end(keep bool) {
	b.once.Do(func() {
		if open := b.conn.unwatch(); open && keep && b.conn.in.Buffered() == 0 {
			b.conn.link.tripper.idle.put(b.conn)
			return
		}
		b.conn.Close()
	})
}

func (c *conn) Write(p []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(maxWrite)) // fails only on a closed conn, and then Write does
	n, err := c.Conn.Write(p)
	if n > 0 || err == nil {
		c.wrote = true
	}
	return n, err
}

// Close closes the connection, with TLS too without a farewell: nobody waits for it.
func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
