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

// keeper is a device that says how long it keeps connections open.
type keeper struct {
	*httptest.Server
	mu          sync.Mutex
	connections int
	open        int
	requests    int
	closing     int // requests that ask for the connection to be closed
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

// until waits until so many connections are open.
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

// inJSON answers at once.
func inJSON(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "{}")
}

// inStream answers with an event, and ends the stream a moment later.
func inStream(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {}\n\n")
	w.(http.Flusher).Flush()
	time.Sleep(5 * time.Millisecond)
}

// saying has an answer say how long connections are kept open.
func saying(header string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", header)
		answer(w, r)
	}
}

// postOne posts something, reads as much of the answer as it needs, is gone then, and waits
// until the rest has come.
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

// TestKeep: connections are used again only where a device says that it keeps them open, and
// only by requests that do not want one of their own.
func TestKeep(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		shared bool
	}{
		"says nothing":        {inJSON, false},
		"says it":             {saying("timeout=5, max=1000", inJSON), true},
		"says it in a stream": {saying("timeout=120", inStream), true},
		"not for long":        {saying("timeout=4", inJSON), false},
		"for too long":        {saying("timeout=99999999999999999999", inJSON), false},
		"something else":      {saying("max=100", inStream), false},
		"says it, and does not": {saying("timeout=60", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			inJSON(w, r)
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t, test.answer)
			link, url, client := open(t, httpclient.Device{URL: k.URL})
			postOne(t, client, url, false) // nothing is known yet
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
			least, most, alone := 30, 30, 30
			if test.shared { // the first knows nothing, three want one of their own, and the others share, if the last has come to its end
				least, most, alone = 5, 9, 4
			}
			if connections < least || connections > most || requests != 30 {
				t.Errorf("%d requests on %d connections, want %d to %d", requests, connections, least, most)
			}
			if test.shared && closing != alone {
				t.Errorf("%d requests ask for their connection to be closed, want %d", closing, alone)
			}
			link.Close()
			k.until(t, 0)
		})
	}
}

// TestKeepEnds: a connection that nothing is sent on ends by itself, soon.
func TestKeepEnds(t *testing.T) {
	k := newKeeper(t, saying("timeout=60", inStream))
	_, url, client := open(t, httpclient.Device{URL: k.URL})
	postOne(t, client, url, false)
	k.until(t, 0)
	postOne(t, client, url, false) // it is kept
	began := time.Now()
	k.until(t, 0)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestKeepCancelled: who goes away ends the connection at once, which tells the device.
func TestKeepCancelled(t *testing.T) {
	gone := make(chan time.Time, 1)
	k := newKeeper(t, saying("timeout=60", func(w http.ResponseWriter, r *http.Request) {
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
		t.Errorf("the device was told after %v", took)
	}
}

// TestKeepBroken: a device that says it, and ends connections all the same, is sent nothing
// twice.
func TestKeepBroken(t *testing.T) {
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
	for range 100 { // without a pause: some meet a connection that is about to end
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
		t.Errorf("%d requests arrived of 110, and %d failed", requests, failed)
	}
}
