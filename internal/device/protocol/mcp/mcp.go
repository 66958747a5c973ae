// Package mcp is the protocol of devices that are MCP servers themselves: the standard
// Model Context Protocol, over HTTP and over any link of messages.
//
//	           ┌─ httpConn      a request is a POST, its answer the body or a stream
//	session ───┤
//	           └─ messageConn   a WebSocket or a line: a message is a message
//
// Two families of protocol versions exist. Modern devices speak 2026-07-28: there are no
// sessions, and each request says who sends it. Legacy devices speak 2024-11-05 to
// 2025-11-25. The greeting tries server/discover, then initialize. Then it reads every
// list, page by page.
//
// Boards deviate from the specification. This package handles it as follows:
//
//   - After a restart, some accept any session and answer without a session id: if they
//     sent one before, this is how a restart is noticed. Others answer 404.
//   - A modern device has no session. After an interrupted subscription, it is asked
//     what it is, and its lists are read again.
//   - A session ends when another client starts one: the gateway reconnects.
//   - A slow answer is a stream with an empty event, and must be fetched by its id.
//   - Streams start with an event of an older transport, end every few minutes, or do
//     not exist. None of that is a reason to reconnect.
//   - Requests that are too fast are refused, without saying for how long.
//   - Answers without a body, without an id or of another type than declared, and
//     capabilities of the wrong name are accepted if their meaning is clear.
//
// A device may answer a call with a task: the call then has a job, and the device is asked for
// the outcome. Modern devices decide that themselves; legacy ones are asked for a task if the
// tool requires one.
//
// A request is sent once. The link says whether any byte of it left, and the answer
// whether it may have run.
package mcp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the protocol.
const Name = "mcp"

// Parts is what New needs.
type Parts struct {
	// Version is the version of the gateway, which devices are told.
	Version string
}

// Protocol greets devices that are MCP servers.
type Protocol struct {
	parts   Parts
	firstID func() int
}

// New returns the protocol. Ids start at random, so that a late answer to a previous
// session does not match.
func New(p Parts) *Protocol {
	return &Protocol{parts: p, firstID: func() int { return 1 + rand.IntN(999) }}
}

// maxID is the largest id of a request.
const maxID = math.MaxInt32

// The versions of MCP.
const (
	modern = "2026-07-28" // the first without sessions
	legacy = "2025-11-25" // offered to all others
	oldest = "2024-11-05" // assumed if a device names none
)

// Timeouts of the greeting.
const (
	discoverWait   = 4 * time.Second // a device may ignore an unknown method
	initializeWait = 10 * time.Second
	initializeTry  = 2
	pageWait       = 20 * time.Second
)

// Greet implements protocol.Protocol.
func (p *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	s := newSession(p, link)
	manifest, err := s.greet(ctx)
	if err != nil {
		s.conn.end(ctx)
		s.background.Wait()
		return nil, nil, err
	}
	s.background.Wait()
	s.greeted = true
	return s, manifest, nil
}

func (s *session) greet(ctx context.Context) (*ferrule.Manifest, error) {
	server, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	s.server = server
	return s.readLists(ctx)
}

// identify finds out which version the device speaks, and what it is.
func (s *session) identify(ctx context.Context) (server, error) {
	if s.link.Info().InitializeFirst {
		return s.initialize(ctx, 1)
	}
	about, err := s.discover(ctx)
	if err == nil {
		return about, nil
	}
	if e := asRequestError(err); e != nil && e.final() {
		return server{}, err
	}
	if ctx.Err() != nil {
		return server{}, ctx.Err()
	}
	s.mu.Lock()
	s.failed = nil // a legacy device may answer an unknown method in any way
	s.mu.Unlock()
	return s.initialize(ctx, initializeTry)
}

// discover greets a modern device.
func (s *session) discover(ctx context.Context) (server, error) {
	s.setVersion(modern)
	a, err := s.request(ctx, discoverWait, "server/discover", nil)
	if err == nil && a.Error != nil {
		err = a.Error
	}
	if err != nil {
		s.setVersion("")
		return server{}, err
	}
	about, err := parseServer(a.Result)
	if err == nil && !about.speaks(modern) {
		err = fmt.Errorf("it does not speak %s", modern)
	}
	if err != nil {
		s.setVersion("")
	}
	return about, err
}

// initialize greets a legacy device. A booting board may lose the first request.
func (s *session) initialize(ctx context.Context, tries int) (server, error) {
	params := map[string]any{"protocolVersion": legacy, "capabilities": clientCapabilities(allTargets), "clientInfo": s.clientInfo()}
	var a message
	var err error
	for range tries {
		a, err = s.request(ctx, initializeWait, "initialize", params)
		if e := asRequestError(err); e == nil || !e.silent || ctx.Err() != nil {
			break
		}
	}
	switch e := asRequestError(err); {
	case ctx.Err() != nil && err != nil:
		return server{}, err
	case e != nil && e.foreign():
		return server{}, fmt.Errorf("%w: %w", protocol.ErrNotMine, err)
	case err != nil:
		return server{}, err
	case a.Error != nil:
		return server{}, fmt.Errorf("%w: it refused initialize: %s", protocol.ErrNotMine, a.Error)
	}
	about, err := parseServer(a.Result)
	if err != nil {
		return server{}, fmt.Errorf("%w: invalid answer to initialize: %w", protocol.ErrNotMine, err)
	}
	if about.Version == "" {
		about.Version = oldest
	}
	if about.Version > legacy || about.Version < oldest {
		return server{}, fmt.Errorf("unknown MCP version %s", ferrule.Clean(about.Version, 32))
	}
	s.setVersion(about.Version)
	if err := s.conn.send(ctx, notification("notifications/initialized", nil)); err != nil {
		return server{}, fmt.Errorf("after initialize: %w", err)
	}
	return about, nil
}

func (s *session) setVersion(version string) { s.mcpVersion.Store(&version) }

// version returns the MCP version of the session; "" before it is known.
func (s *session) version() string {
	if v := s.mcpVersion.Load(); v != nil {
		return *v
	}
	return ""
}

// isModern reports whether the device speaks a version without sessions.
func (s *session) isModern() bool { return s.version() >= modern }

// request sends a request of the gateway's own, with its own timeout. It may be repeated.
func (s *session) request(ctx context.Context, timeout time.Duration, method string, params map[string]any) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := s.newRequest(nil, method, "", params)
	r.own, r.harmless = true, true
	return s.conn.exchange(ctx, r)
}
