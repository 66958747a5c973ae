// Package oauth is the gateway's own small authorization server (OAuth 2.1), for people who
// have none. It lets agents in that want to log in rather than to be given a token.
//
//	agent ─▶ register, or a document on the web ─▶ client
//	browser ─▶ authorize ─▶ login ─▶ consent ─▶ code ─▶ agent
//	agent ─▶ token ─▶ grant with access and refresh tokens ─▶ Verify
//
// A grant is what a person permitted one program: scopes and devices. All tokens are opaque
// and stored as hashes. A grant belongs to the node where it was given: only that one
// refreshes its tokens. The other nodes accept them, and can revoke the grant.
package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/records"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/ratelimit"
)

// Config configures the server.
type Config struct {
	// Register reports whether programs may register themselves.
	Register bool
	// Documents reports whether programs may be known by a document on the web.
	Documents bool
	// Clients are programs that the owner registered.
	Clients []Client
}

// Client is a program that the owner registered. It has a secret, so it may do without PKCE.
type Client struct {
	ID        string
	Secret    ferrule.Secret
	Redirects []string
}

// minSecret is the minimum length of a client's secret.
const minSecret = 16

// Check returns what is wrong with the config. The error does not contain a secret.
func (c Config) Check() error {
	seen := make(map[string]bool)
	for i, client := range c.Clients {
		err := client.check()
		if err == nil && seen[client.ID] {
			err = errors.New("id: another client has it too")
		}
		if err != nil {
			return fmt.Errorf("clients[%d].%w", i, err)
		}
		seen[client.ID] = true
	}
	return nil
}

func (c Client) check() error {
	if err := ferrule.CheckID(c.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if n := len(c.Secret); n < minSecret {
		return fmt.Errorf("secret: has %d characters; minimum is %d", n, minSecret)
	}
	if len(c.Redirects) == 0 {
		return errors.New("redirects: must have the address to which the program wants its users sent back")
	}
	for _, uri := range c.Redirects {
		if err := checkOwnRedirect(uri); err != nil {
			return fmt.Errorf("redirects: %w", err)
		}
	}
	return nil
}

// Logins identifies the person at a browser.
type Logins interface {
	// Session returns the person who is logged in, and the token that a form must carry in
	// its field csrf. Otherwise it answers with a page to log in, which leads back to the
	// URL of the request, and returns false.
	Session(w http.ResponseWriter, r *http.Request) (who ferrule.Principal, csrf string, ok bool)
	// CSRF reports whether a form was sent from a page of this session.
	CSRF(r *http.Request) bool
}

// Device is a device that a person can choose for an agent.
type Device struct{ ID, Text string }

// Parts is what a server is built from.
type Parts struct {
	Config Config
	// File is the path of the file with clients and grants.
	File string
	Node string
	// Origin returns the URL of the gateway as the sender of a request knows it, without a
	// path.
	Origin func(*http.Request) string
	Logins Logins
	// Devices returns the devices that a person can choose from.
	Devices func(who ferrule.Principal) []Device
	// Record records what happened. It must not block for long.
	Record func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code)
	// Shared shows grants to the other nodes; nil if there are none.
	Shared records.Synced
	// Frame writes a page with a title and a body; nil writes only the body.
	Frame func(w io.Writer, title string, body template.HTML) error
	Log   *slog.Logger
}

// Server is the authorization server.
type Server struct {
	parts  Parts
	file   *records.File
	outbox *records.Outbox
	fetch  *fetcher

	fixed map[string]*client // that the owner registered, by ID

	// changing is held while anything changes, and while that is written to disk. It comes
	// before mu, which is held for moments: Verify must not wait for a disk.
	changing sync.Mutex
	mu       sync.RWMutex
	clients  map[string]*client // that registered themselves, by ID
	codes    map[hash]*code
	grants   map[string]*grant // of this node, by ID
	foreign  map[string]*grant // of other nodes, by ID
	access   map[hash]*access  // of all grants
	ended    map[hash]*access  // that grants had before, or that ended with them
	refresh  map[hash]*grant   // current and recent refresh tokens
	past     map[short]*grant  // refresh tokens that were replaced long ago
	used     map[hash]*grant   // by the code that they were made from
	gone     map[string]bool   // IDs of grants that have ended in this run
	synced   bool              // the grants of other nodes are known
	unheard  map[string]bool   // grants of an earlier run that other nodes may not know; guarded by changing

	limits   map[*endpoint]*ratelimit.Keyed[netip.Prefix] // by host
	register *ratelimit.Keyed[struct{}]                   // of all hosts
}

type (
	hash  [sha256.Size]byte
	short [8]byte
)

func hashOf(secret string) hash { return sha256.Sum256([]byte(secret)) }

func (h hash) short() short { return short(h[:8]) }

