package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var update = flag.Bool("update", false, "rewrite the manifests in testdata")

// TestTranscripts plays testdata/transcripts: what an HTTP server on a board does, byte by
// byte, and the expected outcome. Time is simulated. Each file has a script of these
// commands:
//
//	changes                      the session has a handler for a new manifest
//	greet                        start the greeting
//	run                          the greeting succeeded, and the session runs
//	device                       greet, and answer like a legacy board with one tool and
//	                             a session id, but without a stream
//	modern                       greet, and answer like a modern board with one tool
//	> METHOD [BODY]              the gateway sends exactly this: the current request
//	keep NAME                    save the current request under a name
//	take NAME                    make a saved request the current one
//	header NAME [VALUE]          the current request has this header, or not
//	< STATUS [NAME=VALUE]* BODY  answer it, and close the connection
//	raw "BYTES"                  the same, byte by byte
//	stream [NAME=VALUE]*         answer it with a stream
//	event LINES                  send an event in the stream; lines are separated by |
//	end                          the stream ends
//	cut                          the connection breaks
//	gone                         the device becomes unreachable
//	silent D                     let time pass; the gateway sends nothing
//	wait D                       let time pass
//	manifest                     the greeting succeeded; its result is the section
//	                             manifest.json
//	not-mine "TEXT"              the greeting failed with TEXT: not this protocol
//	fails "TEXT"                 the greeting failed with TEXT
//	call [D] TOOL [ARGS]         start a call, with deadline D or 30s
//	poll TOOL HANDLE [INPUTS]    ask for a job; INPUTS is the answer to the question "ok"
//	stop TOOL HANDLE             cancel a job
//	cancel                       the caller cancels
//	result JSON                  the call returned this
//	error CODE ran|not "TEXT"    the call failed with TEXT; ran: it may have run
//	hint "TEXT"                  the hint of the error has TEXT
//	ends "TEXT"                  the session ended with TEXT
//	notified METHOD [PARAMS]     the next notification was passed on
//	changed TOOLS                the new manifest has these tools
//	note "TEXT"                  the trace has a note with this text
//
// Empty lines and lines with # are skipped.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				p := newPlayer(t, archive)
				defer p.finish()
				p.play(section(t, archive, "script"))
			})
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func section(t testing.TB, a *txtar.Archive, name string) string {
	t.Helper()
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	t.Fatalf("no section %s", name)
	return ""
}

// httpLink is a link to a server in memory. It implements transport.HTTP as httpclient
// does: one connection per request, one POST at a time, and nothing is sent twice.
type httpLink struct {
	transport.Tracer
	transport *http.Transport
	posts     chan struct{} // holds one element while a POST is unanswered
	accept    chan net.Conn
	closed    chan struct{}
	gone      chan struct{} // closed when the server is gone
}

func newHTTPLink() *httpLink {
	l := &httpLink{posts: make(chan struct{}, 1), accept: make(chan net.Conn), closed: make(chan struct{}), gone: make(chan struct{})}
	l.transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: l.dial}
	return l
}

func (l *httpLink) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.accept <- far:
		return near, nil
	case <-l.gone:
		return nil, fmt.Errorf("%w: connection refused", transport.ErrUnsent)
	case <-l.closed:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, transport.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, ctx.Err())
	}
}

func (l *httpLink) HTTP() (string, http.RoundTripper) { return "http://board/mcp", l }

// RoundTrip implements http.RoundTripper. It ends with the link.
func (l *httpLink) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		select {
		case <-l.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	release := func() {}
	if r.Method == http.MethodPost {
		select {
		case l.posts <- struct{}{}:
			release = sync.OnceFunc(func() { <-l.posts })
		case <-ctx.Done():
			cancel()
			return nil, fmt.Errorf("%w: %w", transport.ErrUnsent, r.Context().Err())
		}
	}
	response, err := l.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		release()
		cancel()
		return nil, err
	}
	if isStream(response) {
		release()
	}
	response.Body = &body{response.Body, func() { release(); cancel() }}
	return response, nil
}

