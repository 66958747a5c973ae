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

// The HTTP headers of MCP.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	lastHeader    = "Last-Event-ID"
)

// maxSessionID is the length of the longest session id.
const maxSessionID = 1024

// httpConn is a conn over HTTP: each message is a POST.
type httpConn struct {
	session *session
	url     string
	client  http.RoundTripper

	mu       sync.Mutex
	id       string    // of the session; "" if there is none
	echoes   bool      // the device repeats the session id in each response
	answered time.Time // last response
	stream   stream
}

func newHTTPConn(s *session, h transport.HTTP) *httpConn {
	c := &httpConn{session: s, stream: stream{lane: make(chan struct{}, 1)}}
	c.url, c.client = h.HTTP()
	return c
}

// exchange implements conn.
func (c *httpConn) exchange(ctx context.Context, r request) (message, error) {
	response, err := c.post(ctx, r)
	if err != nil {
		return message{}, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return c.unsuccessful(r, response)
	}
	if isStream(response) {
		return c.readAnswer(ctx, r, response)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return message{}, &requestError{sent: true, err: err}
	}
	c.checkSession(r.method, response)
	for _, m := range decode(data) {
		if m.answers(r.id) {
			return m, nil
		}
		c.session.receive(ctx, m)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return message{}, &requestError{sent: true, err: fmt.Errorf("empty answer to %s, HTTP status %d", r.method, response.StatusCode)}
	}
	return message{}, &requestError{sent: true, err: fmt.Errorf("invalid answer to %s", r.method)}
}

// post sends a message. If the device is not reachable, the session ends.
func (c *httpConn) post(ctx context.Context, r request) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, &requestError{err: err}
	}
	out.Close = r.lasts
	if r.own {
		out.Header["Idempotency-Key"] = nil // see transport.HTTP
	}
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Accept", "application/json, text/event-stream")
	c.setHeaders(out, r.method, r.name)
	response, err := c.client.RoundTrip(out)
	if err != nil {
		e := &requestError{sent: !errors.Is(err, transport.ErrUnsent), silent: ctx.Err() != nil, err: err}
		if ctx.Err() == nil {
			c.session.fail(err)
		}
		return nil, e
	}
	c.mu.Lock()
	c.answered = time.Now()
	c.mu.Unlock()
	return response, nil
}

// setHeaders sets the MCP headers of a request.
func (c *httpConn) setHeaders(out *http.Request, method, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != "" {
		out.Header.Set(sessionHeader, c.id)
	}
	s := c.session
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

// headerText returns a text as the value of an MCP header.
func headerText(text string) string {
	plain := strings.TrimSpace(text) == text && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	if plain && !strings.HasPrefix(text, "=?base64?") {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func isStream(r *http.Response) bool {
	typ, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return typ == "text/event-stream"
}

// The reasons for a reconnect.
var (
	errSessionLost = errors.New("it does not know the session: it was restarted, or another client connected")
	errRestarted   = errors.New("it was restarted: its answers no longer have a session id")
)

// checkSession compares the session id of a response. After a restart, some boards
// accept any session and send no id.
func (c *httpConn) checkSession(method string, response *http.Response) {
	id := response.Header.Get(sessionHeader)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.session.isModern():
	case method == "initialize":
		if len(id) <= maxSessionID {
			c.id = id
		}
	case id == c.id && id != "":
		c.echoes = true
	case id != "":
		c.session.fail(errSessionLost)
	case c.echoes && !isStream(response):
		c.session.fail(errRestarted)
	}
}

// unsuccessful returns what an HTTP error means. A JSON-RPC error in the body takes
// precedence if it is more specific.
func (c *httpConn) unsuccessful(r request, response *http.Response) (message, error) {
	data, _ := io.ReadAll(response.Body) // a part of it is enough
	var failure message
	for _, m := range decode(data) {
		if m.answers(r.id) && m.Error != nil {
			failure = m
		}
	}
	e := &requestError{sent: true, status: response.StatusCode, err: statusError(response.StatusCode, failure.Error)}
	switch status := response.StatusCode; {
	case status == http.StatusNotFound && c.sessionID() != "":
		c.session.fail(errSessionLost)
		e.lost = true
		return message{}, e
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return message{}, e
	case status == http.StatusTooManyRequests:
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds <= 86400 {
			e.wait = time.Duration(seconds) * time.Second
		}
		return message{}, e
	case status < 400:
		e.err = fmt.Errorf("%w to %s. Redirects are not followed: if it is the right address, set it as the URL", e.err, ferrule.Clean(response.Header.Get("Location"), 256))
		return message{}, e
	case failure.Error != nil && (refused(failure.Error) || status >= 500 || failure.id == r.id):
		return failure, nil // without an id, the error is about the HTTP request
	}
	return message{}, e
}

func (c *httpConn) sessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// send implements conn.
func (c *httpConn) send(ctx context.Context, body []byte) error {
	response, err := c.post(ctx, request{body: body})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return &requestError{sent: true, status: response.StatusCode, err: statusError(response.StatusCode, nil)}
	}
	return nil
}

// mustCancel implements conn: for a modern device, closing the connection is enough.
func (c *httpConn) mustCancel() bool { return !c.session.isModern() }

// connPerRequest implements conn.
func (c *httpConn) connPerRequest() bool { return true }

// endTime limits how long ending a session may take.
const endTime = time.Second

// end implements conn.
func (c *httpConn) end(ctx context.Context) {
	if c.sessionID() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.url, nil)
	if err != nil {
		return
	}
	out.Close = true
	c.setHeaders(out, "", "")
	if response, err := c.client.RoundTrip(out); err == nil {
		response.Body.Close()
	}
}

// beat is the longest time without a request. Some devices drop a session after half a
// minute, and one that lost power is noticed this way.
const (
	beat     = 20 * time.Second
	beatWait = 30 * time.Second
)

// run implements conn.
func (c *httpConn) run(ctx context.Context) error {
	if !c.session.isModern() {
		c.session.inBackground(func() { c.stream.run(ctx, c) })
	}
	ticker := time.NewTicker(beat / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := c.keepAlive(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// The check of a session before a call that must not be sent twice.
const (
	maxUnchecked = time.Second // a device takes longer to restart
	checkWait    = 2 * time.Second
)

// checkAlive checks a session that was idle. A device that was restarted would reject
// the call, and the call could not be sent again. The error means that the session has
// ended and that the call was not sent.
func (c *httpConn) checkAlive(ctx context.Context) error {
	c.mu.Lock()
	unchecked := c.id != "" && time.Since(c.answered) > maxUnchecked
	c.mu.Unlock()
	if !unchecked {
		return nil
	}
	_, err := c.session.request(ctx, checkWait, "ping", nil)
	if e := asRequestError(err); e != nil && (e.lost || e.status == 0 && !e.silent) {
		return &requestError{err: e.err}
	}
	return nil // it answers, in whatever way, or is busy
}

// keepAlive checks an idle device: it must answer, in whatever way, and a modern one must
// be the same as before.
func (c *httpConn) keepAlive(ctx context.Context) error {
	c.mu.Lock()
	idle := time.Since(c.answered)
	c.mu.Unlock()
	s := c.session
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
	a, err := s.request(ctx, beatWait, method, nil)
	if e := asRequestError(err); e != nil && e.status > 0 || s.crowdedOut(err) {
		return nil
	}
	if err == nil && a.Error == nil && s.isModern() {
		s.checkServer(a.Result)
	}
	return err
}