func (h hash) equals(other hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// Open reads clients and grants. The server must be closed.
func Open(p Parts) (*Server, error) {
	file, unreadable, err := records.Open(p.File)
	if err != nil {
		return nil, fmt.Errorf("opening the clients and grants of agents: %w", err)
	}
	if unreadable > 0 {
		p.Log.Warn("some agents must be let in again: their records are unreadable", "file", p.File, "lines", unreadable)
	}
	if p.Frame == nil {
		p.Frame = func(w io.Writer, _ string, body template.HTML) error {
			_, err := io.WriteString(w, string(body))
			return err
		}
	}
	s := &Server{
		parts: p, file: file, outbox: records.NewOutbox(), fetch: newFetcher(),
		fixed: make(map[string]*client), clients: make(map[string]*client), codes: make(map[hash]*code),
		grants: make(map[string]*grant), foreign: make(map[string]*grant), access: make(map[hash]*access), ended: make(map[hash]*access),
		refresh: make(map[hash]*grant), past: make(map[short]*grant), used: make(map[hash]*grant), unheard: make(map[string]bool),
		gone: make(map[string]bool), synced: p.Shared == nil,
		limits: make(map[*endpoint]*ratelimit.Keyed[netip.Prefix]), register: ratelimit.NewKeyed[struct{}](registerRate, 1),
	}
	for _, of := range []*endpoint{authorizeLimit, tokenLimit, registerLimit} {
		s.limits[of] = ratelimit.NewKeyed[netip.Prefix](of.rate, maxHosts)
	}
	for _, c := range p.Config.Clients {
		s.fixed[c.ID] = &client{ID: c.ID, Name: c.ID, Redirects: c.Redirects, secret: hashOf(c.Secret.Reveal()), confidential: true}
	}
	s.load(file.All())
	if p.Shared != nil {
		p.Shared.Watch(s.heard)
		p.Shared.OnSync(s.shareUnheard)
	}
	return s, nil
}

// Close closes the file.
func (s *Server) Close() error { return s.file.Close() }

// sweepEvery is how often what has expired is removed.
const sweepEvery = time.Minute

// Run removes what has expired and shares grants with other nodes, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	if s.parts.Shared != nil {
		wg.Go(func() { s.outbox.Run(ctx, s.parts.Shared, s.parts.Log) })
	}
	defer wg.Wait()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.sweep(now)
		case <-ctx.Done():
			return nil
		}
	}
}

// The paths of the server.
const (
	metadataPath  = "/.well-known/oauth-authorization-server"
	authorizePath = "/oauth/authorize"
	tokenPath     = "/oauth/token"
	registerPath  = "/oauth/register"
	revokePath    = "/oauth/revoke"
)

// Handle adds the server's paths to mux. They need no credential. Anybody may send requests
// to them, also pages of other sites; guard refuses those with a wrong Host.
func (s *Server) Handle(mux *http.ServeMux, guard func(http.Handler) http.Handler) {
	// Older agents put the path of the resource behind that of the metadata. OpenID's path is
	// not served: agents would look for more in its document than there is.
	for _, path := range []string{metadataPath, metadataPath + "/mcp", metadataPath + "/mcp/devices/{device}"} {
		mux.Handle(path, guard(anySite(http.MethodGet, s.serveMetadata)))
	}
	mux.Handle(tokenPath, guard(anySite(http.MethodPost, s.serveToken)))
	mux.Handle(registerPath, guard(anySite(http.MethodPost, s.serveRegister)))
	mux.Handle(revokePath, guard(anySite(http.MethodPost, s.serveRevoke)))
	mux.Handle(authorizePath, guard(http.HandlerFunc(s.serveAuthorize)))
}

// anySite lets pages of all sites use an endpoint that knows no cookies: agents in a browser
// are such pages.
func anySite(method string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Access-Control-Allow-Origin", "*")
		head.Set("X-Content-Type-Options", "nosniff")
		switch {
		case r.Method == method || method == http.MethodGet && r.Method == http.MethodHead:
			next(w, r)
		case r.Method == http.MethodOptions:
			head.Set("Access-Control-Allow-Methods", method)
			head.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
			w.WriteHeader(http.StatusNoContent)
		default:
			head.Set("Allow", method+", OPTIONS")
			answerError(w, http.StatusMethodNotAllowed, "invalid_request", "send a "+method+" request")
		}
	})
}

// endpoint is what a rate limit is for.
type endpoint struct {
	name string
	rate ratelimit.Rate
}

// The limits for each host: of requests for consent and tokens that are refused, and of all
// registrations. What is right is always served: behind a proxy, all programs have one
// address, and one of them must not lock out the others. A login takes one or two
// registrations.
var (
	authorizeLimit = &endpoint{"authorize", ratelimit.Rate{Burst: 60, Every: time.Second}}
	tokenLimit     = &endpoint{"token", ratelimit.Rate{Burst: 120, Every: 200 * time.Millisecond}}
	registerLimit  = &endpoint{"register", ratelimit.Rate{Burst: 20, Every: 10 * time.Second}}

	// registerRate limits the registrations of all hosts.
	registerRate = ratelimit.Rate{Burst: 100, Every: time.Second}
)

// maxHosts limits how many hosts are remembered for an endpoint. Those beyond it share one limit.
const maxHosts = 4096

// allow counts a request and reports whether it is within the limits of its host.
func (s *Server) allow(of *endpoint, r *http.Request) bool {
	now := time.Now()
	return s.limits[of].Take(mcphttp.HostOf(r.RemoteAddr), now) == 0 && (of != registerLimit || s.register.Take(struct{}{}, now) == 0)
}

// from returns the address of the sender of a request, without its port.
func from(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().String()
	}
	return ""
}
