// Package mcp is the grammar of devices that are MCP servers themselves: the
// standard protocol, in both of its eras, over HTTP and over any link of messages.
//
//	           ┌─ posts   HTTP: a request is a post, its answer the body or a stream
//	session ───┤
//	           └─ lines   a WebSocket or a line: a message is a message
//
// The greeting asks server/discover, as the newer era begins (2026-07-28: no
// sessions, each request says who asks), and initialize if that is not known
// (2024-11-05 to 2025-11-25). Then it reads every list, page by page.
//
// What boards do beyond the specification, and what is done about it here:
//
//   - One that was restarted takes any session and answers without naming one: where
//     it used to name it, that is how a restart is seen. Others answer 404.
//   - One of the newer era has no session. When what it tells of changes was interrupted,
//     it is asked what it is, and its lists are read.
//   - A session ends when another program begins one: the device is greeted again.
//   - An answer that takes long is a stream with an empty event, and has to be
//     fetched by its id.
//   - Streams begin with an event of an older transport, end every few minutes, or
//     are not there at all. All of that is no reason to greet it again.
//   - Requests that come too fast are refused, and it is not told for how long.
//   - Answers without a body, without an id, of another type than they say, and
//     capabilities of the wrong name are taken for what they are meant to be.
//
// A request is sent once. Whether any byte of it left is told by the link, and
// whether it may have run by what came back.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the dialect.
const Name = "mcp"

// Parts is what the dialect is made of.
type Parts struct {
	// Version is the gateway's, which devices are told.
	Version string
}

// Dialect greets devices that are MCP servers.
type Protocol struct {
	parts   Parts
	firstID func() int
}

// New makes the dialect. Ids begin anywhere, so that a late answer to a conversation
// before is not taken for one to this.
func New(p Parts) *Protocol {
	return &Protocol{parts: p, firstID: func() int { return 1 + rand.IntN(999) }}
}

// The versions of the protocol.
const (
	modern = "2026-07-28" // the first without sessions
	legacy = "2025-11-25" // what others are offered
	oldest = "2024-11-05" // what one speaks that names none
)

// How long is waited for what, in the greeting.
const (
	discoverWait   = 4 * time.Second // one that does not know it may say nothing at all
	initializeWait = 10 * time.Second
	initializeTry  = 2
	pageWait       = 20 * time.Second
)

// Greet implements dialect.Dialect.
func (d *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	s := newSession(d, link)
	manifest, err := s.greet(ctx)
	if err != nil {
		s.courier.farewell(ctx)
		s.work.Wait()
		return nil, nil, err
	}
	s.work.Wait()
	s.greeted = true
	return s, manifest, nil
}

func (s *session) greet(ctx context.Context) (*ferrule.Manifest, error) {
	about, err := s.introduce(ctx)
	if err != nil {
		return nil, err
	}
	s.able, s.about = about.Capabilities, about
	return s.describe(ctx, about)
}

// introduce finds out which era the device is of, and what it says of itself.
func (s *session) introduce(ctx context.Context) (server, error) {
	about, err := s.discover(ctx)
	if err == nil {
		return about, nil
	}
	if t := (*trouble)(nil); errors.As(err, &t) && t.final() {
		return server{}, err
	}
	if ctx.Err() != nil {
		return server{}, ctx.Err()
	}
	s.mu.Lock()
	s.failed = nil // how it took what it does not know is no matter
	s.mu.Unlock()
	return s.initialize(ctx)
}

// discover asks as the newer era does.
func (s *session) discover(ctx context.Context) (server, error) {
	s.speak(modern)
	a, err := s.within(ctx, discoverWait, "server/discover", nil)
	if err == nil && a.err != nil {
		err = a.err
	}
	if err != nil {
		s.speak("")
		return server{}, err
	}
	about, err := parseServer(a.result)
	if err == nil && !about.speaks(modern) {
		err = fmt.Errorf("it does not speak %s", modern)
	}
	if err != nil {
		s.speak("")
	}
	return about, err
}

// initialize asks as the older era does. A line may lose the first request, while a
// board boots.
func (s *session) initialize(ctx context.Context) (server, error) {
	params := map[string]any{"protocolVersion": legacy, "capabilities": abilities(anybody), "clientInfo": s.clientInfo()}
	var a message
	var err error
	for range initializeTry {
		a, err = s.within(ctx, initializeWait, "initialize", params)
		if t := (*trouble)(nil); !errors.As(err, &t) || !t.silent || ctx.Err() != nil {
			break
		}
	}
	switch t := (*trouble)(nil); {
	case ctx.Err() != nil && err != nil:
		return server{}, err
	case errors.As(err, &t) && t.foreign():
		return server{}, fmt.Errorf("%w: %w", protocol.ErrNotMine, err)
	case err != nil:
		return server{}, err
	case a.err != nil:
		return server{}, fmt.Errorf("%w: it refused initialize: %s", protocol.ErrNotMine, a.err)
	}
	about, err := parseServer(a.result)
	if err != nil {
		return server{}, fmt.Errorf("%w: its answer to initialize makes no sense: %w", protocol.ErrNotMine, err)
	}
	if about.Version == "" {
		about.Version = oldest
	}
	if about.Version > legacy || about.Version < oldest {
		return server{}, fmt.Errorf("it speaks version %s of MCP, which is not known here", ferrule.Clean(about.Version, 32))
	}
	s.speak(about.Version)
	if err := s.courier.tell(ctx, notification("notifications/initialized", nil)); err != nil {
		return server{}, fmt.Errorf("after initialize: %w", err)
	}
	return about, nil
}

// speak sets the version of the protocol.
func (s *session) speak(version string) { s.protocol.Store(&version) }

// version is that of the protocol; empty before it is known.
func (s *session) version() string {
	if v := s.protocol.Load(); v != nil {
		return *v
	}
	return ""
}

// isModern tells of which era the device is.
func (s *session) isModern() bool { return s.version() >= modern }

// within asks with a time limit of its own.
func (s *session) within(ctx context.Context, limit time.Duration, method string, params map[string]any) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.courier.ask(ctx, s.request(nil, method, "", params))
}
