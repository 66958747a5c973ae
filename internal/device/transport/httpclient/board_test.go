package httpclient_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// board is a server like those on microcontrollers: it serves one connection at a
// time, closes it after the response, and waits on a silent one. An event stream is
// kept open in addition.
type board struct {
	t   *testing.T
	ln  net.Listener
	url string
	// answer returns the response to a post. It may block.
	answer func(r *http.Request, body []byte) string
	// stream is the response to a GET, which is then kept open.
	stream string

	conns, silent atomic.Int64
	posts         atomic.Int64
}

// newBoard returns a board that echoes posts.
func newBoard(t *testing.T) *board {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &board{t: t, ln: ln, url: "http://" + ln.Addr().String() + "/mcp"}
	b.answer = func(_ *http.Request, body []byte) string { return plain("200 OK", string(body)) }
	t.Cleanup(func() { ln.Close() })
	return b
}

func (b *board) start() *board {
	go func() {
		for {
			conn, err := b.ln.Accept()
			if err != nil {
				return
			}
			b.conns.Add(1)
			b.serve(conn)
		}
	}()
	return b
}

func (b *board) serve(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(wait.Ample))
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		b.silent.Add(1)
		conn.Close()
		return
	}
	if r.Method == http.MethodGet {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"+b.stream)
		b.t.Cleanup(func() { conn.Close() })
		return
	}
	body, _ := io.ReadAll(r.Body)
	b.posts.Add(1)
	io.WriteString(conn, b.answer(r, body))
	conn.Close()
}

// plain returns a JSON response.
func plain(status, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body)
}

// post sends body and returns the response.
func post(client *http.Client, url, body string) (status int, answer string, err error) {
	r, err := client.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	return r.StatusCode, string(data), err
}
