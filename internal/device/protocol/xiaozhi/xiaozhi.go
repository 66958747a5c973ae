// Package xiaozhi is the protocol of xiaozhi-esp32 firmware: JSON-RPC as in MCP, inside
// an envelope among the other messages of a voice device.
//
//	→ {"type":"mcp","payload":{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"self.lamp.on"}}}
//	← {"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"true"}],"isError":false}}}
//
// The greeting:
//
//	hello ◀─▶ hello        first on a WebSocket; on MQTT only when the user speaks
//	initialize             tells the device where to upload pictures, returns its name
//	tools/list, in pages   returns its tools
//
// Firmware deviates from MCP. This package handles it as follows:
//
//   - It silently drops a request whose id is not a number or whose params are null:
//     ids are 32-bit numbers, params are an object or absent.
//   - Its errors have no code: their text shows whether the tool was tried. The text
//     is not escaped, so that the message may not be JSON. Then the id is searched
//     for, and the call fails at once.
//   - The session_id in its messages may be from a previous connection: it is ignored.
//   - A page of its tool list has less than 8000 bytes. A longer tool hides the tools
//     after it; the others are kept, with a note.
//   - It ignores unknown arguments: the schemas of its tools are closed here.
//   - It drops a WebSocket after two minutes without a message: the session sends one
//     in time that the device ignores.
//   - It does one thing at a time, and cannot cancel.
//
// Package provision has the HTTP handlers that devices need to find the gateway and to
// upload pictures.
package xiaozhi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the protocol.
const Name = "xiaozhi"

// Pictures receives the pictures of devices' cameras. *provision.Vision implements it.
type Pictures interface {
	// Offer returns the upload URL for the device at an address, and the token for
	// this connection. The URL is empty if pictures are not accepted.
	Offer(address string) (url, token string)
	// Await collects the pictures that arrive with a token during a call. Stop ends
	// that and returns them.
	Await(token string) (stop func() []ferrule.Content)
}

// Parts is what New needs.
type Parts struct {
	// Version is the version of the gateway, which devices are told.
	Version string
	// Pictures may be nil: then pictures are not accepted.
	Pictures Pictures
}

// Protocol greets devices with xiaozhi-esp32 firmware.
type Protocol struct {
	parts     Parts
	firstID   func() int
	sessionID func() string
	firstBeat func() time.Duration
}

// New returns the protocol. Ids start at random, so that a late answer to a previous
// connection, or to another client of the same device, does not match.
func New(p Parts) *Protocol {
	return &Protocol{
		parts:     p,
		firstID:   func() int { return 1 + mathrand.IntN(1<<30) },
		sessionID: rand.Text,
		firstBeat: func() time.Duration { return beat/2 + mathrand.N(beat/2) },
	}
}

// maxID is the largest id: firmware reads it as a C int.
const maxID = math.MaxInt32

// Timeouts of the greeting.
const (
	helloWait = 5 * time.Second // for the hello that a WebSocket starts with
	firstWait = 4 * time.Second // for an answer; doubled each time
	tries     = 3               // a booting device loses requests, a busy one delays them
)

// Greet implements protocol.Protocol.
func (p *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	s := newSession(p, link)
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
	g.hasMCP = true
	if err := s.send(ctx, initialized); err != nil {
		return nil, nil, err
	}
	if err := g.listTools(ctx, manifest); err != nil {
		return nil, nil, err
	}
	return s, manifest, nil
}

// greeting is the state before Run. One goroutine sends and receives.
type greeting struct {
	session *session
	hasMCP  bool // initialize was answered
	other   int  // messages received that were not an answer
}

var errNoMCP = fmt.Errorf("%w: firmware without MCP. Update it to xiaozhi 1.6.6 or newer", protocol.ErrNotMine)

// awaitHello waits for the device's hello. If there is none, the greeting continues.
func (g *greeting) awaitHello(ctx context.Context) error {
	_, err := g.await(ctx, helloWait, nil)
	if errors.Is(err, jsonrpc.ErrNoAnswer) {
		return nil
	}
	return err
}

// initialize returns a manifest with the device's name and version.
func (g *greeting) initialize(ctx context.Context) (*ferrule.Manifest, error) {
	s := g.session
	url := ""
	if p := s.protocol.parts.Pictures; p != nil {
		url, s.token = p.Offer(s.link.Info().Address)
	}
	a, err := g.ask(ctx, "initialize", initializeParams(s.protocol.parts.Version, url, s.token))
	switch {
	case errors.Is(err, jsonrpc.ErrNoAnswer) && g.other > 0:
		return nil, fmt.Errorf("%w: received %d messages, but no answer to initialize", protocol.ErrNotMine, g.other)
	case errors.Is(err, jsonrpc.ErrNoAnswer):
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

// ask sends a request until it is answered. An answer to an earlier try is as good.
func (g *greeting) ask(ctx context.Context, method string, params []byte) (answer, error) {
	var sent []int
	wait := firstWait
	for range tries {
		id := g.session.ids.Take()
		if err := g.session.send(ctx, request(id, method, params)); err != nil {
			return answer{}, err
		}
		sent = append(sent, id)
		a, err := g.await(ctx, wait, sent)
		if !errors.Is(err, jsonrpc.ErrNoAnswer) {
			return a, err
		}
		wait *= 2
	}
	return answer{}, jsonrpc.ErrNoAnswer
}

// await waits for an answer to one of the ids; without ids, for a hello.
func (g *greeting) await(ctx context.Context, wait time.Duration, sent []int) (answer, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m, err := g.session.link.Recv(waiting)
		switch {
		case errors.Is(err, transport.ErrTooLong):
			return answer{}, fmt.Errorf("the answer is too long: %w", err)
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return answer{}, jsonrpc.ErrNoAnswer
		case err != nil:
			return answer{}, err
		}
		msg := decode(m)
		switch msg.kind {
		case kindAnswer:
			if slices.Contains(sent, msg.answer.id) {
				return msg.answer, nil
			}
			g.session.note("dropped: answer %d has no request", msg.answer.id)
		case kindHello:
			if !msg.hello.mcp && !g.hasMCP {
				return answer{}, errNoMCP
			}
			if err := g.session.answerHello(ctx, msg.hello); err != nil || sent == nil {
				return answer{}, err
			}
		case kindPing:
			if err := g.session.send(ctx, pong); err != nil {
				return answer{}, err
			}
		default:
			g.other++
			g.session.ignore(msg)
		}
	}
}