type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (l *httpLink) Recv(ctx context.Context) (transport.Message, error) {
	select {
	case <-l.closed:
		return transport.Message{}, transport.ErrClosed
	case <-ctx.Done():
		return transport.Message{}, ctx.Err()
	}
}

func (l *httpLink) Send(context.Context, transport.Message) error { return transport.ErrUnsent }
func (l *httpLink) Info() transport.Info                          { return transport.Info{Transport: "http", Address: "board"} }

func (l *httpLink) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// received is a request that the server has received.
type received struct {
	conn net.Conn
	*http.Request
	body string
}

// player plays one transcript.
type player struct {
	t        *testing.T
	archive  *txtar.Archive
	link     *httpLink
	requests map[string]chan received // by method
	current  received
	kept     map[string]received
	changes  bool
	changed  chan string
	notes    chan string
	notified chan string
	greeted  chan greeted
	session  protocol.Session
	read     *ferrule.Manifest
	ran      chan error
	stop     context.CancelFunc
	cancel   context.CancelFunc // of the call
	called   chan called
	failure  *ferrule.Error
}

type greeted struct {
	session  protocol.Session
	manifest *ferrule.Manifest
	err      error
}

type called struct {
	result *ferrule.Result
	err    error
}

func newPlayer(t *testing.T, archive *txtar.Archive) *player {
	p := &player{
		t: t, archive: archive, link: newHTTPLink(), kept: make(map[string]received),
		notes: make(chan string, 1000), notified: make(chan string, 1000), changed: make(chan string, 1000),
		requests: map[string]chan received{"POST": make(chan received, 100), "GET": make(chan received, 100), "DELETE": make(chan received, 100)},
	}
	p.link.Observe(func(f transport.Frame) { p.notes <- f.Note })
	go p.serve()
	return p
}

// serve reads requests, one per connection.
func (p *player) serve() {
	for {
		select {
		case conn := <-p.link.accept:
			go func() {
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					conn.Close()
					return
				}
				data, err := io.ReadAll(r.Body)
				if err == nil {
					p.requests[r.Method] <- received{conn, r, string(data)}
				}
			}()
		case <-p.link.closed:
			return
		case <-p.link.gone:
			return
		}
	}
}

// finish ends the session. The synctest bubble reports goroutines that are left.
func (p *player) finish() {
	if p.cancel != nil {
		p.cancel()
	}
	p.link.Close()
	if p.stop != nil {
		p.stop()
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if p.current.conn != nil {
		p.current.conn.Close()
	}
	for _, k := range p.kept {
		k.conn.Close()
	}
	for _, all := range p.requests {
		for len(all) > 0 {
			(<-all).conn.Close()
		}
	}
}

func (p *player) play(script string) {
	for i, line := range strings.Split(script, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if err := p.do(word, rest); err != nil {
			p.t.Fatalf("script line %d: %s\n%v", i+1, line, err)
		}
	}
}

func (p *player) do(word, rest string) error {
	switch word {
	case "changes":
		p.changes = true
	case "keep":
		p.kept[rest] = p.current
	case "take":
		p.current = p.kept[rest]
	case "greet":
		p.greet()
	case "run":
		return p.start()
	case "device":
		p.greet()
		p.play(strings.Join(usualBoard, "\n"))
		return p.start()
	case "modern":
		p.greet()
		p.play(strings.Join(modernBoard, "\n"))
		return p.start()
	case ">":
		return p.expect(rest)
	case "header":
		name, want, _ := strings.Cut(rest, " ")
		if got := p.current.Header.Get(name); got != want {
			return fmt.Errorf("got %q", got)
		}
	case "<":
		return p.answer(rest)
	case "raw":
		text, err := strconv.Unquote(rest)
		return errors.Join(err, p.write(text), p.current.conn.Close())
	case "stream":
		return p.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + headers(strings.Fields(rest)) + "Connection: close\r\n\r\n")
	case "event":
		return p.write(strings.ReplaceAll(rest, "|", "\n") + "\n\n")
	case "end", "cut":
		return p.current.conn.Close()
	case "gone":
		close(p.link.gone)
	case "wait", "silent":
		return p.wait(rest, word == "silent")
	case "manifest":
		return p.manifest()
	case "not-mine", "fails":
		return p.notGreeted(rest, word == "not-mine")
	case "call":
		p.call(rest)
	case "poll", "stop":
		p.job(word, rest)
	case "cancel":
		p.cancel()
	case "result":
		return p.result(rest)
	case "error":
		return p.fails(rest)
	case "hint":
		return contains(p.failure.Hint, rest)
	case "ends":
		return contains(fmt.Sprint(<-p.ran), rest)
	case "notified":
		if got := <-p.notified; got != rest {
			return fmt.Errorf("got %s", got)
		}
	case "changed":
		if got := <-p.changed; got != rest {
			return fmt.Errorf("got %s", got)
		}
	case "note":
		for len(p.notes) > 0 {
			if contains(<-p.notes, rest) == nil {
				return nil
			}
		}
		return errors.New("no such note")
	default:
		return errors.New("unknown command")
	}
	return nil
}

