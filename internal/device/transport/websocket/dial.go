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

// Dial opens a link to a device that listens for a WebSocket itself. Its URL begins
// with ws or wss, and the token goes with the handshake, if there is one. Address is
// that of the link, and dial makes the connection.
func (c Config) Dial(ctx context.Context, address, url, token string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (transport.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout) // that of the library ends with the connection
	defer cancel()
	header := make(http.Header)
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	dialer := ws.Dialer{
		Header:   ws.HandshakeHeaderHTTP(header),
		NetDial:  dial,
		WrapConn: func(conn net.Conn) net.Conn { return &handshake{Conn: conn, left: maxHandshake} },
	}
	conn, rest, _, err := dialer.Dial(ctx, url)
	if err != nil {
		var status ws.StatusError
		if errors.As(err, &status) {
			err = fmt.Errorf("the device refuses a WebSocket: %d %s", status, http.StatusText(int(status)))
		}
		return nil, fmt.Errorf("dialling %s: %w", url, err)
	}
	l := newLink(conn.(*handshake).Conn, &c, identity{address: address}, func() {})
	l.client, l.decoder.client = true, true
	if rest != nil { // the device has spoken already
		l.pending = make([]byte, rest.Buffered())
		io.ReadFull(rest, l.pending) // it is there
		ws.PutReader(rest)
	}
	return l, nil
}

// What a handshake is held to.
const (
	handshakeTimeout = 10 * time.Second
	maxHandshake     = 64 << 10
)

// handshake is a connection during its handshake, in which the library bounds nothing.
type handshake struct {
	net.Conn
	left int
}

func (h *handshake) Read(p []byte) (int, error) {
	if h.left <= 0 {
		return 0, fmt.Errorf("%w: the device answers the handshake with more than %d bytes", transport.ErrTooLong, maxHandshake)
	}
	n, err := h.Conn.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}
