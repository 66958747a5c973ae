package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/rpc"
	"github.com/ferrulehq/ferrule/internal/agent/server"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

// board is a device with tools, and the agent server for it.
type board struct {
	*server.Server
	catalog *catalog.Catalog
	release chan struct{} // lets a call of slow go on

	mu    sync.Mutex
	calls []string // the tools that were called, and who called them
	ended []error  // why calls of slow were given up
}

func newBoard() *board {
	c := catalog.New(catalog.DefaultConfig())
	b := &board{catalog: c, release: make(chan struct{})}
	tools := []ferrule.Tool{
		{Name: "look", Effect: ferrule.Reads, Text: "Tell the temperature", Output: json.RawMessage(`{"type":"object"}`)},
		{Name: "move", Effect: ferrule.Changes, Input: json.RawMessage(`{"type":"object","properties":{"to":{"type":"integer"}}}`)},
		{Name: "slow", Effect: ferrule.Changes},
		{Name: "long", Effect: ferrule.Reads},
	}
	c.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
		&ferrule.Manifest{Model: "board", Tools: tools})
	b.Server = server.New(server.Parts{Config: server.DefaultConfig(), Catalog: c, Handle: b.handle, Version: "1", Log: slog.New(slog.DiscardHandler)})
	return b
}

func (b *board) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	b.mu.Lock()
	b.calls = append(b.calls, call.Principal.String()+" "+call.Tool)
	b.mu.Unlock()
	value := `{"value":1}`
	switch call.Tool {
	case "slow":
		select {
		case <-b.release:
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ended = append(b.ended, ctx.Err())
			return nil, ferrule.Errorf(ferrule.Cancelled, "the caller went away").AfterSend()
		}
	case "long":
		value = `"` + strings.Repeat("0123456789", 5000) + `"`
	}
	return &ferrule.Result{Value: json.RawMessage(value)}, nil
}

// called returns the tools that were called.
func (b *board) called() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.calls, ", ")
}

// givenUp returns the number of cancelled calls of slow.
func (b *board) givenUp() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ended)
}

// broker is the other end of an endpoint.
type broker struct {
	t      *testing.T
	server *httptest.Server
	conns  chan net.Conn

	mu     sync.Mutex
	refuse int // the status with which who dials is refused; 0 if not
	asked  []string
}

func newBroker(t *testing.T) *broker {
	b := &broker{t: t, conns: make(chan net.Conn, 10)}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		refuse := b.refuse
		b.asked = append(b.asked, r.URL.String()+" "+r.Header.Get("Authorization"))
		b.mu.Unlock()
		if refuse != 0 {
			http.Error(w, "no", refuse)
			return
		}
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			t.Error(err)
			return
		}
		b.conns <- conn
	}))
	t.Cleanup(b.server.Close)
	return b
}

const token = "eyJhbGciOi.secret"

// url returns its address with the token.
func (b *broker) url() string {
	return "ws" + strings.TrimPrefix(b.server.URL, "http") + "/mcp/?token=" + token
}

// accept waits for a connection.
func (b *broker) accept() *far {
	b.t.Helper()
	select {
	case conn := <-b.conns:
		b.t.Cleanup(func() { conn.Close() })
		return &far{b.t, conn}
	case <-time.After(wait.Ample):
		b.t.Fatal("nobody has dialled")
	}
	return nil
}

// far is the other end of a connection.
type far struct {
	t    *testing.T
	conn net.Conn
}

func (f *far) say(text string) {
	f.t.Helper()
	if err := ws.WriteFrame(f.conn, ws.NewTextFrame([]byte(text))); err != nil {
		f.t.Fatal(err)
	}
}

// frame returns the next frame.
func (f *far) frame() ws.Frame {
	f.t.Helper()
	f.conn.SetReadDeadline(time.Now().Add(wait.Ample))
	frame, err := ws.ReadFrame(f.conn)
	if err != nil {
		f.t.Fatal(err)
	}
	if !frame.Header.Masked {
		f.t.Fatal("a frame is not masked")
	}
	return ws.UnmaskFrame(frame)
}

// hear returns the next message.
func (f *far) hear() string {
	f.t.Helper()
	for {
		switch frame := f.frame(); frame.Header.OpCode {
		case ws.OpText:
			return string(frame.Payload)
		case ws.OpClose:
			f.t.Fatalf("it has closed: %x", frame.Payload)
		}
	}
}

// logged collects log lines, without debug.
type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

// lines returns the lines that are not empty.
func (l *logged) lines(with string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.String(), with)
}