func contains(got, quoted string) error {
	want, err := strconv.Unquote(quoted)
	if err != nil || !strings.Contains(got, want) {
		return fmt.Errorf("got %s, %v", got, err)
	}
	return nil
}

func (p *player) greet() {
	mcp := New(Parts{Version: "1.0"})
	mcp.firstID = func() int { return 1 }
	p.greeted = make(chan greeted, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		session, manifest, err := mcp.Greet(ctx, p.link)
		p.greeted <- greeted{session, manifest, err}
	}()
}

const discover = `> POST {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"ferrule","version":"1.0"},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

const initialize = `> POST {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"capabilities":{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{}},"clientInfo":{"name":"ferrule","version":"1.0"},"protocolVersion":"2025-11-25"}}`

// usualBoard is the greeting of the legacy board in most scripts.
var usualBoard = []string{
	discover,
	`< 200 {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`,
	initialize,
	`< 200 Mcp-Session-Id=s1 {"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":null,"completion":{}},"serverInfo":{"name":"mcpd","version":"0.49"}}}`,
	`> POST {"jsonrpc":"2.0","method":"notifications/initialized"}`,
	`header Mcp-Session-Id s1`,
	`header Mcp-Protocol-Version 2025-11-25`,
	`< 202`,
	`> POST {"jsonrpc":"2.0","id":3,"method":"tools/list","params":{}}`,
	`< 200 Mcp-Session-Id=s1 {"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"led","description":"A lamp","inputSchema":{"type":"object"}}]}}`,
}

