package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/server"
)

// client is an agent program that writes lines as it likes.
type client struct {
	t   *testing.T
	in  io.WriteCloser
	out chan []byte // lines of the server
}

// serve starts a session of a proxy with one board.
func serve(t *testing.T) (*client, *Proxy) {
	t.Helper()
	p := newProxyWithRobot()
	in, agentOut := io.Pipe()
	agentIn, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.serve(ctx, in, out) }()
	t.Cleanup(func() {
		cancel()
		agentOut.Close()
		agentIn.Close()
		if err := <-ended; err != nil {
			t.Errorf("the session ended: %v", err)
		}
	})
	c := &client{t, agentOut, make(chan []byte, 1000)}
	go func() {
		defer close(c.out)
		lines := bufio.NewScanner(agentIn)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			c.out <- bytes.Clone(lines.Bytes())
		}
	}()
	return c, p
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// message is a line of the server.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Result json.RawMessage `json:"result"`
}

func (c *client) next() (m message) {
	c.t.Helper()
	line, ok := <-c.out
	if !ok {
		c.t.Fatal("no answer")
	}
	if err := json.Unmarshal(line, &m); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return m
}

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestClientSpeaksFirst checks that changes of the tool list are not announced before the
// client has initialized, and are announced later.
func TestClientSpeaksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := serve(t)
		change := func() {
			p.Remove("robot")
			time.Sleep(time.Minute) // changes are announced after a moment
			p.Put(robot())
			time.Sleep(time.Minute)
		}
		change()
		c.send(`{"jsonrpc":"2.0","id":"early","method":"ping"}`)
		if m := c.next(); string(m.ID) != `"early"` {
			t.Fatalf("the first line is %+v, want the answer to ping", m)
		}
		change()
		c.send(initialize)
		if m := c.next(); string(m.ID) != "1" || m.Result == nil {
			t.Fatalf("the next line is %+v, want the answer to initialize", m)
		}
		c.send(initialized)
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		for m := c.next(); string(m.ID) != "2"; m = c.next() {
		}
		change()
		if m := c.next(); !strings.HasSuffix(m.Method, "/list_changed") {
			t.Errorf("got %+v, want a notification", m)
		}
	})
}

// TestBadLines checks that a line that is not a message is answered with an error, and that
// the session goes on.
func TestBadLines(t *testing.T) {
	c, _ := serve(t)
	c.send(initialize)
	c.next()
	c.send(initialized)
	for _, test := range []struct {
		line, id string
		code     int
	}{
		{"hello", "null", parseError},
		{`{"jsonrpc":"2.0","id":7,"method":"ping"`, "null", parseError},
		{initialized + initialized, "null", parseError},
		{strings.Repeat("x", server.MaxLine+1), "null", parseError},
		{"42", "null", invalidRequest},
		{`{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}`, "null", invalidRequest},
		{"[]", "null", invalidRequest},
		{`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, "null", invalidRequest},
		{`{"id":7,"method":"ping"}`, "7", invalidRequest},
		{`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, "null", invalidRequest},
		{`{"jsonrpc":"2.0","id":7,"method":8}`, "7", invalidRequest},
	} {
		c.send(test.line)
		for {
			m := c.next()
			if m.Method != "" {
				continue // a notification
			}
			if m.Error == nil || m.Error.Code != test.code || string(m.ID) != test.id {
				t.Errorf("%.60s: got %s %+v, want %d", test.line, m.ID, m.Error, test.code)
			}
			break
		}
	}
	c.send("\r")
	c.send(`{"jsonrpc":"2.0","id":"still","method":"ping"}`)
	for m := c.next(); string(m.ID) != `"still"`; m = c.next() {
	}
}

// TestBatches checks that a client of an old protocol version may send batches.
func TestBatches(t *testing.T) {
	c, _ := serve(t)
	c.send(strings.Replace(initialize, "2025-06-18", "2025-03-26", 1))
	c.next()
	c.send(initialized)
	c.send(`[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","id":7,"method":"ping"}]`)
	if m := c.next(); m.Error == nil || m.Error.Code != invalidRequest {
		t.Errorf("one ID twice: got %+v", m)
	}
	c.send(`[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","id":8,"method":"ping"}]`)
	if line := <-c.out; !bytes.HasPrefix(line, []byte("[")) {
		t.Errorf("got %s", line)
	}
}

// FuzzLines checks that only complete messages reach the session, one per line.
func FuzzLines(f *testing.F) {
	for _, line := range []string{initialize, initialized, "hello\n{}\n[]", `[` + initialized + `]`, "\n\r\n" + initialized, `{"jsonrpc":"2.0","id":{},"method":1}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		l := newLines(io.NopCloser(bytes.NewReader(data)), struct {
			io.Writer
			io.Closer
		}{&out, io.NopCloser(nil)})
		passed, err := io.ReadAll(l)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(passed) {
			if line = bytes.TrimSpace(line); line[0] != '[' && server.CheckMessage(line) != nil {
				t.Errorf("%q reached the session", line)
			}
		}
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) {
				t.Errorf("%q was answered", line)
			}
		}
	})
}
