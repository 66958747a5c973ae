package xiaozhi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// Timeouts of the firmware.
const (
	dialTimeout = 10 * time.Second // until a connection is answered
	sendTimeout = 10 * time.Second // until the system has accepted a message
)

// maxMessage is the length of the longest message that is received. Firmware is limited by its
// memory.
const maxMessage = 64 << 10

// ErrTooLong is returned for messages above 65535 bytes: firmware has no frame for them.
var ErrTooLong = errors.New("message too long, limit is 65535 bytes")

var errNoAnswer = errors.New("no answer within ten seconds")

// dial opens a connection, with TLS if secure is set.
func (d *Device) dial(ctx context.Context, address string, secure bool) (net.Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp4", address) // devices have no IPv6
	if err != nil || !secure {
		return conn, err
	}
	host, _, _ := net.SplitHostPort(address) // cannot fail after dialing
	secured := tls.Client(conn, &tls.Config{ServerName: host})
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// open opens a connection and calls greet, within dialTimeout.
func (d *Device) open(ctx context.Context, address string, secure bool, greet func(conn net.Conn) error) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNoAnswer)
	defer cancel()
	conn, err := d.dial(ctx, address, secure)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = greet(conn)
	if !stop() { // ctx has ended, and conn is closed
		return nil, context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// client returns an HTTP client like that of firmware: one connection per request.
func (d *Device) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: d.Dial, DisableKeepAlives: true}}
}

// asEOF returns io.EOF for a connection that was closed.
func asEOF(err error) error {
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) {
		return io.EOF
	}
	return err
}