// modernBoard is the greeting of a modern board.
var modernBoard = []string{
	discover,
	`header Mcp-Method server/discover`,
	`header Mcp-Protocol-Version 2026-07-28`,
	`< 200 {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"1"}}}}`,
	`> POST {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"ferrule","version":"1.0"},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
	`< 200 {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[{"name":"led","inputSchema":{"type":"object"}}]}}`,
}

// start takes the session out of the greeting and runs it.
func (p *player) start() error {
	g := <-p.greeted
	if g.err != nil {
		return g.err
	}
	p.session, p.read = g.session, g.manifest
	p.session.(protocol.Notifier).Notify(func(method string, params json.RawMessage) {
		p.notified <- strings.TrimSpace(method + " " + string(params))
	})
	if p.changes {
		p.session.(protocol.Changer).Changed(func(m *ferrule.Manifest) {
			var tools []string
			for _, t := range m.Tools {
				tools = append(tools, t.Name)
			}
			p.changed <- strings.Join(tools, " ")
		}, func(*ferrule.Call) error { return nil })
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.ran = stop, make(chan error, 1)
	go func() { p.ran <- p.session.Run(ctx) }()
	return nil
}

func (p *player) expect(rest string) error {
	method, want, _ := strings.Cut(rest, " ")
	select {
	case p.current = <-p.requests[method]:
	case <-time.After(3 * time.Minute):
		return errors.New("the gateway sent nothing")
	}
	if p.current.body != want {
		return fmt.Errorf("the gateway sent %s", p.current.body)
	}
	return nil
}

func (p *player) write(text string) error {
	p.current.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := io.WriteString(p.current.conn, text)
	return err
}

func headers(fields []string) (lines string) {
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		lines += name + ": " + value + "\r\n"
	}
	return lines
}

func (p *player) answer(rest string) error {
	status, rest, _ := strings.Cut(rest, " ")
	var fields []string
	for rest != "" && !strings.ContainsAny(rest[:1], `{["`) {
		var f string
		f, rest, _ = strings.Cut(rest, " ")
		fields = append(fields, f)
	}
	err := p.write(fmt.Sprintf("HTTP/1.1 %s OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, headers(fields), len(rest), rest))
	return errors.Join(err, p.current.conn.Close())
}

func (p *player) wait(rest string, silent bool) error {
	d, err := time.ParseDuration(rest)
	time.Sleep(d)
	synctest.Wait()
	for method, all := range p.requests {
		if n := len(all); silent && n > 0 {
			return fmt.Errorf("the gateway sent %d times %s", n, method)
		}
	}
	return err
}

func (p *player) manifest() error {
	if p.session == nil {
		if err := p.start(); err != nil {
			return err
		}
	}
	p.read.Bound()
	got, err := json.MarshalIndent(p.read, "", "\t")
	if err != nil {
		return err
	}
	got = append(got, '\n')
	for i, f := range p.archive.Files {
		if f.Name == "manifest.json" && *update {
			p.archive.Files[i].Data = got
		}
	}
	if want := section(p.t, p.archive, "manifest.json"); want != string(got) {
		return fmt.Errorf("got %s", got)
	}
	return nil
}

func (p *player) notGreeted(rest string, notMine bool) error {
	g := <-p.greeted
	if g.err == nil || errors.Is(g.err, protocol.ErrNotMine) != notMine {
		return fmt.Errorf("got %v", g.err)
	}
	return contains(g.err.Error(), rest)
}

func (p *player) call(rest string) {
	timeout := 30 * time.Second
	if word, more, _ := strings.Cut(rest, " "); word != "" {
		if d, err := time.ParseDuration(word); err == nil {
			timeout, rest = d, more
		}
	}
	tool, args, _ := strings.Cut(rest, " ")
	var ctx context.Context
	ctx, p.cancel = context.WithTimeout(context.Background(), timeout)
	p.called = make(chan called, 1)
	go func() {
		result, err := p.session.Invoke(ctx, &ferrule.Call{Device: "board", Tool: tool, Args: json.RawMessage(args), Timeout: ferrule.Duration(timeout)})
		p.called <- called{result, err}
	}()
}

func (p *player) result(rest string) error {
	c := <-p.called
	if c.err != nil {
		return c.err
	}
	got, err := json.Marshal(c.result)
	if err != nil || !bytes.Equal(got, []byte(rest)) {
		return fmt.Errorf("got %s, %v", got, err)
	}
	return nil
}

func (p *player) fails(rest string) error {
	fields := strings.SplitN(rest, " ", 3)
	c := <-p.called
	if !errors.As(c.err, &p.failure) || string(p.failure.Code) != fields[0] || p.failure.MayHaveRun() != (fields[1] == "ran") {
		return fmt.Errorf("got %#v", c.err)
	}
	return contains(p.failure.Message, fields[2])
}