// start runs an endpoint until the test ends.
func start(t *testing.T, cfg Config, server Server, log *slog.Logger) *Endpoint {
	t.Helper()
	cfg.Name = "home"
	if cfg.Limit == 0 {
		cfg.Limit = DefaultLimit
	}
	e, err := New(Parts{Config: cfg, Server: server, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

var quiet = slog.New(slog.DiscardHandler)

// TestTranscripts replays sessions byte by byte. A line with < comes from the broker, with
// > goes to it, with ! lets a slow call finish. Nothing else may be sent.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			board, broker := newBoard(), newBroker(t)
			start(t, Config{URL: ferrule.Secret(broker.url())}, board, quiet)
			far := broker.accept()
			lines := strings.Split(strings.TrimSuffix(string(script), "\n"), "\n")
			for i, line := range lines {
				switch kind, text, _ := strings.Cut(line, " "); kind {
				case "<":
					far.say(text)
				case "!":
					board.release <- struct{}{}
				case ">":
					got := far.hear()
					if len(got) > DefaultLimit || !json.Valid([]byte(got)) {
						t.Errorf("line %d: %d bytes: %s", i+1, len(got), got)
					}
					if lines[i] = "> " + got; got != text && !*update {
						t.Errorf("line %d:\n got %s\nwant %s", i+1, got, text)
					}
				}
			}
			far.say(`{"jsonrpc":"2.0","id":"end","method":"ping"}`)
			if got := far.hear(); got != `{"jsonrpc":"2.0","id":"end","result":{}}` {
				t.Errorf("there was more to hear: %s", got)
			}
			if slow := strings.Count(string(script), "\n!\n"); strings.Count(board.called(), "slow") != slow {
				t.Errorf("called: %s", board.called())
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestSilent checks that nothing is sent before an agent is there. An agent that was there
// before the connection is then told of changes; one that has just come lists anyway.
func TestSilent(t *testing.T) {
	for first, told := range map[string]bool{"ping": true, "initialize": false} {
		t.Run(first, func(t *testing.T) {
			board, broker := newBoard(), newBroker(t)
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- board.Run(ctx) }()
			defer func() { cancel(); <-ran }()
			start(t, Config{URL: ferrule.Secret(broker.url())}, board, quiet)
			far := broker.accept()
			wait.For(t, "the endpoint is a session", func() bool { return board.Sessions() == 1 })
			board.catalog.Put(&ferrule.Device{ID: "lamp", Kind: "k2", Model: "lamp", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted},
				&ferrule.Manifest{Model: "lamp", Tools: []ferrule.Tool{{Name: "light", Effect: ferrule.Changes}}})
			far.conn.SetReadDeadline(time.Now().Add(600 * time.Millisecond)) // changes are announced earlier
			if frame, err := ws.ReadFrame(far.conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("it says %s, %v", ws.UnmaskFrame(frame).Payload, err)
			}
			far.say(`{"jsonrpc":"2.0","id":"first","method":"` + first + `","params":{"protocolVersion":"2024-11-05"}}`)
			for changed := false; ; {
				got := far.hear()
				changed = changed || strings.Contains(got, "notifications/tools/list_changed")
				if strings.Contains(got, `"id":"first"`) {
					if changed != told {
						t.Errorf("it was told of changes: %t, want %t", changed, told)
					}
					return
				}
			}
		})
	}
}

// TestBroken checks that calls in progress are cancelled when the connection breaks, and
// do not run again on the next one.
func TestBroken(t *testing.T) {
	board, broker := newBoard(), newBroker(t)
	start(t, Config{URL: ferrule.Secret(broker.url())}, board, quiet)
	far := broker.accept()
	far.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"robot__slow","arguments":{}}}`)
	wait.For(t, "the call is under way", func() bool { return board.called() != "" })
	far.conn.Close()
	wait.For(t, "the call is given up", func() bool { return board.givenUp() == 1 })
	far = broker.accept()
	far.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"robot__look","arguments":{}}}`)
	if got := far.hear(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":2,"result":`) {
		t.Errorf("got %s", got)
	}
	if got := board.called(); got != "agent:endpoint:home slow, agent:endpoint:home look" {
		t.Errorf("called: %s", got)
	}
}

