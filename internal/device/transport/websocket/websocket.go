// Package websocket is the medium of devices that dial in with a WebSocket, such as
// voice toys with stock xiaozhi firmware.
//
//	request ─▶ who is it? ─▶ limits ─▶ credential ─▶ upgrade ─▶ waits for Open
//	           (headers)     (lobby)   (Credentials)            (lobby)
//
// A Connector is the handler of the path that they dial. An idle device costs a
// socket and the goroutine that reads it: what belongs to the HTTP server is let
// go of, and silence is measured by the deadline of that read.
//
// A device that listens itself is dialled by Config.Dial, for the medium that knows
// where it is.
package websocket

import (
	"context"
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

// Medium is the name of the medium.
const Name = "ws"

// The channels of a Message. One without a channel is sent as text.
const (
	Text   = "text"
	Binary = "binary"
)

// Config is what can be set about the medium.
type Config struct {
	// Lobby says which dialects to try, and bounds how many devices there are
	// and how often they come.
	Inbound inbound.Config
	// Message is the length of the longest message that is taken.
	MaxMessage int
	// Ping is after how much silence a device is asked whether it is still
	// there, and Pong how long it has to answer.
	Ping, Pong time.Duration
	// Send bounds one message to a device.
	Send time.Duration
}

// DefaultConfig takes as much in a message as stock firmware can send.
func DefaultConfig() Config {
	return Config{
		Inbound: inbound.DefaultConfig(), MaxMessage: 64 << 10,
		Ping: time.Minute, Pong: 15 * time.Second, Send: 5 * time.Second,
	}
}

// Check tells what is wrong with the config.
func (c Config) Check() error {
	if err := c.Inbound.Check(); err != nil {
		return err
	}
	if c.MaxMessage < 1 {
		return fmt.Errorf("message: want at least 1 byte, got %d", c.MaxMessage)
	}
	for name, d := range map[string]time.Duration{"ping": c.Ping, "pong": c.Pong, "send": c.Send} {
		if d <= 0 {
			return fmt.Errorf("%s: want more than nothing, got %v", name, d)
		}
	}
	return nil
}

// Credentials tells devices of the owner from others.
type Credentials interface {
	// Check is asked before a device is answered. Address is the MAC that it
	// claims, such as 98:a3:16:f9:d9:34; clientID and token are what it sent,
	// or empty. An error refuses the device: the credential is wrong, was
	// revoked or is another device's, or it is missing and strangers are not
	// welcome. Without one, a device that is not adopted comes in as a stranger.
	// Check may be called by many goroutines at once, and ends with ctx.
	Check(ctx context.Context, host netip.Addr, address, clientID, token string) (name string, adopted bool, err error)
}

// Connector is the wire.Connector of the medium, and the http.Handler of the
// path that devices dial.
type Connector struct {
	cfg      Config
	creds    Credentials
	registry *inbound.Registry
}

// New makes a Connector of a config that was checked.
func New(cfg Config, creds Credentials, log *slog.Logger) *Connector {
	return &Connector{cfg: cfg, creds: creds, registry: inbound.New(Name, cfg.Inbound, log)}
}

// Watch reports each device that has dialled in, as a group of its own, from when
// it waits until its link has ended. Devices are refused once it has returned.
func (c *Connector) Watch(ctx context.Context, update func(group string, all []transport.Sighting)) error {
	return c.registry.Watch(ctx, update)
}

// Drop ends the connection of an address, if there is one: its credential was
// revoked.
func (c *Connector) Drop(address string, why error) { c.registry.Drop(address, why) }

// ServeHTTP takes a device in, or refuses it with a status and a short text. That
// a request comes whole and in time is for the server to see to.
func (c *Connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := inbound.HostOf(r.RemoteAddr)
	address, err := c.serve(w, r, host)
	if err == nil {
		return
	}
	c.registry.LogRefusal(host, address, err)
	var no refusal
	if !errors.As(err, &no) {
		return // the connection is not the server's any more
	}
	switch no.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "10")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Connection", "close")
	http.Error(w, no.text, no.status)
}

// refusal is why a device was not taken, as it is told.
type refusal struct {
	status int
	text   string
	err    error // for the owner; nil if there is no more to say
}

func (r refusal) Error() string {
	if r.err != nil {
		return r.err.Error()
	}
	return r.text
}

// refusals are how what the lobby says is told.
var refusalStatus = map[error]int{
	inbound.ErrClosed:       http.StatusServiceUnavailable,
	inbound.ErrFull:         http.StatusServiceUnavailable,
	inbound.ErrHostFull:     http.StatusTooManyRequests,
	inbound.ErrTooOften:     http.StatusTooManyRequests,
	inbound.ErrAddressTaken: http.StatusConflict,
}

// checkTime bounds a check of a credential. Stock firmware waits for ten seconds.
const checkTimeout = 5 * time.Second

func (c *Connector) serve(w http.ResponseWriter, r *http.Request, host netip.Addr) (address string, err error) {
	place, err := c.registry.Accept(host)
	if err != nil {
		return "", refusal{status: refusalStatus[err], text: err.Error()}
	}
	defer func() {
		if err != nil {
			place.Release()
		}
	}()
	who, err := identify(r)
	if err != nil {
		return "", err
	}
	if err := c.check(r, host, who, place); err != nil {
		return who.address, err
	}
	conn, early, err := upgrade(w, r)
	if err != nil {
		return who.address, err
	}
	l := newLink(conn, &c.cfg, who, place.Release)
	l.pending = early
	if err := place.Register(l, l.closeWith); err != nil {
		l.closeWith(err)
		return who.address, err
	}
	return who.address, nil
}

// check asks whether a device may come in.
func (c *Connector) check(r *http.Request, host netip.Addr, who identity, place *inbound.Conn) error {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	name, adopted, err := c.creds.Check(ctx, host, who.address, who.client, who.token)
	switch {
	case err != nil && ctx.Err() != nil:
		return refusal{http.StatusServiceUnavailable, "the gateway could not check the token in time", err}
	case err != nil && who.token == "":
		return refusal{http.StatusUnauthorized, "this gateway wants a token: Authorization: Bearer TOKEN", err}
	case err != nil:
		return refusal{http.StatusForbidden, "this token is not valid for this device", err}
	case !adopted && r.Header.Get("Origin") != "":
		// Any page that its owner looks at could otherwise bring a browser here.
		return refusal{http.StatusForbidden, "a page in a browser needs a token", nil}
	}
	if err := place.Identify(inbound.Peer{Address: who.address, Name: name, Adopted: adopted}); err != nil {
		return refusal{status: refusalStatus[err], text: err.Error()}
	}
	return nil
}

// upgrade takes the connection from the HTTP server, and whatever the device has
// sent already. None of the server's buffers is kept.
func upgrade(w http.ResponseWriter, r *http.Request) (net.Conn, []byte, error) {
	conn, rw, _, err := ws.HTTPUpgrader{Timeout: checkTimeout}.Upgrade(r, w)
	if err != nil {
		if conn == nil {
			return nil, nil, refusal{http.StatusInternalServerError, "this server cannot be dialled with a WebSocket", err}
		}
		conn.Close()
		return nil, nil, err
	}
	var early []byte
	if n := rw.Reader.Buffered(); n > 0 {
		early = make([]byte, n)
		io.ReadFull(rw.Reader, early) // it is there
	}
	return conn, early, nil
}
