package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The versions of MCP that are offered.
const (
	mcpVersion = "2025-06-18"
	initParams = `{"protocolVersion":"` + mcpVersion + `","capabilities":{},"clientInfo":{"name":"ferrule-check","version":"1"}}`
)

// maxAnswer is the size of the longest answer over HTTP.
const maxAnswer = 4 << 20

// web is the check of an MCP server over HTTP.
type web struct {
	*service
	url    string
	token  string // the credential in the URL; empty for none
	client *http.Client

	mu      sync.Mutex
	nextID  int
	session string
	version string
}

// checkHTTP tests an MCP server over HTTP.
func checkHTTP(ctx context.Context, target Target, o Options) (*Report, error) {
	u := *target.url
	w := &web{nextID: 101}
	if password, ok := u.User.Password(); ok {
		w.token = password
	}
	u.User = nil
	w.url = u.String()
	w.service = &service{run: newRun(target, "mcp", mcpRules, o), channel: w, prefix: "mcp"}
	w.client = &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout,
			DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer w.client.CloseIdleConnections()
	if r, err := w.do(ctx, http.MethodPost, "{}", nil); err != nil && r.status == 0 && ctx.Err() == nil {
		return nil, noHTTP(target, withoutURL(err))
	}
	err := w.steps(ctx, []step{
		{"identity", w.identity}, {"list", w.list}, {"names", w.names}, {"schemas", w.schemas}, {"calls", w.calls}, {"errors", w.webErrors},
		{"several requests", w.several}, {"speed", func(ctx context.Context) (string, error) { return w.measure(ctx, "ping", "{}") }},
		{"sessions", w.sessions}, {"streams", w.streams}, {"reconnect", w.reconnect},
	})
	if err != nil {
		return nil, err
	}
	w.end(ctx)
	return w.finish(), nil
}

// noHTTP returns the error of a device without an HTTP response: it cannot be reached, or it
// speaks another protocol.
func noHTTP(target Target, err error) error {
	var op *net.OpError
	address := target.url.Host
	if target.url.Port() == "" {
		address = net.JoinHostPort(target.url.Hostname(), target.url.Scheme)
	}
	what := ferrule.Errorf(ferrule.Offline, "connected to %s, but its answer is not HTTP: %w", target, err)
	switch {
	case errors.As(err, &op) && op.Op == "dial", target.url.Scheme == "https" && !errors.Is(err, context.DeadlineExceeded):
		return ferrule.Errorf(ferrule.Offline, "connecting to %s: %w", target, err).WithHint("Check the URL and that the device is on.")
	case errors.Is(err, context.DeadlineExceeded):
		what.Message = fmt.Sprintf("connected to %s, but no HTTP answer came within %v", target, maxRequest)
	}
	return what.WithHint("If it is a board that speaks MCP/U, run `ferrule check %s`. Otherwise check the URL.", address)
}

// withoutURL removes a URL, which may contain secrets, from an error.
func withoutURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// response is what a device answered to an HTTP request.
type response struct {
	status int
	typ    string
	header http.Header
	body   []byte
}

func (r response) text() string {
	return fmt.Sprintf("%d %s\n%s", r.status, http.StatusText(r.status), r.body)
}

var errTooMuch = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)

// maxRequest bounds one HTTP request, with its response.
const maxRequest = 10 * time.Second

// do sends one HTTP request and reads its response: a document, or a stream until the first
// answer in it. The response has a status if its header has arrived.
func (w *web) do(ctx context.Context, method, body string, header map[string]string) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, maxRequest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	w.mu.Lock()
	if w.session != "" {
		req.Header.Set("Mcp-Session-Id", w.session)
	}
	if w.version != "" {
		req.Header.Set("Mcp-Protocol-Version", w.version)
	}
	w.mu.Unlock()
	for name, value := range header {
		req.Header.Set(name, value)
	}
	got, err := w.client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer got.Body.Close()
	typ, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	r := response{status: got.StatusCode, typ: typ, header: got.Header}
	if typ == "text/event-stream" {
		if method == http.MethodGet {
			return r, nil // it may last forever
		}
		r.body, err = readEvent(got.Body)
		return r, err
	}
	r.body, err = io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	if len(r.body) > maxAnswer {
		return r, errTooMuch
	}
	return r, err
}

// readEvent returns the data of the first event that is an answer.
func readEvent(body io.Reader) ([]byte, error) {
	var data []byte
	read := 0
	buffer := make([]byte, 4096)
	var pending []byte
	for {
		n, err := body.Read(buffer)
		if read += n; read > maxAnswer {
			return nil, errTooMuch
		}
		pending = append(pending, buffer[:n]...)
		for {
			line, rest, ok := bytes.Cut(pending, []byte("\n"))
			if !ok {
				break
			}
			pending = rest
			line = bytes.TrimSuffix(line, []byte("\r"))
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
				continue
			}
			if len(line) > 0 || len(data) == 0 {
				continue
			}
			if _, ok := parseAnswer(data); ok {
				return data, nil
			}
			data = nil
		}
		if err != nil {
			return bytes.TrimSpace(data), nil // an incomplete event
		}
	}
}