// TestCancel checks that an agent can cancel its request by its own id.
func TestCancel(t *testing.T) {
	board, broker := newBoard(), newBroker(t)
	start(t, Config{URL: ferrule.Secret(broker.url())}, board, quiet)
	far := broker.accept()
	far.say(`{"jsonrpc":"2.0","id":"7e_n_1","method":"tools/call","params":{"name":"robot__slow"}}`)
	wait.For(t, "the call is under way", func() bool { return board.called() != "" })
	far.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"another"}}`)
	far.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7e_n_1","reason":"the user said stop"}}`)
	if got := far.hear(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"7e_n_1",`) || !strings.Contains(got, "The action may have run.") || board.givenUp() != 1 {
		t.Errorf("got %s", got)
	}
}

// TestMaxPending checks that requests beyond the limit are refused, and that pings work.
func TestMaxPending(t *testing.T) {
	board, broker := newBoard(), newBroker(t)
	start(t, Config{URL: ferrule.Secret(broker.url())}, board, quiet)
	far := broker.accept()
	for i := range maxPending {
		far.say(`{"jsonrpc":"2.0","id":` + string(rpc.Encode(i)) + `,"method":"tools/call","params":{"name":"robot__slow"}}`)
	}
	far.say(`{"jsonrpc":"2.0","id":"more","method":"tools/call","params":{"name":"robot__move"}}`)
	if got := far.hear(); !strings.Contains(got, `"id":"more","error":{"code":-32000`) || !strings.Contains(got, "not started") {
		t.Errorf("got %s", got)
	}
	far.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	if got := far.hear(); got != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Errorf("got %s", got)
	}
	if strings.Contains(board.called(), "move") {
		t.Error("it was begun")
	}
}

// TestRefused checks that a rejected token is logged once, without the token, and never
// counts as a connection.
func TestRefused(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, 0} {
		var log logged
		broker := newBroker(t)
		broker.refuse = status
		e := start(t, Config{URL: ferrule.Secret(broker.url())}, newBoard(), slog.New(slog.NewTextHandler(&log, nil)))
		if status == 0 {
			far := broker.accept()
			ws.WriteFrame(far.conn, ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusPolicyViolation, "bad token "+token)))
		}
		wait.For(t, "it is refused", func() bool { return strings.Contains(e.State().Reason, "rejects the token") })
		if log.lines("\n") != 1 || log.lines("rejects the token") != 1 || log.lines(token) != 0 || strings.Contains(e.State().Reason, token) {
			t.Errorf("%d: %s%+v", status, log.String(), e.State())
		}
		if state := e.State(); state.Connected || strings.ContainsAny(state.Address, "?@") {
			t.Errorf("got %+v", state)
		}
	}
}

// TestRedact checks that errors do not contain secrets of the URL.
func TestRedact(t *testing.T) {
	e, err := New(Parts{Config: Config{Name: "home", URL: "wss://me:pass%20word@example.com/mcp/?token=a%2Fb%3D%3D&x=1", Limit: DefaultLimit}})
	if err != nil {
		t.Fatal(err)
	}
	text := e.redact("dial wss://me:pass%20word@example.com/mcp/?token=a%2Fb%3D%3D&x=1: a/b== or a%2Fb%3D%3D, pass word: no\x1b[2J")
	if text != "dial …: … or …, …: no [2J" {
		t.Errorf("got %q", text)
	}
	if got := e.State().Address; got != "wss://example.com/mcp/" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "http://h/?token=" + token, "wss://?token=" + token, "wss://h:x y/?token=" + token, "token=" + token + "\x7f"} {
		err := Config{Name: "home", URL: ferrule.Secret(bad), Limit: DefaultLimit}.Check()
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestUser checks that a user in the URL is sent.
func TestUser(t *testing.T) {
	broker := newBroker(t)
	start(t, Config{URL: ferrule.Secret(strings.Replace(broker.url(), "ws://", "ws://me:word@", 1))}, newBoard(), quiet)
	broker.accept()
	if got := broker.asked[0]; got != "/mcp/?token="+token+" Basic bWU6d29yZA==" {
		t.Errorf("asked for %s", got)
	}
}

// TestLongest checks a request of the maximum size.
func TestLongest(t *testing.T) {
	broker := newBroker(t)
	start(t, Config{URL: ferrule.Secret(broker.url())}, newBoard(), quiet)
	far := broker.accept()
	const before, after = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"robot__look","serialNumber":"`, `"}}`
	far.say(before + strings.Repeat("x", maxMessage-len(before+after)) + after)
	if got := far.hear(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result":{"content"`) {
		t.Errorf("got %s", got)
	}
	far.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if got := far.hear(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":2,"result":`) {
		t.Errorf("got %s", got)
	}
}

// TestFrames checks that non-text messages are dropped, and invalid frames end the
// connection.
func TestFrames(t *testing.T) {
	broker := newBroker(t)
	e := start(t, Config{URL: ferrule.Secret(broker.url())}, newBoard(), quiet)
	far := broker.accept()
	for _, frame := range []ws.Frame{
		ws.NewBinaryFrame([]byte("sound")),
		ws.NewTextFrame(make([]byte, maxMessage+1)),
		ws.NewPongFrame([]byte("unasked")),
		ws.NewFrame(ws.OpText, false, []byte(`{"jsonrpc":"2.0","id":1,`)),
		ws.NewPingFrame([]byte("between")),
		ws.NewFrame(ws.OpContinuation, true, []byte(`"method":"ping"}`)),
	} {
		if err := ws.WriteFrame(far.conn, frame); err != nil {
			t.Fatal(err)
		}
	}
	if pong := far.frame(); pong.Header.OpCode != ws.OpPong || string(pong.Payload) != "between" {
		t.Errorf("got %v %s", pong.Header, pong.Payload)
	}
	if got := far.hear(); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("got %s", got)
	}
	ws.WriteFrame(far.conn, ws.NewFrame(ws.OpContinuation, true, []byte("of nothing")))
	if f := far.frame(); f.Header.OpCode != ws.OpClose {
		t.Errorf("got %v", f.Header)
	}
	wait.For(t, "that is told", func() bool { return strings.Contains(e.State().Reason, "invalid WebSocket frame") })
}
