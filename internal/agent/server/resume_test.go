package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// mover is a front over HTTP with one tool, robot__move. It says that it is half way,
// and is done when it is let go on.
type mover struct {
	*Server
	t       *testing.T
	handler http.Handler
	url     string
	session string
	version string // of the protocol
	moved   atomic.Int32
	goOn    chan struct{}
}

func newMover(t *testing.T) *mover {
	t.Helper()
	c := catalog.New(catalog.DefaultConfig())
	c.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Model: "board", Tools: []ferrule.Tool{{Name: "move", Effect: ferrule.Changes}}})
	m := &mover{t: t, version: "2025-11-25", goOn: make(chan struct{})}
	m.Server = New(Parts{
		Config: DefaultConfig(), Catalog: c, Version: "1", Log: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			m.moved.Add(1)
			call.Report(ferrule.Progress{Message: "half", Done: 1, Total: 2})
			select {
			case <-m.goOn:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			return &ferrule.Result{Value: json.RawMessage(`{"moved":true}`)}, nil
		},
	})
	m.handler = m.Handler()
	server := httptest.NewServer(m.handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	m.url = server.URL + "/mcp"
	resp := m.send(t.Context(), http.MethodPost, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"},"capabilities":{}}}`)
	m.session = resp.Header.Get(sessionHeader)
	io.Copy(io.Discard, resp.Body)
	m.send(t.Context(), http.MethodPost, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

const move = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"robot__move","_meta":{"progressToken":1}}}`

// send sends a request of the older era, which comes back to an event if it is not empty.
func (m *mover) send(ctx context.Context, verb, last, body string) *http.Response {
	m.t.Helper()
	req, err := http.NewRequestWithContext(ctx, verb, m.url, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set(versionHeader, m.version)
	if m.session != "" {
		req.Header.Set(sessionHeader, m.session)
	}
	if last != "" {
		req.Header.Set(eventHeader, last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// sse is an event.
type sse struct{ id, retry, data string }

// next reads an event; it is not ok at the end.
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

// begin calls the tool, and reads the first events, of which the second tells that it is
// half way.
func (m *mover) begin(ctx context.Context) (resp *http.Response, first, half sse) {
	m.t.Helper()
	resp = m.send(ctx, http.MethodPost, "", move)
	lines := bufio.NewScanner(resp.Body)
	first, _ = next(lines)
	half, ok := next(lines)
	if !ok || first.id == "" || first.data != "" || !strings.Contains(half.data, `"half"`) || first.retry != "1000" {
		m.t.Fatalf("it began with %+v, %+v", first, half)
	}
	return resp, first, half
}

// finish comes back to an event, and reads what is left: so many events, of which the
// last is the answer.
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
		m.t.Errorf("%+v follows", e)
	}
	if n := m.moved.Load(); n != 1 {
		m.t.Errorf("it moved %d times", n)
	}
}

// TestResume: an agent whose connection breaks in the middle of a call comes back, and
// gets what it has missed, and the answer. The call was made once.
func TestResume(t *testing.T) {
	for name, over := range map[string]bool{"while it is under way": false, "when it is over": true} {
		t.Run(name, func(t *testing.T) {
			m := newMover(t)
			ctx, cancel := context.WithCancel(t.Context())
			_, first, half := m.begin(ctx)
			cancel() // the connection is closed
			if over {
				close(m.goOn)
				eventually(t, func() bool {
					got, missing := heard(m.replays, m.session, streamOf(first.id), 1)
					return strings.Contains(got, "moved") && !missing
				})
			} else {
				time.AfterFunc(50*time.Millisecond, func() { close(m.goOn) })
			}
			m.finish(half.id, 1)
			if over {
				m.finish(first.id, 2)
			}
		})
	}
}

// TestResumeUnseen: an agent comes back before it is noticed here that it has gone.
func TestResumeUnseen(t *testing.T) {
	m := newMover(t)
	resp, first, _ := m.begin(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { close(m.goOn) })
	m.finish(first.id, 2)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("the connection that it had is told %q, %v", rest, err)
	}
	changes := m.send(t.Context(), http.MethodGet, "", "")
	for range 3 { // the stream on which it hears of changes
		again := m.send(t.Context(), http.MethodGet, "", "")
		if _, err := io.ReadAll(changes.Body); err != nil || again.StatusCode != http.StatusOK {
			t.Errorf("%d, %v", again.StatusCode, err)
		}
		changes = again
	}
	changes.Body.Close()
	eventually(t, func() bool {
		m.claims.mu.Lock()
		defer m.claims.mu.Unlock()
		return len(m.claims.all) == 0
	})
}

// TestResumeUnseenBefore: so does one of a version whose streams begin without an event
// that has nothing but an ID.
func TestResumeUnseenBefore(t *testing.T) {
	m := newMover(t)
	m.version = "2025-06-18"
	resp := m.send(t.Context(), http.MethodPost, "", move)
	half, ok := next(bufio.NewScanner(resp.Body))
	if !ok || half.id == "" || !strings.Contains(half.data, `"half"`) {
		t.Fatalf("it began with %+v", half)
	}
	time.AfterFunc(50*time.Millisecond, func() { close(m.goOn) })
	m.finish(half.id, 1)
}

// TestResumeLost: what is kept no more is known to be lost, and a stream that never was
// cannot be had.
func TestResumeLost(t *testing.T) {
	m := newMover(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, first, _ := m.begin(ctx)
	cancel()
	m.replays.forget(time.Now().Add(time.Minute))
	for _, last := range []string{first.id, "x_0", "x", "_-1", first.id + "9999999999999999999"} {
		if resp := m.send(t.Context(), http.MethodGet, last, ""); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", last, resp.StatusCode)
		}
	}
	close(m.goOn)
}

// TestResumeKeepsSession: a session with a call under way is in use, also while its agent
// has no connection: it is not ended to make room for another, and nobody waits for it.
func TestResumeKeepsSession(t *testing.T) {
	m := newMover(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, first, _ := m.begin(ctx)
	cancel()
	long := time.Now().Add(-DefaultConfig().Idle - time.Minute)
	idle := func() bool { // as if its agent had gone long ago
		m.sessions.mu.Lock()
		defer m.sessions.mu.Unlock()
		u := m.sessions.uses[m.session]
		u.last = long
		return u.requests == 0
	}
	eventually(t, func() bool {
		m.claims.mu.Lock()
		defer m.claims.mu.Unlock()
		return len(m.claims.all) == 0
	})
	ended := make(chan bool, 1)
	if idle() {
		t.Error("a session with a call under way is said to be idle")
	}
	go func() {
		m.endIdle(time.Now().Add(-DefaultConfig().Idle))
		ended <- m.endOldest()
	}()
	select {
	case ended := <-ended:
		if ended {
			t.Error("it was ended")
		}
	case <-time.After(2 * time.Second):
		t.Error("the call is waited for")
	}
	close(m.goOn)
	m.finish(first.id, 2)
	eventually(t, idle)
}

// TestSweepWaitsForNobody: a call that comes at the moment at which its session is found to
// be idle is not waited for by those who look after all others.
func TestSweepWaitsForNobody(t *testing.T) {
	m := newMover(t)
	m.begin(t.Context())
	m.sessions.mu.Lock()
	m.sessions.uses[m.session] = &sessionUse{last: time.Now().Add(-time.Hour)} // as it was before
	m.sessions.mu.Unlock()
	swept := make(chan struct{})
	go func() {
		m.endIdle(time.Now().Add(-time.Minute))
		close(swept)
	}()
	select {
	case <-swept:
	case <-time.After(2 * time.Second):
		t.Error("the call is waited for")
	}
	close(m.goOn)
	eventually(t, func() bool { return m.Sessions() == 0 })
}

// TestUnknownSessions: nothing is remembered of sessions that there are not.
func TestUnknownSessions(t *testing.T) {
	m := newMover(t)
	close(m.goOn)
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
	if len(m.sessions.uses) != 1 || m.sessions.uses[known] == nil {
		t.Errorf("%d sessions are remembered", len(m.sessions.uses))
	}
}

// TestResumeTogether: a quick call is answered in one piece, with the event that opens
// its stream.
func TestResumeTogether(t *testing.T) {
	m := newMover(t)
	close(m.goOn)
	for range 100 { // the machine may be slow at times
		request := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(strings.Replace(move, `,"_meta":{"progressToken":1}`, "", 1)))
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", versionHeader: "2025-11-25", sessionHeader: m.session,
		} {
			request.Header.Set(name, value)
		}
		pieces := &pieceWriter{ResponseRecorder: httptest.NewRecorder()}
		m.handler.ServeHTTP(pieces, request)
		body := pieces.Body.String()
		if !strings.HasPrefix(body, "retry: 1000\nevent: prime\nid: ") || !strings.Contains(body, "moved") {
			t.Fatalf("got %q", body)
		}
		if len(pieces.all) == 1 {
			return
		}
	}
	t.Error("no call was answered in one piece")
}

// pieceWriter remembers each piece of an answer.
type pieceWriter struct {
	*httptest.ResponseRecorder
	all []string
}

func (w *pieceWriter) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return w.ResponseRecorder.Write(p)
}

// TestResumeEnds: nothing is left of a session that has ended, nor of one that is used
// without end.
func TestResumeEnds(t *testing.T) {
	m := newMover(t)
	close(m.goOn)
	for i := range 3 * maxKeptStreams {
		resp := m.send(t.Context(), http.MethodPost, "", strings.Replace(move, `"id":1`, fmt.Sprintf(`"id":%d`, i), 1))
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "moved") {
			t.Fatalf("%s, %v", body, err)
		}
	}
	kept := func() (sessions, streams, size int) {
		m.replays.mu.Lock()
		defer m.replays.mu.Unlock()
		for _, s := range m.replays.sessions {
			streams += len(s.streams)
		}
		return len(m.replays.sessions), streams, m.replays.size
	}
	if _, streams, size := kept(); streams != maxKeptStreams || size == 0 {
		t.Errorf("%d streams and %d bytes are kept", streams, size)
	}
	m.replays.forget(time.Now().Add(time.Minute)) // all were answered
	if _, streams, size := kept(); streams != 1 || size != 0 {
		t.Errorf("%d streams and %d bytes are kept", streams, size)
	}
	m.send(t.Context(), http.MethodDelete, "", "")
	if sessions, streams, size := kept(); sessions+streams+size != 0 {
		t.Errorf("%d sessions, %d streams and %d bytes are left", sessions, streams, size)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came about")
		}
	}
}