// ask implements channel.
func (w *web) ask(ctx context.Context, method, params string, wait time.Duration) reply {
	w.mu.Lock()
	id := w.nextID
	w.nextID++
	w.mu.Unlock()
	body := string(jsonrpc.AppendRequest(nil, id, method, []byte(params)))
	out := reply{outcome: silent, sent: body}
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	began := time.Now()
	r, err := w.do(timed, http.MethodPost, body, nil)
	out.took = time.Since(began)
	switch {
	case errors.Is(err, errTooMuch):
		w.finding("long-message", evidence{body, ""}, "%s", err)
		out.outcome = dropped
		return out
	case timed.Err() != nil:
		return out
	case err != nil:
		out.outcome, out.tail = closed, withoutURL(err).Error()
		return out
	}
	out.tail = r.text()
	a, ok := parseAnswer(bytes.TrimSpace(r.body))
	switch {
	case !ok:
		out.outcome = dropped
		w.finding("no-json", evidence{body, r.text()}, "the body of the response with the status %d is not a JSON-RPC answer", r.status)
		return out
	case (!a.isInt || a.id != id) && (a.err == nil || a.idText != ""):
		w.finding("unknown-id", evidence{body, r.text()}, "the answer has the id %s instead of %d", cutText(a.idText), id)
	}
	if a.err == nil && (r.status != http.StatusOK || r.typ != "application/json" && r.typ != "text/event-stream") {
		w.finding("wrong-status", evidence{body, r.text()}, "an answer has the status %d and the type %q", r.status, cutText(r.typ))
	}
	if session := r.header.Get("Mcp-Session-Id"); method == "initialize" && a.err == nil {
		w.mu.Lock()
		w.session = session
		w.mu.Unlock()
	}
	out.outcome, out.answer = answered, a
	return out
}

// lost implements channel.
func (w *web) lost(ctx context.Context, r reply) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.outcome == closed:
		w.finding("closed-connection", r.evidence(), "the device closed the connection instead of answering: %s", r.tail)
	case r.outcome != silent:
		return nil
	}
	alive := w.ask(ctx, "ping", "{}", callWait)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case alive.outcome == silent || alive.outcome == closed:
		w.finding("stopped-answering", r.evidence(), "the device answered before, and does not answer anymore")
		return errGiveUp
	case r.outcome == silent:
		w.finding("unanswered-call", r.evidence(), "a request was not answered in time; the next one was")
	}
	return nil
}

// ignored implements channel.
func (w *web) ignored(ctx context.Context, r reply, name, text string) error {
	alive := w.ask(ctx, "ping", "{}", callWait)
	if alive.outcome == answered {
		w.finding(name, evidence{r.sent, ""}, "%s", text)
		return ctx.Err()
	}
	return w.lost(ctx, r)
}

