package httpclient_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// keeper is a device that keeps connections open.
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
	wait.For(t, fmt.Sprintf("%d connections are open", open), func() bool { return k.count() == open })
}

// count returns the number of open connections.
func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open
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

// postOne posts, reads the first line of the response, cancels the request, and waits
// until the connection is idle or closed.
func (k *keeper) postOne(t *testing.T, link transport.Link, changes bool) {
	t.Helper()
	url, tripper := link.(transport.HTTP).HTTP()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if !changes {
		req.Header["Idempotency-Key"] = nil
	}
	resp, err := (&http.Client{Transport: tripper}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if !strings.Contains(line, "{}") {
		t.Fatalf("%q, %v", line, err)
	}
	resp.Body.Close()
	cancel()
	wait.For(t, "the rest of the response arrives", func() bool { return httpclient.Idle(link) || k.count() == 0 })
}

// TestReuse: requests share a connection unless the device closes it.
func TestReuse(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		shared bool
	}{
		"a response": {inJSON, true},
		"a stream":   {inStream, true},
		"it closes": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			inJSON(w, r)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t, test.answer)
			link, _, _ := open(t, httpclient.Device{URL: k.URL})
			for i := range 30 {
				k.postOne(t, link, i%3 == 0)
			}
			k.mu.Lock()
			connections, closing, requests := k.connections, k.closing, k.requests
			k.mu.Unlock()
			low, high := 30, 30
			if test.shared { // unless the next request came too late
				low, high = 1, 5
			}
			if connections < low || connections > high || requests != 30 {
				t.Errorf("%d requests on %d connections, want %d to %d", requests, connections, low, high)
			}
			if closing != 0 {
				t.Errorf("%d requests with Connection: close", closing)
			}
			link.Close()
			k.until(t, 0)
		})
	}
}

// TestIdleConnection: an idle connection is closed.
func TestIdleConnection(t *testing.T) {
	k := newKeeper(t, inStream)
	link, _, _ := open(t, httpclient.Device{URL: k.URL})
	k.postOne(t, link, false)
	began := time.Now()
	k.until(t, 0)
	figure.AtMost(t, "an idle connection is closed", time.Since(began), 5*time.Second)
}

// TestReuseCanceled: canceling a request closes its connection at once, so the
// device notices.
func TestReuseCanceled(t *testing.T) {
	gone := make(chan time.Time, 1)
	k := newKeeper(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			inJSON(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": wait\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- time.Now()
	})
	link, url, client := open(t, httpclient.Device{URL: k.URL})
	k.postOne(t, link, false)
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
	figure.AtMost(t, "the device notices a canceled request", (<-gone).Sub(left), 5*time.Second)
}

// dropper is a device that closes connections without saying so. It answers one request on
// each, and reads others that follow without an answer.
type dropper struct {
	url     string
	reads   int // requests on one connection
	mu      sync.Mutex
	arrived map[string]int // by body
}

func newDropper(t *testing.T, reads int) *dropper {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	d := &dropper{url: "http://" + ln.Addr().String(), reads: reads, arrived: make(map[string]int)}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go d.serve(conn)
		}
	}()
	return d
}

func (d *dropper) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i := range d.reads {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		d.mu.Lock()
		d.arrived[string(body)]++
		d.mu.Unlock()
		if i == 0 {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}
}

// post sends a request and returns its error.
func (d *dropper) post(t *testing.T, client *http.Client, url, body string, changes bool) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if !changes {
		req.Header["Idempotency-Key"] = nil
	}
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// TestReuseDropped: if a device reads a request on a reused connection and closes it, a
// request that may be repeated is sent again, and no other.
func TestReuseDropped(t *testing.T) {
	d := newDropper(t, 2)
	_, url, client := open(t, httpclient.Device{URL: d.url})
	for _, body := range []string{"first", "second"} {
		if err := d.post(t, client, url, body, false); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	if d.arrived["second"] != 2 {
		t.Errorf("a request that may be repeated arrived %d times, want 2", d.arrived["second"])
	}
	if err := d.post(t, client, url, "known", true); err != nil {
		t.Errorf("the device is known to close connections: %v", err)
	}

	_, url, client = open(t, httpclient.Device{URL: d.url}) // of a connector that does not know it
	if err := d.post(t, client, url, "third", false); err != nil {
		t.Fatal(err)
	}
	err := d.post(t, client, url, "change", true)
	if err == nil || errors.Is(err, transport.ErrUnsent) {
		t.Errorf("a change that may have run: %v", err)
	}
	if err := d.post(t, client, url, "next", true); err != nil {
		t.Errorf("the next change: %v", err)
	}
	for _, body := range []string{"change", "next", "known"} {
		if d.arrived[body] != 1 {
			t.Errorf("%s arrived %d times", body, d.arrived[body])
		}
	}
}

// TestReuseClosed: a device closes each connection after the response. Each change arrives
// once if it succeeded, and at most once if it failed.
func TestReuseClosed(t *testing.T) {
	d := newDropper(t, 1)
	_, url, client := open(t, httpclient.Device{URL: d.url})
	for i := range 200 { // without a pause: some meet a connection that is just closing
		changes := i%2 == 0
		body := fmt.Sprint(i)
		err := d.post(t, client, url, body, changes)
		d.mu.Lock()
		n := d.arrived[body]
		d.mu.Unlock()
		switch {
		case !changes && err != nil:
			t.Errorf("request %d may be repeated: %v", i, err)
		case err == nil && n != 1:
			t.Errorf("request %d arrived %d times", i, n)
		case n > 1 || n > 0 && errors.Is(err, transport.ErrUnsent):
			t.Errorf("change %d arrived %d times: %v", i, n, err)
		}
	}
}
