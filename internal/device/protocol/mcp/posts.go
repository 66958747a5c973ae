package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The headers of MCP.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	lastHeader    = "Last-Event-ID"
)

// maxSessionID is the length of the longest id that a session may have.
const maxSessionID = 1024

// posts brings messages over HTTP: each is a post.
type posts struct {
	session *session
	url     string
	carrier http.RoundTripper

	mu     sync.Mutex
	id     string    // of the session; empty if there is none
	echoes bool      // the device names it with every answer
	heard  time.Time // when the last answer came
	stream stream
}

func newPosts(s *session, h transport.HTTP) *posts {
	p := &posts{session: s, stream: stream{lane: make(chan struct{}, 1)}}
	p.url, p.carrier = h.HTTP()
	return p
}

// ask implements courier.
func (p *posts) ask(ctx context.Context, r request) (message, error) {
	answer, err := p.post(ctx, r)
	if err != nil {
		return message{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return p.unusual(r, answer)
	}
	if isStream(answer) {
		return p.follow(ctx, r, answer)
	}
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return message{}, &trouble{sent: true, err: err}
	}
	p.recognize(r.method, answer)
	for _, m := range decode(data) {
		if m.answers(r.id) {
			return m, nil
		}
		p.session.hear(ctx, m)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return message{}, &trouble{sent: true, err: fmt.Errorf("it took %s (%d) and gave no answer", r.method, answer.StatusCode)}
	}
	return message{}, &trouble{sent: true, err: fmt.Errorf("its answer to %s cannot be read", r.method)}
}

// post sends a message. A device that cannot be reached is gone: it is greeted again.
func (p *posts) post(ctx context.Context, r request) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, &trouble{err: err}
	}
	out.Close = !r.harmless
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Accept", "application/json, text/event-stream")
	p.identify(out, r.method, r.name)
	answer, err := p.carrier.RoundTrip(out)
	if err != nil {
		t := &trouble{sent: !errors.Is(err, transport.ErrUnsent), silent: ctx.Err() != nil, err: err}
		if ctx.Err() == nil {
			p.session.fail(err)
		}
		return nil, t
	}
	p.mu.Lock()
	p.heard = time.Now()
	p.mu.Unlock()
	return answer, nil
}

// identify says which session a request is of, and what it is about.
func (p *posts) identify(out *http.Request, method, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != "" {
		out.Header.Set(sessionHeader, p.id)
	}
	s := p.session
	if v := s.version(); v != "" {
		out.Header.Set(versionHeader, v)
	}
	if s.isModern() && method != "" {
		out.Header.Set(methodHeader, method)
		if name != "" {
			out.Header.Set(nameHeader, headerText(name))
		}
	}
}

// headerText is a text as it can stand in a header of MCP.
func headerText(text string) string {
	plain := strings.TrimSpace(text) == text && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	if plain && !strings.HasPrefix(text, "=?base64?") {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func isStream(r *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "text/event-stream"
}

// The reasons for which a device is greeted again.
var (
	errForgotten = errors.New("it has forgotten the session: it was restarted, or another program has begun one")
	errRestarted = errors.New("it names no session any more: it was restarted")
)

// recognize looks at which session an answer is of. Some boards take any session after
// a restart, and then name none.
func (p *posts) recognize(method string, answer *http.Response) {
	id := answer.Header.Get(sessionHeader)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.session.isModern():
	case method == "initialize":
		if len(id) <= maxSessionID {
			p.id = id
		}
	case id == p.id && id != "":
		p.echoes = true
	case id != "":
		p.session.fail(errForgotten)
	case p.echoes && !isStream(answer):
		p.session.fail(errRestarted)
	}
}

// unusual is what an answer means that is no success. If it has a JSON-RPC error with
// a meaning of its own, that is it.
func (p *posts) unusual(r request, answer *http.Response) (message, error) {
	data, _ := io.ReadAll(answer.Body) // what came of it is enough
	var failure message
	for _, m := range decode(data) {
		if m.answers(r.id) && m.err != nil {
			failure = m
		}
	}
	t := &trouble{sent: true, status: answer.StatusCode, err: statusError(answer.StatusCode, failure.err)}
	switch status := answer.StatusCode; {
	case status == http.StatusNotFound && p.sessionID() != "":
		p.session.fail(errForgotten)
		t.lost = true
		return message{}, t
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return message{}, t
	case status == http.StatusTooManyRequests:
		if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds <= 86400 {
			t.wait = time.Duration(seconds) * time.Second
		}
		return message{}, t
	case status < 400:
		t.err = fmt.Errorf("%w to %s, which is not followed: if that is right, it is the URL to give", t.err, ferrule.Clean(answer.Header.Get("Location"), 256))
		return message{}, t
	case failure.err != nil && (failure.err.refused() || status >= 500 || failure.id == r.id):
		return failure, nil // one without an id is about the request itself, and not about what it asks for
	}
	return message{}, t
}

func (p *posts) sessionID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// tell implements courier.
func (p *posts) tell(ctx context.Context, body []byte) error {
	answer, err := p.post(ctx, request{body: body})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return &trouble{sent: true, status: answer.StatusCode, err: statusError(answer.StatusCode, nil)}
	}
	return nil
}

// cancels implements courier: in the newer era the end of a connection is enough.
func (p *posts) cancels() bool { return !p.session.isModern() }

// frugal implements courier.
func (p *posts) frugal() bool { return true }

// farewellTime is how long a device may take to hear that it is left alone.
const farewellTime = time.Second

// farewell implements courier.
func (p *posts) farewell(ctx context.Context) {
	if p.sessionID() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.url, nil)
	if err != nil {
		return
	}
	out.Close = true
	p.identify(out, "", "")
	if answer, err := p.carrier.RoundTrip(out); err == nil {
		answer.Body.Close()
	}
}

// beat is how long a device is left alone at most: some forget a session after half a
// minute, and one that has lost power says nothing.
const (
	beat     = 20 * time.Second
	beatWait = 30 * time.Second
)

// run implements courier.
func (p *posts) run(ctx context.Context) error {
	if !p.session.isModern() {
		p.session.beside(func() { p.stream.run(ctx, p) })
	}
	ticker := time.NewTicker(beat / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := p.keepAlive(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// keepAlive asks whether the device is there, if nothing else has been asked lately, and
// whether it is still what it was. Whatever else it answers is an answer.
func (p *posts) keepAlive(ctx context.Context) error {
	p.mu.Lock()
	idle := time.Since(p.heard)
	p.mu.Unlock()
	s := p.session
	s.mu.Lock()
	busy := s.call != nil
	s.mu.Unlock()
	if busy || idle < beat-time.Second {
		return nil
	}
	method := "ping"
	if s.isModern() {
		method = "server/discover"
	}
	a, err := s.within(ctx, beatWait, method, nil)
	if t := (*trouble)(nil); errors.As(err, &t) && t.status > 0 || s.crowdedOut(err) {
		return nil
	}
	if err == nil && a.err == nil && s.isModern() {
		s.same(a.result)
	}
	return err
}
