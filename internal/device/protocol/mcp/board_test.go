package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// board is a server like mcpd: it serves one connection at a time and closes it, keeps
// streams open, and has one session.
type board struct {
	t       *testing.T
	ln      net.Listener
	session atomic.Pointer[string] // nil after a restart
	fired   atomic.Int64
	silent  atomic.Int64 // connections without a request
	extra   atomic.Bool  // it has another tool

	mu      sync.Mutex
	streams []net.Conn
}

func newBoard(t *testing.T) *board {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &board{t: t, ln: ln}
	t.Cleanup(func() { ln.Close(); b.endStreams() })
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

// endStreams closes the streams, as boards do every few minutes, and returns how many.
func (b *board) endStreams() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.streams {
		conn.Close()
	}
	n := len(b.streams)
	b.streams = nil
	return n
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
		b.mu.Lock()
		defer b.mu.Unlock()
		b.streams = append(b.streams, conn)
		return
	}
	defer conn.Close()
	var request struct {
		ID     json.RawMessage
		Method string
	}
	json.NewDecoder(r.Body).Decode(&request)
	status, result := "200 OK", ""
	switch session := b.session.Load(); {
	case r.Header.Get("Mcp-Session-Id") != "" && session != nil && r.Header.Get("Mcp-Session-Id") != *session:
		status, result = "404 Not Found", `"error":{"code":-32600,"message":"Invalid session"}`
	case request.Method == "initialize":
		id := fmt.Sprint("s", time.Now().UnixNano())
		b.session.Store(&id)
		result = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"sampling":{},"roots":{}},"serverInfo":{"name":"mcpd","version":"0.49"}}`
	case request.Method == "tools/list":
		tools := `{"name":"fire","inputSchema":{"type":"object"}}`
		if b.extra.Load() {
			tools += `,{"name":"extra","inputSchema":{"type":"object"}}`
		}
		result = `"result":{"tools":[` + tools + `]}`
	case request.Method == "tools/call":
		result = fmt.Sprintf(`"result":{"content":[{"type":"text","text":"%d"}]}`, b.fired.Add(1))
	default:
		result = `"error":{"code":-32601,"message":"Method not found"}`
	}
	header := ""
	if session := b.session.Load(); session != nil {
		header = "Mcp-Session-Id: " + *session + "\r\n"
	}
	if request.ID == nil {
		io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, request.ID, result)
	fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, header, len(body), body)
}

// TestBoard: a board that serves one connection at a time is not blocked. After a restart,
// or when another client starts a session, the session ends, and calls have the right
// outcome.
func TestBoard(t *testing.T) {
	b := newBoard(t)
	m := connect(t, b.url())
	began := time.Now()
	for n := 1; n <= 5; n++ {
		if got := m.do(ferrule.Call{Tool: "fire"}); got != fmt.Sprintf(`{"value":%d}`, n) {
			t.Errorf("call %d: %s", n, got)
		}
	}
	if took := time.Since(began); took > 2*time.Second || b.silent.Load() != 0 {
		t.Errorf("it took %v, with %d connections without a request", took, b.silent.Load())
	}
	b.session.Store(nil) // a restart
	if got := m.do(ferrule.Call{Tool: "fire"}); got != `{"value":6}` {
		t.Errorf("after a restart: %s", got)
	}
	if err := <-m.ran; err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("it ended with %v", err)
	}
	first, second := connect(t, b.url()), connect(t, b.url())
	if got := first.do(ferrule.Call{Tool: "fire"}); !strings.Contains(got, `"code":"refused"`) {
		t.Errorf("a session that another client ended: %s", got)
	}
	if err := <-first.ran; err == nil || !strings.Contains(err.Error(), "does not know the session") {
		t.Errorf("it ended with %v", err)
	}
	if got := second.do(ferrule.Call{Tool: "fire"}); got != `{"value":7}` {
		t.Errorf("the current session: %s", got)
	}
}

// TestBoardMissed: list changes are missed while the stream is closed. The lists are read
// when it is open again.
func TestBoardMissed(t *testing.T) {
	b := newBoard(t)
	h := startGateway(t, b.url())
	until(t, "the board", h.online)
	var ended int
	until(t, "its stream", func() bool { ended = b.endStreams(); return ended > 0 })
	b.extra.Store(true)
	until(t, "the new tool", func() bool { dev, _ := h.robot(); return dev.Waiting == 1 })
	if dev, _ := h.robot(); dev.State != ferrule.StateOnline {
		t.Errorf("state %s", dev.State)
	}
}
