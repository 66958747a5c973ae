// Package mcpu is the grammar of MCP/U: JSON-RPC 2.0, one object a line, spoken
// by Arduino-class firmware over serial ports and TCP.
//
//	→ {"jsonrpc":"2.0","id":7,"method":"gpio_write","params":{"pin":2,"value":true}}
//	← {"result":{"pin":2,"name":"led","value":true},"jsonrpc":"2.0","id":7}
//
// A tool is a method; there is no session, no notification and no paging. The
// device is asked get_info, then list_tools. What firmware does beyond the
// specification, and what is done about it here:
//
//   - It takes ids that fit a C int, 16 bits wide on AVR: ids stay within
//     1..32767. It answers with id 0 to what it could not parse, so 0 is never
//     used, and an error with id 0 fails the request in flight at once.
//   - It reads what is waiting and dispatches that, be it a whole line or not:
//     a request is compact, goes out in one write, is never longer than the
//     board's buffer, and the next follows when the last has its outcome.
//   - Boot messages and debug prints come between answers, and glued to them:
//     an answer is looked for in every line.
//   - A list that was built with too little memory is valid and lacks entries:
//     it is compared with what get_info promised, and asked for again.
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
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Name is the name of the dialect.
const Name = "mcpu"

// Dialect greets boards that speak MCP/U.
type Protocol struct {
	firstID func() int
}

// New makes the dialect. A session's ids start anywhere in the first thousand,
// so that an answer to the session before it is not taken for one to this, and
// requests stay short.
func New() *Protocol {
	return &Protocol{firstID: func() int { return 1 + rand.IntN(999) }}
}

// How long is waited for what.
const (
	quiet      = 100 * time.Millisecond // silence in which the board gets over noise or a broken request
	boot       = time.Second            // for how long boot noise is listened to
	firstProbe = 250 * time.Millisecond // wait for get_info, beside the time on the line; doubled each time
	lastProbe  = 2 * time.Second
	probes     = 5
	listWait   = 5 * time.Second // wait for list_tools, beside the time on the line
	listTries  = 3
)

// infoSize is how many bytes of get_info and its answer are to be expected.
const infoSize = 256

// info is what get_info answers.
type info struct {
	Device   string `json:"device"`
	Version  string `json:"version"`
	Platform string `json:"platform"`
	PinCount *int   `json:"pin_count"`
	Profile  string `json:"memory_profile"`
}

// profile is what a memory profile means for its board. Firmware 1.0, and
// implementations that are not firmware, name none; they have no such limits.
type profile struct {
	line int // bytes of the longest request that is not cut; zero for any
	list int // bytes of the longest list to be expected
}

var profiles = map[string]profile{
	"rich":         {line: 511, list: 12 << 10},
	"conservative": {line: 255, list: 6 << 10},
	"low":          {line: 255, list: 3 << 10},
	"":             {list: 12 << 10},
}

// Greet implements dialect.Dialect.
func (d *Protocol) Greet(ctx context.Context, link transport.Link) (protocol.Session, *ferrule.Manifest, error) {
	g := &greeting{link: link, ids: ids{next: d.firstID()}}
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

// requestLimit is the longest request to send: boards that cut lines say so by
// naming a profile, and then the medium's own limit counts as well.
func requestLimit(p profile, info transport.Info) int {
	if p.line > 0 && info.SafeWrite > 0 {
		return min(p.line, info.SafeWrite)
	}
	return p.line
}

// greeting is the part of a conversation before there is a session: one
// goroutine asks and waits.
type greeting struct {
	link  transport.Link
	ids   ids
	heard int // bytes that came and were no answer
}

var (
	errNoAnswer = errors.New("no answer")
	errMangled  = errors.New("the board could not read the request")
	errCut      = errors.New("the answer came cut")
)

// drain reads noise until the line has been silent for a moment.
func (g *greeting) drain(ctx context.Context) error {
	for end := time.Now().Add(boot); time.Now().Before(end); {
		wait, cancel := context.WithTimeout(ctx, quiet)
		m, err := g.link.Recv(wait)
		cancel()
		g.heard += len(m.Data)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil
		}
		if err != nil && !errors.Is(err, transport.ErrTooLong) {
			return err
		}
	}
	return nil
}

// getInfo asks until the board answers: it may be booting, and deaf till then.
func (g *greeting) getInfo(ctx context.Context) (info, error) {
	var asked []int
	mangled := false
	wait, onLine := firstProbe, lineTime(infoSize, g.link.Info().BitRate)
	for range probes {
		id, err := g.send(ctx, "get_info")
		if err != nil {
			return info{}, err
		}
		asked = append(asked, id) // an answer to an earlier probe is as good
		a, err := g.await(ctx, wait+onLine, asked)
		switch {
		case errors.Is(err, errMangled):
			mangled = true
			if err := g.drain(ctx); err != nil {
				return info{}, err
			}
			continue
		case errors.Is(err, errNoAnswer), errors.Is(err, errCut):
			wait = min(2*wait, lastProbe)
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
			return info{}, fmt.Errorf("%w: its get_info makes no sense: %s", protocol.ErrNotMine, reason(err))
		}
		return about, nil
	}
	if mangled {
		return info{}, fmt.Errorf("asking for get_info %d times: %w", probes, errMangled)
	}
	return info{}, g.unanswered()
}

// unanswered says that there was no answer to get_info, and what may be why.
func (g *greeting) unanswered() error {
	silence := "no answer to get_info"
	if g.heard > 0 {
		silence = fmt.Sprintf("%d bytes came, and no answer to get_info", g.heard)
	}
	if rate := g.link.Info().BitRate; rate > 0 {
		silence += fmt.Sprintf(" at %d baud: wrong baud rate?", rate)
	}
	return fmt.Errorf("%w: %s", protocol.ErrNotMine, silence)
}

// send sends a request without parameters and returns its id, which is out of
// use until it is answered.
func (g *greeting) send(ctx context.Context, method string) (int, error) {
	id := g.ids.take()
	g.ids.giveUp(id)
	return id, g.link.Send(ctx, transport.Message{Data: request(id, method, nil)})
}

// await waits for an answer to one of the ids.
func (g *greeting) await(ctx context.Context, wait time.Duration, asked []int) (answer, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m, err := g.link.Recv(waiting)
		switch {
		case errors.Is(err, transport.ErrTooLong):
			return answer{}, fmt.Errorf("its answer is too long: %w", err)
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return answer{}, errNoAnswer
		case err != nil:
			return answer{}, err
		}
		answers := scan(m.Data)
		mangled := false
		for _, a := range answers {
			g.ids.answered(a.id)
			if slices.Contains(asked, a.id) {
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
			g.heard += len(m.Data)
			transport.Note(g.link, "noise: no answer in this line")
		}
	}
}
