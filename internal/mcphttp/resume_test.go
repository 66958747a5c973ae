package mcphttp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// mover serves one tool, move, over HTTP. The tool reports that it is half way, and
// returns when proceed is closed.
type mover struct {
	*Handler
	t       *testing.T
	url     string
	session string
	version string // of the protocol
	moved   atomic.Int32
	proceed chan struct{}
}

func newMover(t *testing.T) *mover {
	t.Helper()
	m := &mover{t: t, version: SessionVersion, proceed: make(chan struct{})}
	m.Handler = newTestHandler(4096, func(server *mcp.Server) {
		server.AddTool(&mcp.Tool{Name: "move", InputSchema: json.RawMessage(`{"type":"object"}`)}, m.move)
	})
	server := httptest.NewServer(m.Handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	m.url = server.URL + "/mcp"
	resp := m.send(t.Context(), http.MethodPost, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"},"capabilities":{}}}`)
	m.session = resp.Header.Get(SessionHeader)
	io.Copy(io.Discard, resp.Body)
	m.send(t.Context(), http.MethodPost, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

// newTestHandler returns a handler for one server.
func newTestHandler(sessions int, prepare func(*mcp.Server)) *Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	prepare(server)
	h := New(Config{
		Server: func(*http.Request) *mcp.Server { return server }, Servers: func() iter.Seq[*mcp.Server] { return slices.Values([]*mcp.Server{server}) },
		MaxSessions: sessions, Idle: time.Hour, Events: testLimits,
	})
	server.AddReceivingMiddleware(h.Track)
	return h
}

func (m *mover) move(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	m.moved.Add(1)
	if token := req.Params.GetProgressToken(); token != nil {
		req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Message: "half", Progress: 1, Total: 2})
	}
	select {
	case <-m.proceed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &mcp.CallToolResult{StructuredContent: map[string]bool{"moved": true}}, nil
}

const move = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"move","_meta":{"progressToken":1}}}`

// send sends a request of a version with sessions. It resumes after the event last,
// unless that is empty.
func (m *mover) send(ctx context.Context, verb, last, body string) *http.Response {
	m.t.Helper()
	req, err := http.NewRequestWithContext(ctx, verb, m.url, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set(VersionHeader, m.version)
	if m.session != "" {
		req.Header.Set(SessionHeader, m.session)
	}
	if last != "" {
		req.Header.Set(eventHeader, last)
	}
	if m.version == StatelessVersion {
		req.Header.Set(MethodHeader, "tools/call")
		req.Header.Set("Mcp-Name", "move")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// sse is a server-sent event.
type sse struct{ id, retry, data string }

// next reads an event. Ok is false at the end of the stream.
func next(lines *bufio.Scanner) (e sse, ok bool) {
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			e.id = value
		case "retry":
			e.retry = value
		case "data":
			e.data = value
		case "":
			return e, true
		}
	}
	return e, false
}

// begin calls the tool and reads its first events; the second reports half way.
func (m *mover) begin(ctx context.Context) (resp *http.Response, first, half sse) {
	m.t.Helper()
	resp = m.send(ctx, http.MethodPost, "", move)
	lines := bufio.NewScanner(resp.Body)
	first, _ = next(lines)
	half, ok := next(lines)
	if !ok || first.id == "" || first.data != "" || !strings.Contains(half.data, `"half"`) || first.retry != "300" {
		m.t.Fatalf("got first events %+v, %+v", first, half)
	}
	return resp, first, half
}

// finish resumes after an event and reads the rest: the given number of events, the last
// being the response.
func (m *mover) finish(last string, events int) {
	m.t.Helper()
	resp := m.send(m.t.Context(), http.MethodGet, last, "")
	lines := bufio.NewScanner(resp.Body)
	for i := range events {
		e, ok := next(lines)
		if answered := strings.Contains(e.data, `"moved":true`); !ok || answered != (i == events-1) {
			m.t.Fatalf("%d: event %d is %+v", resp.StatusCode, i, e)
		}
	}
	if e, ok := next(lines); ok {
		m.t.Errorf("unexpected event %+v", e)
	}
	if n := m.moved.Load(); n != 1 {
		m.t.Errorf("moved %d times, want once", n)
	}
}

// proceedWhenTaken lets the tool return when another connection has taken over its stream.
func (m *mover) proceedWhenTaken() {
	owners := func() []*streamOwner {
		m.owners.mu.Lock()
		defer m.owners.mu.Unlock()
		return slices.Concat(slices.Collect(maps.Values(m.owners.byStream))...)
	}
	old := owners()
	go func() {
		defer close(m.proceed)
		for end := time.Now().Add(wait.Ample); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if now := owners(); len(now) > 0 && !slices.ContainsFunc(now, func(o *streamOwner) bool { return slices.Contains(old, o) }) {
				return
			}
		}
	}()
}

// TestResume: a client whose connection breaks in the middle of a call reconnects, and gets
// the events it missed and the response. The call was made once.
func TestResume(t *testing.T) {
	for name, over := range map[string]bool{"while it is under way": false, "when it is over": true} {
		t.Run(name, func(t *testing.T) {
			m := newMover(t)
			ctx, cancel := context.WithCancel(t.Context())
			_, first, half := m.begin(ctx)
			cancel() // the connection breaks
			if over {
				close(m.proceed)
				wait.For(t, "the result is stored", func() bool {
					got, missing := after(m.events, m.session, streamOf(first.id), 1)
					return strings.Contains(got, "moved") && !missing
				})
			} else {
				time.AfterFunc(50*time.Millisecond, func() { close(m.proceed) })
			}
			m.finish(half.id, 1)
			if over {
				m.finish(first.id, 2)
			}
		})
	}
}

// TestResumeUnseen: a client reconnects before the server notices that the old connection is gone.
func TestResumeUnseen(t *testing.T) {
	m := newMover(t)
	resp, first, _ := m.begin(t.Context())
	m.proceedWhenTaken()
	m.finish(first.id, 2)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("the old connection got %q, %v", rest, err)
	}
	changes := m.send(t.Context(), http.MethodGet, "", "")
	var opening sse
	for lines, ok := bufio.NewScanner(changes.Body), true; ok && opening.id == ""; {
		opening, ok = next(lines) // the first is a comment
	}
	if opening.id == "" || opening.retry != "300" || opening.data != "" {
		t.Fatalf("got opening event %+v", opening)
	}
	for range 3 { // the stream of notifications
		again := m.send(t.Context(), http.MethodGet, opening.id, "")
		if _, err := io.ReadAll(changes.Body); err != nil || again.StatusCode != http.StatusOK {
			t.Errorf("%d, %v", again.StatusCode, err)
		}
		changes = again
	}
	changes.Body.Close()
	wait.For(t, "no stream has an owner", func() bool {
		m.owners.mu.Lock()
		defer m.owners.mu.Unlock()
		return len(m.owners.byStream) == 0
	})
}

// TestResumeUnseenBefore: the same for a version whose streams have no opening event.
func TestResumeUnseenBefore(t *testing.T) {
	m := newMover(t)
	m.version = "2025-06-18"
	resp := m.send(t.Context(), http.MethodPost, "", move)
	half, ok := next(bufio.NewScanner(resp.Body))
	if !ok || half.id == "" || !strings.Contains(half.data, `"half"`) {
		t.Fatalf("got first event %+v", half)
	}
	m.proceedWhenTaken()
	m.finish(half.id, 1)
}

// TestResumeLost: dropped events are reported as missing, and an unknown stream is refused.
func TestResumeLost(t *testing.T) {
	m := newMover(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, first, _ := m.begin(ctx)
	cancel()
	m.events.Expire(time.Now().Add(time.Minute))
	for _, last := range []string{first.id, "x_0", "x", "_-1", first.id + "9999999999999999999"} {
		if resp := m.send(t.Context(), http.MethodGet, last, ""); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", last, resp.StatusCode)
		}
	}
	close(m.proceed)
}

// TestResumeKeepsSession: a session with a call under way is in use, even while its client is
// disconnected: it is not ended to make room, and nobody waits for it.
func TestResumeKeepsSession(t *testing.T) {
	m := newMover(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, first, _ := m.begin(ctx)
	cancel()
	long := time.Now().Add(-time.Hour - time.Minute)
	idle := func() bool { // as if the client had left long ago
		m.sessions.mu.Lock()
		defer m.sessions.mu.Unlock()
		u := m.sessions.byID[m.session]
		u.last = long
		return u.requests == 0
	}
	wait.For(t, "no stream has an owner", func() bool {
		m.owners.mu.Lock()
		defer m.owners.mu.Unlock()
		return len(m.owners.byStream) == 0
	})
	ended := make(chan bool, 1)
	if idle() {
		t.Error("a session with a call under way counts as idle")
	}
	go func() {
		m.endIdle(time.Now().Add(-time.Hour))
		ended <- m.endOldest(func(string) bool { return true })
	}()
	select {
	case ended := <-ended:
		if ended {
			t.Error("the session was ended")
		}
	case <-time.After(wait.Ample):
		t.Error("the sweep waits for the call")
	}
	close(m.proceed)
	m.finish(first.id, 2)
	wait.For(t, "the session is idle", idle)
}

// TestSweepWaitsForNobody: a call that arrives just when its session is found idle does not hold up
// the sweep.
func TestSweepWaitsForNobody(t *testing.T) {
	m := newMover(t)
	m.begin(t.Context())
	m.sessions.mu.Lock()
	m.sessions.byID[m.session] = &sessionUse{uses: &m.sessions, last: time.Now().Add(-time.Hour)} // as if the call had not arrived yet
	m.sessions.mu.Unlock()
	swept := make(chan struct{})
	go func() {
		m.endIdle(time.Now().Add(-time.Minute))
		close(swept)
	}()
	select {
	case <-swept:
	case <-time.After(wait.Ample):
		t.Error("the sweep waits for the call")
	}
	close(m.proceed)
	wait.For(t, "the session ends", func() bool { return m.Sessions() == 0 })
}

// TestUnknownSessions: unknown session IDs are not recorded.
func TestUnknownSessions(t *testing.T) {
	m := newMover(t)
	close(m.proceed)
	known := m.session
	for i := range 10 {
		m.session = fmt.Sprint("unknown", i)
		for _, verb := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			if resp := m.send(t.Context(), verb, "", move); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %d", verb, resp.StatusCode)
			}
		}
	}
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	if len(m.sessions.byID) != 1 || m.sessions.byID[known] == nil {
		t.Errorf("%d sessions are recorded", len(m.sessions.byID))
	}
}

// TestReplyTogether: a call that is answered after a notification is answered in one
// stream, and a quick one as JSON, in one write each.
func TestReplyTogether(t *testing.T) {
	m := newMover(t)
	close(m.proceed)
	body := strings.Replace(move, `,"_meta":{"progressToken":1}`, "", 1)
	for range 100 { // the machine may be slow at times
		request := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", VersionHeader: "2025-11-25", SessionHeader: m.session,
		} {
			request.Header.Set(name, value)
		}
		pieces := &pieceWriter{ResponseRecorder: httptest.NewRecorder()}
		m.Handler.ServeHTTP(pieces, request)
		if !strings.Contains(pieces.Body.String(), "moved") {
			t.Fatalf("got %q", pieces.Body)
		}
		if len(pieces.all) == 1 && json.Valid(pieces.Body.Bytes()) && pieces.Header().Get("Content-Type") == jsonType {
			return
		}
	}
	t.Error("no call was answered in one write")
}

// pieceWriter records each write.
type pieceWriter struct {
	*httptest.ResponseRecorder
	all []string
}

func (w *pieceWriter) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return w.ResponseRecorder.Write(p)
}

// TestResumeEnds: a session leaves nothing behind when it ends, and little however long it is used.
func TestResumeEnds(t *testing.T) {
	m := newMover(t)
	close(m.proceed)
	for i := range 3 * maxSessionStreams {
		resp := m.send(t.Context(), http.MethodPost, "", strings.Replace(move, `"id":1`, fmt.Sprintf(`"id":%d`, i), 1))
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "moved") {
			t.Fatalf("%s, %v", body, err)
		}
	}
	kept := func() (sessions, streams, size int) {
		m.events.mu.Lock()
		defer m.events.mu.Unlock()
		for _, s := range m.events.sessions {
			streams += len(s.streams)
		}
		return len(m.events.sessions), streams, m.events.size
	}
	if _, streams, size := kept(); streams != maxSessionStreams || size == 0 {
		t.Errorf("%d streams and %d bytes are kept", streams, size)
	}
	m.events.Expire(time.Now().Add(time.Minute)) // all are answered
	if _, streams, size := kept(); streams != 1 || size != 0 {
		t.Errorf("%d streams and %d bytes are kept", streams, size)
	}
	m.send(t.Context(), http.MethodDelete, "", "")
	if sessions, streams, size := kept(); sessions+streams+size != 0 {
		t.Errorf("%d sessions, %d streams and %d bytes are left", sessions, streams, size)
	}
}
