package httpclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// speaker is a device that answers each request on a connection as it is told.
type speaker struct {
	url string
	mu  sync.Mutex
	// texts are the requests as they arrived; conns counts connections.
	texts []string
	conns int
}

// newSpeaker returns a speaker. Answer gets the number of the request on its connection and
// writes the response; it returns false to close the connection.
func newSpeaker(t testing.TB, answer func(conn net.Conn, n int) bool) *speaker {
	t.Helper()
	return speakerAt(t, "http", answer, func(ln net.Listener) net.Listener { return ln })
}

func speakerAt(t testing.TB, scheme string, answer func(conn net.Conn, n int) bool, wrap func(net.Listener) net.Listener) *speaker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &speaker{url: scheme + "://" + ln.Addr().String() + "/mcp"}
	ln = wrap(ln)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn, answer)
		}
	}()
	return s
}

func (s *speaker) serve(conn net.Conn, answer func(conn net.Conn, n int) bool) {
	defer conn.Close()
	s.mu.Lock()
	s.conns++
	s.mu.Unlock()
	var text bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &text))
	for n := 0; ; n++ {
		text.Reset()
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.texts = append(s.texts, text.String())
		s.mu.Unlock()
		if !answer(conn, n) {
			return
		}
	}
}

// counts returns the numbers of requests and connections.
func (s *speaker) counts() (requests, conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.texts), s.conns
}

const fine = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

// TestRequestLength: a body always has a length, because many boards cannot read any other.
func TestRequestLength(t *testing.T) {
	s := newSpeaker(t, func(conn net.Conn, _ int) bool { io.WriteString(conn, fine); return true })
	_, url, client := open(t, httpclient.Device{URL: s.url, Token: "secret"})
	for _, r := range []struct{ method, body, length string }{
		{http.MethodPost, "{}", "2"}, {http.MethodPost, "", "0"},
		{http.MethodDelete, "", ""}, {http.MethodGet, "", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, url, io.MultiReader(strings.NewReader(r.body))) // of unknown length
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		s.mu.Lock()
		text := s.texts[len(s.texts)-1]
		s.mu.Unlock()
		if !strings.HasPrefix(text, r.method+" /mcp HTTP/1.1\r\n") || !strings.HasSuffix(text, "\r\n\r\n"+r.body) ||
			strings.Contains(text, "Transfer-Encoding") || !strings.Contains(text, "Authorization: Bearer secret\r\n") {
			t.Errorf("%s with %q was sent as %q", r.method, r.body, text)
		}
		_, length, _ := strings.Cut(text, "Content-Length: ")
		if length, _, _ = strings.Cut(length, "\r\n"); length != r.length {
			t.Errorf("%s with %q was sent as %q", r.method, r.body, text)
		}
	}
}

// TestProvisional: provisional responses are skipped, and no other protocol is spoken.
func TestProvisional(t *testing.T) {
	early := "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
	for name, c := range map[string]struct {
		answer string
		want   string // of the error; empty for none
	}{
		"a few":     {strings.Repeat(early, 20) + fine, ""},
		"switching": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + fine, "another protocol"},
		"endless":   {strings.Repeat(early, 5000) + fine, "header limit is 65536 bytes"},
		"garbage":   {"hello\r\n\r\n", "malformed HTTP"},
		"nothing":   {"", "closed the connection without an answer"},
		"half":      {"HTTP/1.1 200 OK\r\nContent-Type: x\r\n", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpeaker(t, func(conn net.Conn, _ int) bool { io.WriteString(conn, c.answer); return false })
			_, url, client := open(t, httpclient.Device{URL: s.url})
			_, answer, err := post(client, url, "{}")
			switch {
			case c.want == "" && (err != nil || answer != "{}"):
				t.Errorf("%q, %v", answer, err)
			case c.want != "" && (err == nil || errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
			if requests, _ := s.counts(); requests != 1 {
				t.Errorf("the request arrived %d times", requests)
			}
		})
	}
}

// TestIdleNoise: what a device sends on an idle connection is not the response to the next
// request, and a connection that it has closed is not used again. Neither costs a change.
func TestIdleNoise(t *testing.T) { idleNoise(t, 20, newSpeaker) }

// patient gives TLS time, which is slow with the race detector.
func patient(c *httpclient.Config) { c.DialTimeout = time.Minute }

func idleNoise(t *testing.T, times int, speak func(t testing.TB, answer func(conn net.Conn, n int) bool) *speaker) {
	const noise = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnoise"
	for name, after := range map[string]func(conn net.Conn){
		"a response": func(conn net.Conn) { io.WriteString(conn, noise) },
		"a late response": func(conn net.Conn) {
			time.Sleep(5 * time.Millisecond)
			io.WriteString(conn, noise)
		},
		"a line end": func(conn net.Conn) { io.WriteString(conn, "\r\n") },
		"the end":    func(conn net.Conn) { conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{}, 100)
			s := speak(t, func(conn net.Conn, n int) bool {
				io.WriteString(conn, fine)
				after(conn)
				done <- struct{}{}
				return true
			})
			link, url, client := open(t, httpclient.Device{URL: s.url}, patient)
			for i := range times {
				if _, answer, err := post(client, url, fmt.Sprint(i)); err != nil || answer != "{}" {
					t.Fatalf("request %d: %q, %v", i, answer, err)
				}
				<-done
				wait.For(t, "it arrives here", func() bool { return !httpclient.Idle(link) })
			}
			if requests, conns := s.counts(); requests != times || conns != times {
				t.Errorf("%d requests on %d connections", requests, conns)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, text := range s.texts {
				if strings.Contains(text, "Connection: close") { // as for a device that drops requests
					t.Errorf("sent %q", text)
				}
			}
		})
	}
}

