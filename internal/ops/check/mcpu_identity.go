package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
)

// info is the result of get_info.
type info struct {
	Device   string `json:"device"`
	Version  string `json:"version"`
	Platform string `json:"platform"`
	PinCount *int   `json:"pin_count"`
	Profile  string `json:"memory_profile"`
}

// greetWaits are how long the answers to get_info are awaited after a connection was opened.
// A board that restarts is ready after about two seconds.
var greetWaits = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second}

// infoSize is the expected size of get_info and its answer.
const infoSize = 256

// greeting is how a board answered for the first time.
type greeting struct {
	reply
	attempts int
	took     time.Duration // since the connection was opened
}

// greet calls get_info until the board answers.
func (b *board) greet(ctx context.Context) (greeting, error) {
	began := time.Now()
	if b.baud > 0 {
		b.drain(ctx, 100*time.Millisecond, time.Second)
	}
	var ids []int
	var last reply
	for n, wait := range greetWaits {
		id, line := b.line("get_info", "")
		ids = append(ids, id)
		b.requests[id] = &request{sent: line, at: time.Now()}
		if err := b.stream.write(line); err != nil {
			break
		}
		r := b.awaitAny(ctx, ids, wait+b.lineTime(infoSize))
		if ctx.Err() != nil {
			return greeting{}, ctx.Err()
		}
		if r.outcome == answered {
			for _, id := range ids {
				b.requests[id].ignored = b.requests[id].answers == 0
				b.requests[id].given = true
			}
			attempts := n + 1
			if r.answer.id == ids[0] {
				attempts = 1
			}
			b.greeted = true
			b.greetings++
			return greeting{r, attempts, time.Since(began)}, nil
		}
		if r.outcome == mangled || last.sent == "" {
			last = r
		}
		if r.outcome == closed {
			break
		}
	}
	return greeting{}, b.unusable(ctx, last)
}

// unusable records why a board that does not answer get_info cannot be used.
func (b *board) unusable(ctx context.Context, last reply) error {
	s, _ := b.stream.counts()
	e := last.evidence()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case b.greetings > 0:
		b.find("mcpu.no-reconnect", e, "after the connection was opened again, get_info was not answered")
	case last.outcome == mangled:
		b.mangled(last)
		b.find("mcpu.no-answer", e, "no get_info was understood")
	case s.bytes > 0:
		e.received = b.bootText + string(s.tail)
		b.find("mcpu.not-mcpu", e, "%d bytes were received, and none was an answer to get_info%s", s.bytes, b.baudHint())
	default:
		b.find("mcpu.no-answer", e, "nothing was received%s", b.baudHint())
	}
	return errGiveUp
}

func (b *board) baudHint() string {
	if b.baud == 0 {
		return ""
	}
	return fmt.Sprintf(" at %d baud; the rate may be wrong (--baud)", b.baud)
}

// mangled records a correct request that the board did not understand.
func (b *board) mangled(r reply) {
	if r.errs[0].err.Code == jsonrpc.CodeInvalidRequest {
		b.find("mcpu.rejected-request", r.evidence(), "a correct request of %d bytes was answered with %d errors without its id", len(r.sent), len(r.errs))
		return
	}
	b.find("mcpu.fragments", r.evidence(), "a correct request of %d bytes in one write was answered with %d errors without its id", len(r.sent), len(r.errs))
}

// identity greets the board and judges what it says about itself.
func (b *board) identity(ctx context.Context) (string, error) {
	g, err := b.greet(ctx)
	if err != nil {
		return "", err
	}
	b.start(g)
	if err := b.parseInfo(g.reply); err != nil {
		return "", err
	}
	for range 2 {
		r := b.ask(ctx, "get_info", "", 2*time.Second)
		if r.outcome == answered && !bytes.Equal(r.result, g.result) {
			b.find("mcpu.changing-info", r.evidence(), "two answers to get_info differ: the first was %s", cutText(string(g.result)))
		}
	}
	text := fmt.Sprintf("%s %s, profile %q", b.info.Device, b.info.Version, b.info.Profile)
	return text, nil
}

// start judges what happened until the board answered for the first time.
func (b *board) start(g greeting) {
	e := evidence{"", b.bootText}
	printable := utf8.ValidString(b.bootText) && !strings.ContainsFunc(b.bootText, func(r rune) bool {
		return unicode.IsControl(r) && !unicode.IsSpace(r)
	})
	unfinished := b.bootText != "" && !strings.HasSuffix(b.bootText, "\n")
	switch {
	case b.bootText == "":
	case unfinished:
		b.find("mcpu.boot-noise", e, "the text before the first answer does not end with a line end")
	case !printable:
		b.find("mcpu.boot-noise", e, "the bytes before the first answer are not text")
	case b.baud == 0:
		b.find("mcpu.boot-noise", e, "the board sends text when a client connects")
	}
	switch {
	case b.baud == 0 && g.attempts > 1:
		b.find("mcpu.deaf-start", g.evidence(), "the first %d requests after connecting were lost; the board answered after %.1f s", g.attempts-1, g.took.Seconds())
	case g.took > 5*time.Second:
		b.find("mcpu.slow-start", g.evidence(), "the board answered %.1f s after its port was opened", g.took.Seconds())
	}
}

// parseInfo judges the result of get_info.
func (b *board) parseInfo(r reply) error {
	if r.err != nil {
		b.find("mcpu.bad-info", r.evidence(), "get_info was answered with an error: %s", r.err)
		return nil
	}
	if err := json.Unmarshal(r.result, &b.info); err != nil {
		b.find("mcpu.bad-info", r.evidence(), "the result of get_info is invalid: %s", jsonrpc.Reason(err))
	}
	for _, member := range []struct {
		name    string
		missing bool
	}{{"device", b.info.Device == ""}, {"version", b.info.Version == ""}, {"platform", b.info.Platform == ""}, {"pin_count", b.info.PinCount == nil}} {
		if member.missing {
			b.find("mcpu.bad-info", r.evidence(), "the result of get_info has no %s", member.name)
		}
	}
	b.report.Device, b.report.Version = b.info.Device, b.info.Version
	known := false
	b.profile, known = profiles[b.info.Profile]
	switch {
	case b.info.Profile == "":
		b.find("mcpu.no-profile", r.evidence(), "get_info has no memory_profile, so nobody knows how long a request may be")
	case !known:
		b.find("mcpu.unknown-profile", r.evidence(), "memory_profile is %q", cutText(b.info.Profile))
		b.profile = profiles["conservative"]
	}
	return nil
}