// identity sends initialize.
func (w *web) identity(ctx context.Context) (string, error) {
	w.mu.Lock()
	w.session, w.version = "", ""
	w.mu.Unlock()
	r := w.ask(ctx, "initialize", initParams, maxRequest)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if r.outcome != answered || r.err != nil {
		text := string(r.outcome)
		if r.err != nil {
			text = r.err.Error()
		}
		w.finding("no-answer", r.evidence(), "initialize failed: %s", text)
		return "", errGiveUp
	}
	version := w.serverInfo(r)
	w.mu.Lock()
	w.version = version
	w.mu.Unlock()
	got, err := w.do(ctx, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	if err == nil && (got.status >= 300 || len(bytes.TrimSpace(got.body)) > 0) {
		w.finding("answered-notification", evidence{"notifications/initialized", got.text()}, "a notification was answered with the status %d and %d bytes", got.status, len(got.body))
	}
	return fmt.Sprintf("%s %s, MCP %s", w.run.report.Device, w.run.report.Version, version), ctx.Err()
}

// serverInfo judges the result of initialize, and returns the version of MCP.
func (s *service) serverInfo(r reply) string {
	var v struct {
		Version string `json:"protocolVersion"`
		Info    struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	if err := json.Unmarshal(r.result, &v); err != nil || v.Info.Name == "" || v.Info.Version == "" {
		s.finding("bad-info", r.evidence(), "the result of initialize has no serverInfo with name and version")
	}
	if _, err := time.Parse(time.DateOnly, v.Version); err != nil { // versions are dates, and there will be more
		s.finding("bad-version", r.evidence(), "protocolVersion is %q", cutText(v.Version))
	}
	s.run.report.Device, s.run.report.Version = v.Info.Name, v.Info.Version
	return ferrule.Clean(v.Version, 32)
}

// list reads the list twice.
func (s *service) list(ctx context.Context) (string, error) {
	tools, text, pages, err := s.readList(ctx, "")
	if err != nil {
		return "", err
	}
	s.offered, s.raw = tools, text
	if len(tools) == 0 {
		s.finding("no-tools", evidence{}, "the device lists no tools")
	}
	if _, again, _, err := s.readList(ctx, ""); err != nil {
		return "", err
	} else if again != text {
		s.finding("changing-list", evidence{}, "two lists differ")
	}
	s.run.report.Tools = len(tools)
	return fmt.Sprintf("%d tools, %d pages", len(tools), pages), nil
}

// webErrors also tests requests that are wrong as HTTP.
func (w *web) webErrors(ctx context.Context) (string, error) {
	text, err := w.errors(ctx)
	if err != nil {
		return "", err
	}
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for _, test := range []struct {
		name, what, body string
		header           map[string]string
	}{
		{"accepted-error", "a body that is not JSON", `{"jsonrpc":"2.0",`, nil},
		{"origin-ignored", "a request of a foreign web page", ping, map[string]string{"Origin": "http://ferrule-check.example"}},
		{"origin-ignored", "a request with the type text/plain, which any web page can send,", ping, map[string]string{"Content-Type": "text/plain"}},
	} {
		r, err := w.do(ctx, http.MethodPost, test.body, test.header)
		if err != nil {
			continue // it may close the connection
		}
		if a, ok := parseAnswer(bytes.TrimSpace(r.body)); r.status < 300 && (!ok || a.err == nil) {
			w.finding(test.name, evidence{test.body, r.text()}, "%s was answered with the status %d", test.what, r.status)
		}
	}
	return text + ", 3 wrong HTTP requests", w.lost(ctx, w.ask(ctx, "ping", "{}", callWait))
}

// several sends four requests at the same time.
func (w *web) several(ctx context.Context) (string, error) {
	const count = 4
	var wg sync.WaitGroup
	replies := make([]reply, count)
	for i := range replies {
		wg.Go(func() {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, 9000+i)
			timed, cancel := context.WithTimeout(ctx, callWait)
			defer cancel()
			r, err := w.do(timed, http.MethodPost, body, nil)
			replies[i] = reply{outcome: silent, sent: body, tail: r.text()}
			if a, ok := parseAnswer(bytes.TrimSpace(r.body)); err == nil && ok && a.id == 9000+i {
				replies[i].outcome = answered
			}
		})
	}
	wg.Wait()
	ok := 0
	for _, r := range replies {
		if r.outcome == answered {
			ok++
		} else if ctx.Err() == nil && !strings.HasPrefix(r.tail, strconv.Itoa(http.StatusTooManyRequests)) && !strings.HasPrefix(r.tail, strconv.Itoa(http.StatusServiceUnavailable)) {
			w.finding("lost-request", evidence{r.sent, r.tail}, "one of %d requests at the same time was not answered", count)
		}
	}
	return fmt.Sprintf("%d of %d requests at the same time", ok, count), ctx.Err()
}

// sessions tests what happens to an unknown session.
func (w *web) sessions(ctx context.Context) (string, error) {
	if w.session == "" {
		return "", errSkip("the device has no sessions")
	}
	const body = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	r, err := w.do(ctx, http.MethodPost, body, map[string]string{"Mcp-Session-Id": "ferrule-check-unknown"})
	if err == nil && r.status < 300 {
		w.finding("session-ignored", evidence{body, r.text()}, "a request with an unknown session was answered with the status %d", r.status)
	}
	return "", ctx.Err()
}

// streams tests whether GET opens a stream, or says that there is none.
func (w *web) streams(ctx context.Context) (string, error) {
	timed, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, err := w.do(timed, http.MethodGet, "", map[string]string{"Accept": "text/event-stream"})
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		w.finding("bad-stream", evidence{"GET", ""}, "GET was not answered: %s", withoutURL(err))
	case r.status == http.StatusOK && r.typ != "text/event-stream":
		w.finding("bad-stream", evidence{"GET", r.text()}, "GET was answered with the type %q", cutText(r.typ))
	case r.status >= 500:
		w.finding("bad-stream", evidence{"GET", r.text()}, "GET was answered with the status %d", r.status)
	case r.status != http.StatusOK:
		return "no stream", nil
	}
	return "a stream", nil
}

// reconnect ends the session and starts another one.
func (w *web) reconnect(ctx context.Context) (string, error) {
	w.end(ctx)
	w.client.CloseIdleConnections()
	if _, err := w.identity(ctx); err != nil {
		return "", err
	}
	_, text, _, err := w.readList(ctx, "")
	if err == nil && text != w.raw {
		w.finding("changing-list", evidence{}, "after reconnecting the list differs")
	}
	return "", err
}

// end ends the session.
func (w *web) end(ctx context.Context) {
	if w.session == "" || ctx.Err() != nil {
		return
	}
	timed, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	w.do(timed, http.MethodDelete, "", nil) // a device may not support it
	w.mu.Lock()
	w.session = ""
	w.mu.Unlock()
}
