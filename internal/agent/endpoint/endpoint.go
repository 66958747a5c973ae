// Package endpoint lets voice agents use the fleet. It connects to a xiaozhi MCP endpoint,
// a broker where those agents look for tools, and serves MCP there.
//
//	agents ─▶ broker ─▶ socket ─▶ session ─▶ Server ─▶ pipeline
//	                    frames    ids, repeated initialize, message sizes
//
// One connection is one session of the Server, and the gateway sends initialize itself.
// Agents that are already at the broker do not initialize after a reconnect, and each new
// one initializes again while calls of others are in progress. When a connection breaks,
// its requests are cancelled and not answered. No call ever runs again.
//
// The URL contains a token, which never appears in logs, errors or status.
package endpoint

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Config is one endpoint.
type Config struct {
	// Name is its name; the journal shows its agents as endpoint:NAME.
	Name string
	// URL is its address, including the token.
	URL ferrule.Secret
	// Limit is the maximum size of a message to it, in bytes.
	Limit int
	// CA is a file with CA certificates; empty for those of the system.
	CA string
}

// DefaultLimit is the limit of the official endpoint.
const DefaultLimit = 8192

// Range of Limit. The result of initialize must fit.
const (
	minLimit = 4096
	maxLimit = 1 << 20
)

// Check returns the first problem of the config. The error does not contain the token.
func (c Config) Check() error {
	if err := ferrule.CheckID(c.Name); err != nil {
		return err
	}
	u, err := url.Parse(c.URL.Reveal())
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return errors.New("url: must be an address such as wss://api.xiaozhi.me/mcp/?token=TOKEN")
	}
	if c.Limit < minLimit || c.Limit > maxLimit {
		return fmt.Errorf("limit: must be from %d to %d, got %d", minLimit, maxLimit, c.Limit)
	}
	return nil
}

// Server serves MCP to one principal on a pair of streams, one message per line, until in
// ends; then calls in progress are cancelled. A page of a list has at most page bytes.
type Server interface {
	Serve(ctx context.Context, caller ferrule.Principal, page int, in io.ReadCloser, out io.WriteCloser) error
}

// Parts are what New needs.
type Parts struct {
	Config Config
	Server Server
	Log    *slog.Logger
}

// Endpoint serves agents at one endpoint.
type Endpoint struct {
	parts      Parts
	url        *url.URL
	roots      *x509.CertPool // nil for the CAs of the system
	dialSocket func(ctx context.Context) (*socket, error)

	mu                        sync.Mutex
	state                     State
	socket                    *socket // the current connection, or nil
	loggedLost, loggedRefused bool
}

// State is the state of a connection.
type State struct {
	Name string
	// Address is the URL without its secrets.
	Address   string
	Connected bool
	// Since is when Connected last changed.
	Since time.Time
	// Reason is why it is not connected.
	Reason string
}

// New returns an endpoint. Run connects it.
func New(p Parts) (*Endpoint, error) {
	if err := p.Config.Check(); err != nil {
		return nil, err
	}
	u, _ := url.Parse(p.Config.URL.Reveal()) // checked before
	e := &Endpoint{parts: p, url: u}
	e.dialSocket = e.dial
	e.state = State{
		Name: p.Config.Name, Address: u.Scheme + "://" + u.Host + u.EscapedPath(), Since: time.Now(),
		Reason: "not connected yet",
	}
	if p.Config.CA != "" {
		data, err := os.ReadFile(p.Config.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if e.roots = x509.NewCertPool(); !e.roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca: no certificate in %s", p.Config.CA)
		}
	}
	return e, nil
}

// Delay before a reconnect. It doubles from retryMin to retryMax, and starts over after a
// stable connection. After a refusal it is retryMax.
const (
	retryMin = time.Second
	retryMax = time.Minute
	stable   = time.Minute
)

// Run serves agents until ctx ends.
func (e *Endpoint) Run(ctx context.Context) error {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		begun := time.Now()
		err := e.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		e.lost(err)
		switch {
		case errors.Is(err, errRefused):
			wait = retryMax
		case time.Since(begun) >= stable:
			wait = retryMin
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return nil
		}
	}
}

// connect dials and serves until the connection breaks or ctx ends.
func (e *Endpoint) connect(ctx context.Context) error {
	s, err := e.dialSocket(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	stop := context.AfterFunc(ctx, s.closeNormally)
	defer stop()
	return e.serve(ctx, s)
}

// settling is how long a connection must last before it counts as connected: a broker may
// reject the token after the handshake.
const settling = 2 * time.Second

// serve serves agents on a connection until it breaks.
func (e *Endpoint) serve(ctx context.Context, s *socket) error {
	e.mu.Lock()
	e.socket = s
	e.mu.Unlock()
	settled := time.AfterFunc(settling, func() { e.connected(s) })
	defer settled.Stop()
	in, requests := io.Pipe()
	t := newSession(s, requests, e.parts.Config, e.parts.Log)
	caller := ferrule.Principal{Role: ferrule.Agent, Name: "endpoint:" + e.parts.Config.Name, Auth: ferrule.AuthEndpoint}
	ended := make(chan error, 1)
	go func() {
		err := e.parts.Server.Serve(ctx, caller, e.parts.Config.Limit-envelope, in, t)
		in.Close()
		t.Close()
		s.close()
		ended <- err
	}()
	err := t.run()
	requests.Close()
	s.close()
	if failed := <-ended; failed != nil && (errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)) {
		return failed // the server ended first
	}
	return err
}

// connected records a connection, unless it is already lost.
func (e *Endpoint) connected(s *socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.socket != s {
		return
	}
	e.loggedLost, e.loggedRefused = false, false
	e.state.Connected, e.state.Since, e.state.Reason = true, time.Now(), ""
	e.parts.Log.Info(fmt.Sprintf("endpoint %s: connected to %s", e.state.Name, e.state.Address))
}

// lost records a failed or broken connection. It logs the first one at warning level, and
// the first refusal.
func (e *Endpoint) lost(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reason, refused := e.redact(err.Error()), errors.Is(err, errRefused)
	log := e.parts.Log.Debug
	if !e.loggedLost || refused && !e.loggedRefused {
		log = e.parts.Log.Warn
	}
	log(fmt.Sprintf("endpoint %s: not connected to %s, retrying: %s", e.state.Name, e.state.Address, reason))
	e.loggedLost, e.loggedRefused = true, e.loggedRefused || refused
	if e.state.Connected {
		e.state.Since = time.Now()
	}
	e.socket, e.state.Connected, e.state.Reason = nil, false, reason
}

// State returns the current state.
func (e *Endpoint) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}
