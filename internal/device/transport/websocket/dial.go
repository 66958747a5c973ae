package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
)

// Dial opens a link to a device that listens itself. Its URL has the scheme ws or wss.
// The token, if not empty, is sent with the handshake. Address is that of the link, and
// dial makes the connection.
func (c Config) Dial(ctx context.Context, address, url, token string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (transport.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout) // the library's timeout covers only the connection
	defer cancel()
	header := make(http.Header)
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	dialer := ws.Dialer{
		Header:    ws.HandshakeHeaderHTTP(header),
		NetDial:   dial,
		TLSConfig: c.TLS,
		WrapConn:  func(conn net.Conn) net.Conn { return &handshake{Conn: conn, left: maxHandshake} },
	}
	conn, rest, _, err := dialer.Dial(ctx, url)
	if err != nil {
		var status ws.StatusError
		if errors.As(err, &status) {
			err = StatusError(status)
		}
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	l := newLink(conn.(*handshake).Conn, &c, identity{address: address}, func() {})
	l.client, l.decoder.client = true, true
	if rest != nil { // the device has sent data already
		l.pending = make([]byte, rest.Buffered())
		io.ReadFull(rest, l.pending) // it is buffered
		ws.PutReader(rest)
	}
	return l, nil
}

// StatusError is the error of Dial if the device answered with an HTTP status.
type StatusError int

func (e StatusError) Error() string {
	return fmt.Sprintf("the device refused the WebSocket: %d %s", int(e), http.StatusText(int(e)))
}

// The limits of a handshake.
const (
	handshakeTimeout = 10 * time.Second
	maxHandshake     = 64 << 10
)

// handshake limits the bytes of a handshake, which the library does not.
type handshake struct {
	net.Conn
	left int
}

func (h *handshake) Read(p []byte) (int, error) {
	if h.left <= 0 {
		return 0, fmt.Errorf("%w: handshake limit is %d bytes", transport.ErrTooLong, maxHandshake)
	}
	n, err := h.Conn.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}
