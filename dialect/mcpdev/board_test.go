package mcpdev_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
)

// board is a server as mcpd is: it serves one connection at a time and closes it, keeps
// streams beside, and has one session.
type board struct {
	t       *testing.T
	ln      net.Listener
	session atomic.Pointer[string] // nil after a restart
	fired   atomic.Int64
	silent  atomic.Int64 // connections that said nothing
}

func newBoard(t *testing.T) *board {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &board{t: t, ln: ln}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			b.serve(conn)
		}
	}()
	return b
}

func (b *board) url() string { return "http://" + b.ln.Addr().String() + "/mcp" }

func (b *board) serve(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		b.silent.Add(1)
		conn.Close()
		return
	}
	if r.Method == http.MethodGet {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nevent: endpoint\ndata: /mcp\n\n")
		b.t.Cleanup(func() { conn.Close() })
		return
	}
	defer conn.Close()
	var asked struct {
		ID     json.RawMessage
		Method string
	}
	json.NewDecoder(r.Body).Decode(&asked)
	status, result := "200 OK", ""
	switch session := b.session.Load(); {
	case r.Header.Get("Mcp-Session-Id") != "" && session != nil && r.Header.Get("Mcp-Session-Id") != *session:
		status, result = "404 Not Found", `"error":{"code":-32600,"message":"Invalid session"}`
	case asked.Method == "initialize":
		id := fmt.Sprint("s", time.Now().UnixNano())
		b.session.Store(&id)
		result = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"sampling":{},"roots":{}},"serverInfo":{"name":"mcpd","version":"0.49"}}`
	case asked.Method == "tools/list":
		result = `"result":{"tools":[{"name":"fire","inputSchema":{"type":"object"}}]}`
	case asked.Method == "tools/call":
		result = fmt.Sprintf(`"result":{"content":[{"type":"text","text":"%d"}]}`, b.fired.Add(1))
	default:
		result = `"error":{"code":-32601,"message":"Method not found"}`
	}
	header := ""
	if session := b.session.Load(); session != nil {
		header = "Mcp-Session-Id: " + *session + "\r\n"
	}
	if asked.ID == nil {
		io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, asked.ID, result)
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, header, len(body), body)
}

// TestBoard: a board that serves one connection at a time is never kept waiting; when it
// was restarted, or another program has begun a session, it is greeted again, and what
// ran is known.
func TestBoard(t *testing.T) {
	b := newBoard(t)
	m := meet(t, b.url())
	began := time.Now()
	for n := 1; n <= 5; n++ {
		if got := m.do(ferrule.Call{Tool: "fire"}); got != fmt.Sprintf(`{"value":%d}`, n) {
			t.Errorf("call %d: %s", n, got)
		}
	}
	if took := time.Since(began); took > 2*time.Second || b.silent.Load() != 0 {
		t.Errorf("it took %v, and %d connections said nothing", took, b.silent.Load())
	}
	b.session.Store(nil) // it was restarted
	if got := m.do(ferrule.Call{Tool: "fire"}); got != `{"value":6}` {
		t.Errorf("after a restart: %s", got)
	}
	if err := <-m.ran; err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("it ended with %v", err)
	}
	first, second := meet(t, b.url()), meet(t, b.url())
	if got := first.do(ferrule.Call{Tool: "fire"}); !strings.Contains(got, `"code":"refused"`) {
		t.Errorf("a session that another took: %s", got)
	}
	if err := <-first.ran; err == nil || !strings.Contains(err.Error(), "forgotten") {
		t.Errorf("it ended with %v", err)
	}
	if got := second.do(ferrule.Call{Tool: "fire"}); got != `{"value":7}` {
		t.Errorf("the session that there is: %s", got)
	}
}
