// Package websocket accepts devices that connect with a WebSocket, such as voice toys
// with stock xiaozhi firmware.
//
//	request -> identify -> Accept  -> Credentials -> upgrade -> Register -> Link
//	           (headers)   (limits)                            (waits for Open)
//
// A Connector is the http.Handler of the path that devices connect to. An idle device
// costs a socket and the goroutine that reads it: the buffers of the HTTP server are
// released, and silence is measured by the read deadline.
//
// Config.Dial connects to a device that listens itself, for the transport that knows
// its URL.
package websocket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/inbound"
)

// Name is the name of the transport.
const Name = "ws"

// The channels of a Message. A Message without a channel is sent as text.
const (
	Text   = "text"
	Binary = "binary"
)

// Config configures a Connector.
type Config struct {
	// Inbound lists the protocols to try, and limits the connections.
	Inbound inbound.Config
	// MaxMessage is the length of the longest message in bytes.
	MaxMessage int
	// Ping is how long a device may be silent before it gets a ping, Pong how long it
	// has to answer.
	Ping, Pong time.Duration
	// Send bounds the time to send one message.
	Send time.Duration
	// TLS is used by Dial; nil for the defaults.
	TLS *tls.Config
}

// DefaultConfig accepts the longest message that stock firmware can send.
func DefaultConfig() Config {
	return Config{
		Inbound: inbound.DefaultConfig(), MaxMessage: 64 << 10,
		Ping: time.Minute, Pong: 15 * time.Second, Send: 5 * time.Second,
	}
}

// Check returns an error if the config is invalid.
func (c Config) Check() error {
	if err := c.Inbound.Check(); err != nil {
		return err
	}
	if c.MaxMessage < 1 {
		return fmt.Errorf("message: must be at least 1 byte, got %d", c.MaxMessage)
	}
	for name, d := range map[string]time.Duration{"ping": c.Ping, "pong": c.Pong, "send": c.Send} {
		if d <= 0 {
			return fmt.Errorf("%s: must be greater than 0, got %v", name, d)
		}
	}
	return nil
}

// Credentials checks the credentials of devices.
type Credentials interface {
	// Check is called before a device is answered. Address is the MAC that it
	// claims, such as 98:a3:16:f9:d9:34; clientID and token are what it sent, or
	// empty. Check returns an error to refuse the device: its credential is wrong,
	// revoked or another device's, or missing where one is required. Without an
	// error, a device that is not adopted connects as a stranger. Check may be called
	// concurrently and returns when ctx ends.
	Check(ctx context.Context, host netip.Addr, address, clientID, token string) (name string, adopted bool, err error)
}

// Connector is the transport.Connector for inbound WebSockets, and the http.Handler of
// the path that devices connect to.
type Connector struct {
	cfg      Config
	creds    Credentials
	registry *inbound.Registry
}

// New returns a Connector for a config that passed Check.
func New(cfg Config, creds Credentials, log *slog.Logger) *Connector {
	return &Connector{cfg: cfg, creds: creds, registry: inbound.New(Name, cfg.Inbound, log)}
}

// Watch reports each connected device, as a group of its own, until its link has ended.
// After Watch has returned, devices are refused.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	return c.registry.Watch(ctx, update)
}

// Drop ends the connection of an address, because its credential was revoked.
func (c *Connector) Drop(address string, reason error) { c.registry.Drop(address, reason) }

// ServeHTTP accepts a device, or refuses it with a status and a short text. The HTTP
// server must bound the size and duration of the request.
func (c *Connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := inbound.HostOf(r.RemoteAddr)
	address, err := c.serve(w, r, host)
	if err == nil {
		return
	}
	c.registry.LogRefusal(host, address, err)
	var refused refusal
	if !errors.As(err, &refused) {
		return // the connection no longer belongs to the server
	}
	switch refused.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "10")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Connection", "close")
	http.Error(w, refused.text, refused.status)
}

// refusal is the answer to a device that is not accepted.
type refusal struct {
	status int
	text   string
	err    error // for the log; nil if text says it all
}

func (r refusal) Error() string {
	if r.err != nil {
		return r.err.Error()
	}
	return r.text
}

// refusalStatus maps the errors of the registry to HTTP statuses.
var refusalStatus = map[error]int{
	inbound.ErrClosed:       http.StatusServiceUnavailable,
	inbound.ErrFull:         http.StatusServiceUnavailable,
	inbound.ErrHostFull:     http.StatusTooManyRequests,
	inbound.ErrTooOften:     http.StatusTooManyRequests,
	inbound.ErrAddressTaken: http.StatusConflict,
}

// checkTimeout bounds the check of a credential. Stock firmware waits ten seconds.
const checkTimeout = 5 * time.Second

func (c *Connector) serve(w http.ResponseWriter, r *http.Request, host netip.Addr) (address string, err error) {
	entry, err := c.registry.Accept(host)
	if err != nil {
		return "", refusal{status: refusalStatus[err], text: err.Error()}
	}
	defer func() {
		if err != nil {
			entry.Release()
		}
	}()
	who, err := identify(r)
	if err != nil {
		return "", err
	}
	if err := c.check(r, host, who, entry); err != nil {
		return who.address, err
	}
	conn, early, err := upgrade(w, r)
	if err != nil {
		return who.address, err
	}
	l := newLink(conn, &c.cfg, who, entry.Release)
	l.pending = early
	if err := entry.Register(l, l.closeWith); err != nil {
		l.closeWith(err)
		return who.address, err
	}
	return who.address, nil
}

// check checks the credential of a device and identifies it to the registry.
func (c *Connector) check(r *http.Request, host netip.Addr, who identity, entry *inbound.Conn) error {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	name, adopted, err := c.creds.Check(ctx, host, who.address, who.client, who.token)
	switch {
	case err != nil && ctx.Err() != nil:
		return refusal{http.StatusServiceUnavailable, "the gateway could not check the token in time", err}
	case err != nil && who.token == "":
		return refusal{http.StatusUnauthorized, "this gateway requires a token: Authorization: Bearer TOKEN", err}
	case err != nil:
		return refusal{http.StatusForbidden, "this token is not valid for this device", err}
	case !adopted && r.Header.Get("Origin") != "":
		// Otherwise any web page that the owner visits could connect as a device.
		return refusal{http.StatusForbidden, "a web page needs a token", nil}
	}
	if err := entry.Identify(inbound.Peer{Address: who.address, Name: name, Adopted: adopted}); err != nil {
		return refusal{status: refusalStatus[err], text: err.Error()}
	}
	return nil
}

// upgrade takes the connection from the HTTP server, with the bytes that the device has
// sent already. It keeps none of the server's buffers.
func upgrade(w http.ResponseWriter, r *http.Request) (net.Conn, []byte, error) {
	conn, rw, _, err := ws.HTTPUpgrader{Timeout: checkTimeout}.Upgrade(r, w)
	if err != nil {
		if conn == nil {
			return nil, nil, refusal{http.StatusInternalServerError, "this server does not support WebSockets", err}
		}
		conn.Close()
		return nil, nil, err
	}
	var early []byte
	if n := rw.Reader.Buffered(); n > 0 {
		early = make([]byte, n)
		io.ReadFull(rw.Reader, early) // it is buffered
	}
	return conn, early, nil
}
