// Package xiaozhi is the grammar of xiaozhi-esp32 firmware: JSON-RPC as in MCP,
// in an envelope beside what a voice device says otherwise.
//
//	→ {"type":"mcp","payload":{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"self.lamp.on"}}}
//	← {"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"true"}],"isError":false}}}
//
// The greeting, on a WebSocket and on MQTT:
//
//	hello ◀─▶ hello        a WebSocket begins with it; MQTT has it when somebody speaks
//	initialize             where pictures go, who the device is
//	tools/list, in pages   what it can do
//
// What firmware does beyond MCP, and what is done about it here:
//
//   - It drops a request without a word if its id is no number or its params are
//     null: ids are numbers that fit 32 bits, params are an object or left out.
//   - Its errors have no code, so that their text decides whether a tool was
//     tried; and the text is not escaped, so that the whole message may be no
//     JSON: then the id is looked for, and the call fails at once.
//   - The session_id in what it says may be that of a connection before: it is
//     never looked at.
//   - A page of its list ends before 8000 bytes. A tool that is longer than that
//     hides those behind it; what can be had is kept, with a note.
//   - It ignores arguments that it does not know, so the schemas of its tools are
//     closed here.
//   - It takes a WebSocket for dead after two minutes without a message: one that
//     it drops silently is sent in time.
//   - It does one thing at a time, and cannot be told to stop.
//
// Its devices need two HTTP handlers beside: [OTA], which tells them where to
// connect and with what, and [Vision], which takes the pictures of their cameras.
package xiaozhi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the dialect.
const Name = "xiaozhi"

// Pictures is where devices send what their cameras see. *Vision is one.
type Pictures interface {
	// Offer tells where the device at an address sends pictures, and the token
	// that it shows there; an empty URL if nowhere. The token is this
	// connection's alone.
	Offer(address string) (url, token string)
	// Await keeps the pictures that come with a token, for the call that is under
	// way, until stop is called, which returns them.
	Await(token string) (stop func() []ferrule.Content)
}

// Parts is what the dialect is made of.
type Parts struct {
	// Version is the gateway's, which devices are told.
	Version string
	// Pictures takes the pictures of cameras; nil if nobody does.
	Pictures Pictures
}

// Dialect greets devices that speak as xiaozhi-esp32 does.
type Protocol struct {
	parts     Parts
	firstID   func() int32
	sessionID func() string
	firstBeat func() time.Duration
}

// New makes the dialect. Ids begin anywhere, so that an answer to a connection
// before, or to another client where devices answer all at once, is not taken for
// one to this.
func New(p Parts) *Protocol {
	return &Protocol{
		parts:     p,
		firstID:   func() int32 { return 1 + mathrand.Int32N(1<<30) },
		sessionID: rand.Text,
		firstBeat: func() time.Duration { return beat/2 + mathrand.N(beat/2) },
	}
}

// How long is waited for what.
const (
	helloWait = 5 * time.Second // for the hello that a WebSocket begins with
	firstWait = 4 * time.Second // for an answer; doubled each time
	tries     = 3               // a request is lost while a device boots, and waits while a tool runs
)

// Greet implements dialect.Dialect.
func (d *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	s := newSession(d, link)
	g := &greeting{session: s}
	if link.Info().Transport == "ws" {
		if err := g.awaitHello(ctx); err != nil {
			return nil, nil, err
		}
	}
	manifest, err := g.initialize(ctx)
	if err != nil {
		return nil, nil, err
	}
	g.known = true
	if err := s.send(ctx, initialized); err != nil {
		return nil, nil, err
	}
	if err := g.listTools(ctx, manifest); err != nil {
		return nil, nil, err
	}
	return s, manifest, nil
}

// greeting is the part of a conversation before Run: one goroutine asks and
// waits.
type greeting struct {
	session *session
	known   bool // that the device speaks MCP
	heard   int  // messages that came and were no answer
}

var (
	errNoAnswer = errors.New("no answer")
	errNoMCP    = fmt.Errorf("%w: its firmware has no MCP: update it to xiaozhi 1.6.6 or newer", protocol.ErrNotMine)
)

// awaitHello waits for the device to speak first. One that does not is asked all
// the same.
func (g *greeting) awaitHello(ctx context.Context) error {
	_, err := g.await(ctx, helloWait, nil)
	if errors.Is(err, errNoAnswer) {
		return nil
	}
	return err
}

// initialize asks who the device is.
func (g *greeting) initialize(ctx context.Context) (*ferrule.Manifest, error) {
	s := g.session
	url := ""
	if p := s.dialect.parts.Pictures; p != nil {
		url, s.token = p.Offer(s.link.Info().Address)
	}
	a, err := g.ask(ctx, "initialize", initializeParams(s.dialect.parts.Version, url, s.token))
	switch {
	case errors.Is(err, errNoAnswer) && g.heard > 0:
		return nil, fmt.Errorf("%w: %d messages came, and no answer to initialize", protocol.ErrNotMine, g.heard)
	case errors.Is(err, errNoAnswer):
		return nil, fmt.Errorf("%w: no answer to initialize", protocol.ErrNotMine)
	case errors.Is(err, transport.ErrTooLong):
		return nil, fmt.Errorf("%w: %w", protocol.ErrNotMine, err)
	case err != nil:
		return nil, err
	case a.err != nil:
		return nil, fmt.Errorf("%w: it refused initialize: %s", protocol.ErrNotMine, a.err)
	}
	return parseServer(a.result)
}

// ask asks until there is an answer; one to an earlier asking is as good.
func (g *greeting) ask(ctx context.Context, method string, params []byte) (answer, error) {
	var asked []int32
	wait := firstWait
	for range tries {
		id := g.session.ids.take()
		if err := g.session.send(ctx, request(id, method, params)); err != nil {
			return answer{}, err
		}
		asked = append(asked, id)
		a, err := g.await(ctx, wait, asked)
		if !errors.Is(err, errNoAnswer) {
			return a, err
		}
		wait *= 2
	}
	return answer{}, errNoAnswer
}

// await waits for an answer to one of the ids; without any, for a hello.
func (g *greeting) await(ctx context.Context, wait time.Duration, asked []int32) (answer, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m, err := g.session.link.Recv(waiting)
		switch {
		case errors.Is(err, transport.ErrTooLong):
			return answer{}, fmt.Errorf("its answer is too long: %w", err)
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return answer{}, errNoAnswer
		case err != nil:
			return answer{}, err
		}
		said := decode(m)
		switch said.sort {
		case sortAnswer:
			if slices.Contains(asked, said.answer.id) {
				return said.answer, nil
			}
			g.session.note("dropped: nobody asked for answer %d", said.answer.id)
		case sortHello:
			if !said.hello.mcp && !g.known {
				return answer{}, errNoMCP
			}
			if err := g.session.answerHello(ctx, said.hello); err != nil || asked == nil {
				return answer{}, err
			}
		case sortPing:
			if err := g.session.send(ctx, pong); err != nil {
				return answer{}, err
			}
		default:
			g.heard++
			g.session.ignore(said)
		}
	}
}
