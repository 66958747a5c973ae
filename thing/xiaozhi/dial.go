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

// How long things may take, as in firmware.
const (
	dialTime = 10 * time.Second // a connection, until it is answered
	sendTime = 10 * time.Second // a message, until the system has taken it
)

// maxMessage is the length of the longest message that is taken. Firmware takes
// what its memory holds.
const maxMessage = 64 << 10

// ErrTooLong is why a message was not sent: firmware has no frame for one of more
// than 65535 bytes.
var ErrTooLong = errors.New("the message has more than 65535 bytes, and cannot be sent")

var errNoAnswer = errors.New("there was no answer in ten seconds")

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
	host, _, _ := net.SplitHostPort(address) // it could be dialled
	secured := tls.Client(conn, &tls.Config{ServerName: host})
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// open opens a connection and has greet say who is there, within the time that
// firmware gives to both.
func (d *Device) open(ctx context.Context, address string, secure bool, greet func(conn net.Conn) error) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errNoAnswer)
	defer cancel()
	conn, err := d.dial(ctx, address, secure)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = greet(conn)
	if !stop() { // it is closed
		return nil, context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// client sends requests as firmware does: each over a connection of its own.
func (d *Device) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: d.Dial, DisableKeepAlives: true}}
}

// endOf is io.EOF for a connection that has ended as connections do.
func endOf(err error) error {
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) {
		return io.EOF
	}
	return err
}
