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
)

// board is a server as microcontrollers have it: it serves one connection at a
// time, closes it after its answer, and waits on one that says nothing. A stream is
// kept beside.
type board struct {
	t   *testing.T
	ln  net.Listener
	url string
	// answer writes the body of an answer to a post, and may take its time.
	answer func(r *http.Request, body []byte) string
	// stream is written to whoever gets, and then held open.
	stream string

	conns, silent atomic.Int64
	posts         atomic.Int64
}

// newBoard starts a board that sends back what is posted.
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
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
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

// plain is an answer of JSON.
func plain(status, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body)
}

// post sends body, and returns the answer.
func post(client *http.Client, url, body string) (status int, answer string, err error) {
	r, err := client.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	return r.StatusCode, string(data), err
}
