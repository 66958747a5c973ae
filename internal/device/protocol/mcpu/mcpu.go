// Package mcpu is the MCP/U protocol: JSON-RPC 2.0, one object per line, as
// Arduino-class firmware speaks it over serial ports and TCP.
//
//	→ {"jsonrpc":"2.0","id":7,"method":"gpio_write","params":{"pin":2,"value":true}}
//	← {"result":{"pin":2,"name":"led","value":true},"jsonrpc":"2.0","id":7}
//
// Each tool is a method. There are no sessions, notifications or pages. The greeting
// calls get_info, then list_tools.
//
// Firmware deviates from the specification. This package handles it as follows:
//
//   - Ids must fit a C int, which has 16 bits on AVR: ids are 1..32767. The board
//     answers with id 0 if it could not parse a request, so 0 is never used, and an
//     error with id 0 fails the current request at once.
//   - The board parses whatever is in its buffer, even half a line: a request is
//     compact, is sent in one write, and fits the buffer. Only one is sent at a time.
//   - Boot messages and debug prints appear between answers and on the same line:
//     every line is searched for an answer.
//   - A list that ran out of memory is valid JSON and lacks entries: it is compared
//     with get_info, and requested again.
package mcpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the protocol.
const Name = "mcpu"

// Protocol greets boards that speak MCP/U.
type Protocol struct {
	firstID func() int
}

// New returns the protocol. The ids of a session start at random, so that a late
// answer to the previous session does not match. They start below 1000 to keep
// requests short.
func New() *Protocol {
	return &Protocol{firstID: func() int { return 1 + rand.IntN(999) }}
}

// Timeouts. Those of get_info and list_tools are added to the time on the line.
const (
	quiet     = 100 * time.Millisecond // silence after which the board is ready again
	boot      = time.Second            // how long to skip boot noise
	infoFirst = 250 * time.Millisecond // for the first get_info; doubled each time
	infoLast  = 2 * time.Second
	infoTries = 5
	listWait  = 5 * time.Second
	listTries = 3
)

// infoSize is the expected size of get_info and its answer in bytes.
const infoSize = 256

// info is the result of get_info.
type info struct {
	Device   string `json:"device"`
	Version  string `json:"version"`
	Platform string `json:"platform"`
	PinCount *int   `json:"pin_count"`
	Profile  string `json:"memory_profile"`
}

// profile is the limits of a memory profile. Firmware 1.0, and implementations that
// are not firmware, name none and have no limit.
type profile struct {
	line int // longest request in bytes that is not cut; 0 for no limit
	list int // longest expected list in bytes
}

var profiles = map[string]profile{
	"rich":         {line: 511, list: 12 << 10},
	"conservative": {line: 255, list: 6 << 10},
	"low":          {line: 255, list: 3 << 10},
	"":             {list: 12 << 10},
}

// Greet implements protocol.Protocol.
func (p *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	g := &greeting{link: link, ids: jsonrpc.IDs{Next: p.firstID(), Max: maxID}}
	if link.Info().BitRate > 0 {
		if err := g.drain(ctx); err != nil {
			return nil, nil, err
		}
	}
	about, err := g.getInfo(ctx)
	if err != nil {
		return nil, nil, err
	}
	prof, ok := profiles[about.Profile]
	if !ok {
		prof = profiles["conservative"]
	}
	manifest, err := g.listTools(ctx, about, prof)
	if err != nil {
		return nil, nil, err
	}
	return newSession(link, g.ids, requestLimit(prof, link.Info())), manifest, nil
}

// requestLimit returns the longest request to send in bytes; 0 for no limit. Only a
// board that names a profile cuts lines, and then the transport's limit counts too.
func requestLimit(p profile, info transport.Info) int {
	if p.line > 0 && info.SafeWrite > 0 {
		return min(p.line, info.SafeWrite)
	}
	return p.line
}

// greeting is the state before there is a session. One goroutine sends and receives.
type greeting struct {
	link  transport.Link
	ids   jsonrpc.IDs
	noise int // bytes received that were not an answer
}