// TestLateLineEnd: some boards write a line end after the response. It may arrive when the next
// request is on its way.
func TestLateLineEnd(t *testing.T) {
	s := newSpeaker(t, func(conn net.Conn, n int) bool {
		if n > 0 {
			io.WriteString(conn, "\r\n")
		}
		io.WriteString(conn, fine)
		return true
	})
	_, url, client := open(t, httpclient.Device{URL: s.url})
	for i := range 3 {
		if _, answer, err := post(client, url, fmt.Sprint(i)); err != nil || answer != "{}" {
			t.Errorf("request %d: %q, %v", i, answer, err)
		}
	}
	if requests, conns := s.counts(); requests != 3 || conns != 1 {
		t.Errorf("%d requests on %d connections", requests, conns)
	}
}

// TestEarlyAnswer: a device may refuse a request by its header, and close the connection
// before it has read the body.
func TestEarlyAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 100))
			io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
			conn.(*net.TCPConn).CloseRead() // what it has not read is lost
			time.Sleep(10 * time.Millisecond)
			conn.Close()
		}
	}()
	_, url, client := open(t, httpclient.Device{URL: "http://" + ln.Addr().String()})
	body := strings.Repeat("x", 16<<20) // more than the buffers of both sides
	for range 20 {
		status, _, err := post(client, url, body)
		if status == http.StatusRequestEntityTooLarge {
			return
		}
		if errors.Is(err, transport.ErrUnsent) {
			t.Fatal(err)
		}
		// The reset of the connection came before the response and erased it.
	}
	t.Error("the refusal was never seen")
}

// TestStopsReading: the error of a device that stops reading is that of one that does not
// answer, and the request may have run.
func TestStopsReading(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()     // it waits
	b := newBoard(t) // it does not accept
	_, url, client := open(t, httpclient.Device{URL: b.url})
	_, _, err := post(client, url, strings.Repeat("x", 16<<20))
	if err == nil || errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("got %v", err)
	}
}

// TestQueueOfDropper: of the requests that wait when a device drops one, none is lost.
func TestQueueOfDropper(t *testing.T) {
	d := newDropper(t, 2)
	_, url, client := open(t, httpclient.Device{URL: d.url})
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range 20 {
		wg.Go(func() {
			if d.post(t, client, url, fmt.Sprint(i), true) != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() > 1 {
		t.Errorf("%d changes may or may not have run", failed.Load())
	}
}

// TestCanceledBody: a caller that leaves in the middle of a response gets its error at once, and
// the next request has a connection of its own.
func TestCanceledBody(t *testing.T) {
	half := make(chan struct{})
	s := newSpeaker(t, func(conn net.Conn, n int) bool {
		if n > 0 {
			t.Error("the connection was used again")
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf")
		half <- struct{}{}
		return true
	})
	_, url, client := open(t, httpclient.Device{URL: s.url})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-half
			cancel()
		}()
		resp, err := client.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, transport.ErrUnsent) {
			t.Errorf("got %v", err)
		}
	}
}

// TestCloseInStream: closing a stream, or its link, also ends a reader that waits for it.
func TestCloseInStream(t *testing.T) {
	s := newSpeaker(t, func(conn net.Conn, _ int) bool {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")
		return true
	})
	for name, end := range map[string]func(link transport.Link, stream io.Closer){
		"link":   func(link transport.Link, _ io.Closer) { link.Close() },
		"stream": func(_ transport.Link, stream io.Closer) { stream.Close() },
	} {
		link, url, client := open(t, httpclient.Device{URL: s.url})
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		event := make([]byte, len("data: {}\n\n"))
		if _, err := io.ReadFull(resp.Body, event); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(resp.Body)
			ended <- err
		}()
		end(link, resp.Body)
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: the reader got no error", name)
			}
		case <-time.After(wait.Ample):
			t.Fatalf("%s: the reader still waits", name)
		}
	}
}

// FuzzResponse answers with any bytes, on a new connection and on one that was used before. The
// request arrives once, and nothing claims that it was not sent.
func FuzzResponse(f *testing.F) {
	for _, answer := range []string{
		fine, "", "HTTP/1.0 200 OK\r\n\r\n{}", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n" + fine, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
	} {
		f.Add([]byte(answer), false)
		f.Add([]byte(answer), true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, used bool) {
		s := newSpeaker(t, func(conn net.Conn, n int) bool {
			if used && n == 0 {
				io.WriteString(conn, fine)
				return true
			}
			conn.Write(answer)
			return false
		})
		link, url, client := open(t, httpclient.Device{URL: s.url})
		defer link.Close()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if used {
			if _, answer, err := post(client, url, "{}"); err != nil || answer != "{}" {
				t.Fatalf("%q, %v", answer, err)
			}
		}
		before, _ := s.counts()
		_, _, err := post(client, url, "{}")
		if after, _ := s.counts(); after != before+1 || errors.Is(err, transport.ErrUnsent) {
			t.Errorf("the request arrived %d times: %v", after-before, err)
		}
	})
}
