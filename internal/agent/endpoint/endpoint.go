// Package endpoint has voice agents use the fleet: it dials a xiaozhi MCP endpoint, a
// broker where those agents look for tools, and serves MCP there.
//
//	agents ─▶ broker ─▶ socket ─▶ talk ─▶ Server ─▶ the road
//	                    frames    ids, repeated greetings, sizes
//
// One connection is one session of the Server, greeted by us: an agent that is at the
// broker already greets nobody when a connection is made anew, and each that comes
// later greets once more, while calls of the others are under way. When a connection
// breaks, what came by it is cancelled and not answered; nothing is ever run again.
//
// The address has a token in it, which nobody is ever shown.
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
	// Name tells it apart from others: in the journal its agents are endpoint:NAME.
	Name string
	// URL is where it is, with the token.
	URL string
	// Limit is how many bytes a message to it may have.
	Limit int
	// CA is a file with the certificates of who signs its own; without one, those that
	// the system trusts.
	CA string
}

// DefaultLimit is what the official endpoint takes.
const DefaultLimit = 8192

// The bounds of Limit: below, a greeting would not fit.
const (
	minLimit = 4096
	maxLimit = 1 << 20
)

// Check tells what is wrong with the config, without telling the token.
func (c Config) Check() error {
	if err := ferrule.CheckID(c.Name); err != nil {
		return err
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return errors.New("url: want an address such as wss://api.xiaozhi.me/mcp/?token=TOKEN")
	}
	if c.Limit < minLimit || c.Limit > maxLimit {
		return fmt.Errorf("limit: want from %d to %d, got %d", minLimit, maxLimit, c.Limit)
	}
	return nil
}

// Server serves MCP: one agent as who, on a pair of streams with a message in each
// line, until in ends, with which calls that are under way are cancelled. The entries
// of a list take at most page bytes at once.
type Server interface {
	Serve(ctx context.Context, who ferrule.Principal, page int, in io.ReadCloser, out io.WriteCloser) error
}

// Parts is what an endpoint is made of.
type Parts struct {
	Config Config
	Server Server
	Log    *slog.Logger
}

// Endpoint serves agents at one endpoint.
type Endpoint struct {
	parts Parts
	url   *url.URL
	roots *x509.CertPool // nil for those of the system
	reach func(ctx context.Context) (*socket, error)

	mu     sync.Mutex
	state  State
	socket *socket // the connection of now; nil if there is none
	// That it is not connected, and that it is refused, has been logged.
	told, toldRefusal bool
}

// State is how it is with an endpoint.
type State struct {
	Name string
	// Address is the URL without its secrets.
	Address   string
	Connected bool
	// Since is when that began.
	Since time.Time
	// Why says why it is not connected.
	Why string
}

// New makes an endpoint. It dials when Run runs.
func New(p Parts) (*Endpoint, error) {
	if err := p.Config.Check(); err != nil {
		return nil, err
	}
	u, _ := url.Parse(p.Config.URL) // it was checked
	e := &Endpoint{parts: p, url: u}
	e.reach = e.dial
	e.state = State{
		Name: p.Config.Name, Address: u.Scheme + "://" + u.Host + u.EscapedPath(), Since: time.Now(),
		Why: "it has not been reached yet",
	}
	if p.Config.CA != "" {
		data, err := os.ReadFile(p.Config.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if e.roots = x509.NewCertPool(); !e.roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca: there is no certificate in %s", p.Config.CA)
		}
	}
	return e, nil
}

// How long to wait before an endpoint is dialled again: it doubles from min to max, and
// begins anew after a connection that has lasted. One that refuses us is dialled after
// max each time.
const (
	retryMin = time.Second
	retryMax = time.Minute
	lasting  = time.Minute
)

// Run serves agents until ctx ends.
func (e *Endpoint) Run(ctx context.Context) error {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		begun := time.Now()
		err := e.visit(ctx)
		if ctx.Err() != nil {
			return nil
		}
		e.lost(err)
		switch {
		case errors.Is(err, errRefused):
			wait = retryMax
		case time.Since(begun) >= lasting:
			wait = retryMin
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return nil
		}
	}
}

// visit dials, and serves until the connection breaks or ctx ends.
func (e *Endpoint) visit(ctx context.Context) error {
	s, err := e.reach(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	stop := context.AfterFunc(ctx, s.leave)
	defer stop()
	return e.serve(ctx, s)
}

// settling is how long a connection has to last before it is taken for one: a broker
// that does not like the token says so after the handshake.
const settling = 2 * time.Second

// serve serves agents on a connection until it breaks.
func (e *Endpoint) serve(ctx context.Context, s *socket) error {
	e.mu.Lock()
	e.socket = s
	e.mu.Unlock()
	settled := time.AfterFunc(settling, func() { e.connected(s) })
	defer settled.Stop()
	in, requests := io.Pipe()
	t := newTalk(s, requests, e.parts.Config, e.parts.Log)
	who := ferrule.Principal{Role: ferrule.Agent, Name: "endpoint:" + e.parts.Config.Name}
	ended := make(chan error, 1)
	go func() {
		err := e.parts.Server.Serve(ctx, who, e.parts.Config.Limit-envelope, in, t)
		in.Close()
		t.Close()
		s.close()
		ended <- err
	}()
	err := t.run()
	requests.Close()
	s.close()
	if failed := <-ended; failed != nil && (errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)) {
		return failed // it ended first
	}
	return err
}

// connected notes that there is a connection, if it is still that of now.
func (e *Endpoint) connected(s *socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.socket != s {
		return
	}
	e.told, e.toldRefusal = false, false
	e.state.Connected, e.state.Since, e.state.Why = true, time.Now(), ""
	e.parts.Log.Info(fmt.Sprintf("endpoint %s: connected to %s", e.state.Name, e.state.Address))
}

// lost notes that there is none. It is told once, and once more if it turns out to be a
// refusal.
func (e *Endpoint) lost(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	why, refused := e.hide(err.Error()), errors.Is(err, errRefused)
	tell := e.parts.Log.Debug
	if !e.told || refused && !e.toldRefusal {
		tell = e.parts.Log.Warn
	}
	tell(fmt.Sprintf("endpoint %s: not connected to %s; it is tried again. %s", e.state.Name, e.state.Address, why))
	e.told, e.toldRefusal = true, e.toldRefusal || refused
	if e.state.Connected {
		e.state.Since = time.Now()
	}
	e.socket, e.state.Connected, e.state.Why = nil, false, why
}

// State tells how it is.
func (e *Endpoint) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}
