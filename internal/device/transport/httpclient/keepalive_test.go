package httpclient_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
)

// keeper is a device that can announce how long it keeps connections open.
type keeper struct {
	*httptest.Server
	mu          sync.Mutex
	connections int
	open        int
	requests    int
	closing     int // requests with Connection: close
}

func newKeeper(t *testing.T, answer http.HandlerFunc) *keeper {
	t.Helper()
	k := &keeper{}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		k.requests++
		if r.Close {
			k.closing++
		}
		k.mu.Unlock()
		io.Copy(io.Discard, r.Body)
		answer(w, r)
	}))
	k.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch state {
		case http.StateNew:
			k.connections++
			k.open++
		case http.StateClosed:
			k.open--
		}
	}
	k.Start()
	t.Cleanup(k.Close)
	return k
}

// until waits for a number of open connections.
func (k *keeper) until(t *testing.T, open int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		now := k.open
		k.mu.Unlock()
		if now == open {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are open, want %d", now, open)
		}
	}
}

// inJSON responds at once.
func inJSON(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "{}")
}

// inStream responds with an event and ends the stream a moment later.
func inStream(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {}\n\n")
	w.(http.Flusher).Flush()
	time.Sleep(5 * time.Millisecond)
}

// withKeepAlive adds a Keep-Alive header to a response.
func withKeepAlive(header string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", header)
		answer(w, r)
	}
}

// postOne posts, reads the first line of the response, cancels the request, and waits
// for the rest to arrive.
func postOne(t *testing.T, client *http.Client, url string, alone bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = alone
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if !strings.Contains(line, "{}") {
		t.Fatalf("%q, %v", line, err)
	}
	resp.Body.Close()
	cancel()
	time.Sleep(20 * time.Millisecond)
}

// TestKeepAlive: connections are reused only if a device announces that it keeps them
// open, and only by requests without Close.
func TestKeepAlive(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		shared bool
	}{
		"no header":                {inJSON, false},
		"a header":                 {withKeepAlive("timeout=5, max=1000", inJSON), true},
		"a header before a stream": {withKeepAlive("timeout=120", inStream), true},
		"too short":                {withKeepAlive("timeout=4", inJSON), false},
		"too long":                 {withKeepAlive("timeout=99999999999999999999", inJSON), false},
		"no timeout":               {withKeepAlive("max=100", inStream), false},
		"a header, but it closes": {withKeepAlive("timeout=60", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			inJSON(w, r)
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t, test.answer)
			link, url, client := open(t, httpclient.Device{URL: k.URL})
			postOne(t, client, url, false) // the header is not known yet
			k.until(t, 0)
			for range 25 {
				postOne(t, client, url, false)
			}
			for range 3 {
				postOne(t, client, url, true)
			}
			postOne(t, client, url, false)
			k.mu.Lock()
			connections, closing, requests := k.connections, k.closing, k.requests
			k.mu.Unlock()
			low, high, alone := 30, 30, 30
			if test.shared { // the first and the three with Close have one each; the others share, if the last one was drained in time
				low, high, alone = 5, 9, 4
			}
			if connections < low || connections > high || requests != 30 {
				t.Errorf("%d requests on %d connections, want %d to %d", requests, connections, low, high)
			}
			if test.shared && closing != alone {
				t.Errorf("%d requests with Connection: close, want %d", closing, alone)
			}
			link.Close()
			k.until(t, 0)
		})
	}
}

// TestIdleConnection: an idle connection is closed soon.
func TestIdleConnection(t *testing.T) {
	k := newKeeper(t, withKeepAlive("timeout=60", inStream))
	_, url, client := open(t, httpclient.Device{URL: k.URL})
	postOne(t, client, url, false)
	k.until(t, 0)
	postOne(t, client, url, false) // kept open
	began := time.Now()
	k.until(t, 0)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closed after %v", took)
	}
}

// TestKeepAliveCanceled: canceling a request closes its connection at once, so the
// device notices.
func TestKeepAliveCanceled(t *testing.T) {
	gone := make(chan time.Time, 1)
	k := newKeeper(t, withKeepAlive("timeout=60", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			inJSON(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": wait\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- time.Now()
	}))
	_, url, client := open(t, httpclient.Device{URL: k.URL})
	postOne(t, client, url, false)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?wait", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	cancel()
	resp.Body.Close()
	if took := (<-gone).Sub(left); took > 500*time.Millisecond {
		t.Errorf("the device noticed after %v", took)
	}
}

// TestKeepAliveBroken: a device that announces keep-alive but closes connections gets
// no request twice.
func TestKeepAliveBroken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	var mu sync.Mutex
	requests := 0
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				io.Copy(io.Discard, req.Body)
				mu.Lock()
				requests++
				mu.Unlock()
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			}
			conn.Close()
		}
	}()
	_, url, client := open(t, httpclient.Device{URL: "http://" + ln.Addr().String()})
	for range 10 {
		postOne(t, client, url, false)
	}
	failed := 0
	for range 100 { // without a pause: some meet a connection that is just closing
		resp, err := client.Post(url, "application/json", strings.NewReader("{}"))
		if err != nil {
			failed++
			continue
		}
		resp.Body.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if requests > 110 || requests < 110-failed {
		t.Errorf("%d of 110 requests arrived, and %d failed", requests, failed)
	}
}