var (
	errMangled = errors.New("the board could not parse the request")
	errCut     = errors.New("the answer was cut off")
)

// drain skips noise until the line is silent for a moment.
func (g *greeting) drain(ctx context.Context) error {
	for end := time.Now().Add(boot); time.Now().Before(end); {
		wait, cancel := context.WithTimeout(ctx, quiet)
		m, err := g.link.Recv(wait)
		cancel()
		g.noise += len(m.Data)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil
		}
		if err != nil && !errors.Is(err, transport.ErrTooLong) {
			return err
		}
	}
	return nil
}

// getInfo calls get_info until the board answers. A board that is booting does not.
func (g *greeting) getInfo(ctx context.Context) (info, error) {
	var sent []int
	mangled := false
	wait, onLine := infoFirst, lineTime(infoSize, g.link.Info().BitRate)
	for range infoTries {
		id, err := g.send(ctx, "get_info")
		if err != nil {
			return info{}, err
		}
		sent = append(sent, id) // an answer to an earlier request is as good
		a, err := g.await(ctx, wait+onLine, sent)
		switch {
		case errors.Is(err, errMangled):
			mangled = true
			if err := g.drain(ctx); err != nil {
				return info{}, err
			}
			continue
		case errors.Is(err, jsonrpc.ErrNoAnswer), errors.Is(err, errCut):
			wait = min(2*wait, infoLast)
			continue
		case errors.Is(err, transport.ErrTooLong):
			return info{}, fmt.Errorf("%w: %w", protocol.ErrNotMine, err)
		case err != nil:
			return info{}, err
		case a.err != nil:
			return info{}, fmt.Errorf("%w: it refused get_info: %s", protocol.ErrNotMine, a.err)
		}
		var about info
		if err := json.Unmarshal(a.result, &about); err != nil {
			return info{}, fmt.Errorf("%w: invalid answer to get_info: %s", protocol.ErrNotMine, jsonrpc.Reason(err))
		}
		return about, nil
	}
	if mangled {
		return info{}, fmt.Errorf("get_info failed %d times: %w", infoTries, errMangled)
	}
	return info{}, g.unanswered()
}

// unanswered returns the error for a board that never answered get_info.
func (g *greeting) unanswered() error {
	text := "no answer to get_info"
	if g.noise > 0 {
		text = fmt.Sprintf("received %d bytes, but no answer to get_info", g.noise)
	}
	if rate := g.link.Info().BitRate; rate > 0 {
		text += fmt.Sprintf(" at %d baud: wrong baud rate?", rate)
	}
	return fmt.Errorf("%w: %s", protocol.ErrNotMine, text)
}

// send sends a request without params. Its id is not used again until it is answered.
func (g *greeting) send(ctx context.Context, method string) (id int, err error) {
	id = g.ids.Take()
	g.ids.Abandon(id)
	return id, g.link.Send(ctx, transport.Message{Data: request(id, method, nil)})
}

// await waits for an answer to one of the ids.
func (g *greeting) await(ctx context.Context, wait time.Duration, sent []int) (answer, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m, err := g.link.Recv(waiting)
		switch {
		case errors.Is(err, transport.ErrTooLong):
			return answer{}, fmt.Errorf("the answer is too long: %w", err)
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return answer{}, jsonrpc.ErrNoAnswer
		case err != nil:
			return answer{}, err
		}
		answers := scan(m.Data)
		mangled := false
		for _, a := range answers {
			g.ids.Late(a.id)
			if slices.Contains(sent, a.id) && !a.empty() { // an empty one is as good as none
				return a, nil
			}
			mangled = mangled || a.mangled()
		}
		switch {
		case mangled:
			return answer{}, errMangled
		case looksCut(m.Data, answers):
			return answer{}, errCut
		case len(answers) == 0:
			g.noise += len(m.Data)
			transport.Note(g.link, "noise: no answer in this line")
		}
	}
}
