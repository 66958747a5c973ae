package httpclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	gobwas "github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// sight returns the sighting of a device.
func sight(t testing.TB, d httpclient.Device, change ...func(*httpclient.Config)) transport.Sighting {
	t.Helper()
	cfg := httpclient.DefaultConfig()
	cfg.Devices = []httpclient.Device{d}
	cfg.Protocols = []string{"any"}
	for _, f := range change {
		f(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan transport.Sighting, 1)
	ended := make(chan error)
	go func() {
		ended <- httpclient.New(cfg, websocket.DefaultConfig().Dial, slog.New(slog.DiscardHandler)).Watch(ctx, func(_ string, all []transport.Sighting) { seen <- all[0] })
	}()
	s := <-seen
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("Watch returned %v, want nil when its context ends", err)
	}
	return s
}

// open opens a device and returns a client for its endpoint.
func open(t testing.TB, d httpclient.Device, change ...func(*httpclient.Config)) (link transport.Link, url string, client *http.Client) {
	t.Helper()
	link, err := sight(t, d, change...).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	url, tripper := link.(transport.HTTP).HTTP()
	return link, url, &http.Client{Transport: tripper}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestSighting(t *testing.T) {
	for _, test := range []struct {
		url, address string
		local        bool
	}{
		{"http://192.168.1.20", "192.168.1.20:80/mcp", false},
		{"HTTP://Board.lan/", "board.lan:80/", false},
		{"https://board.lan/api/mcp", "board.lan:443/api/mcp", false},
		{"http://127.0.0.1:8080/mcp", "127.0.0.1:8080/mcp", true},
		{"http://localhost:8080/mcp", "localhost:8080/mcp", true},
		{"http://[::1]:8080/mcp", "[::1]:8080/mcp", true},
		{"http://[fe80::1%25Eth0]/mcp", "[fe80::1%Eth0]:80/mcp", false},
	} {
		s := sight(t, httpclient.Device{URL: test.url, Name: "robot"})
		if s.Address != test.address || s.Local != test.local || s.Name != "robot" || !s.Adopted || s.Transport != "http" || s.Instance != 1 {
			t.Errorf("%s: %+v", test.url, s)
		}
	}
	if sight(t, httpclient.Device{URL: "http://a", Pending: true}).Adopted {
		t.Error("a pending device was adopted")
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		device httpclient.Device
		want   string
	}{
		{httpclient.Device{URL: "192.168.1.20"}, "must be a URL such as http://"},
		{httpclient.Device{URL: "ftp://a/mcp"}, "must be a URL such as http://"},
		{httpclient.Device{URL: "http:///mcp"}, "must be a URL such as http://"},
		{httpclient.Device{URL: "http://a:0/mcp"}, "1 to 65535"},
		{httpclient.Device{URL: "http://a:70000/mcp"}, "1 to 65535"},
		{httpclient.Device{URL: "http://me:pass@a/mcp"}, "set a token"},
		{httpclient.Device{URL: "http://a/mcp?key=hush"}, "set a token"},
		{httpclient.Device{URL: "http://a/mcp#b"}, "fragment"},
		{httpclient.Device{URL: "http://a", Token: "x", TokenFile: "y"}, "not both"},
		{httpclient.Device{URL: "http://a", Token: "x\r\nEvil: y"}, "must not contain spaces"},
		{httpclient.Device{URL: "http://a", Token: strings.Repeat("x", 5000)}, "limit is 4096"},
		{httpclient.Device{URL: "http://a/", Token: "x"}, ""},
		{httpclient.Device{URL: "https://a:8443/mcp", TokenFile: "y"}, ""},
	} {
		cfg := httpclient.DefaultConfig()
		cfg.Devices = []httpclient.Device{test.device}
		err := cfg.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.device.URL, err, test.want)
		}
		if err != nil && (strings.Contains(err.Error(), "pass") || strings.Contains(err.Error(), "hush")) {
			t.Errorf("the error contains a secret: %v", err)
		}
	}
	cfg := httpclient.DefaultConfig()
	cfg.Devices = []httpclient.Device{{URL: "http://a"}, {URL: "http://A:80/mcp"}}
	if err := cfg.Check(); err == nil {
		t.Error("Check accepted the same device twice")
	}
}

// TestAdd: a device that is added later is reported.
func TestAdd(t *testing.T) {
	c := httpclient.New(httpclient.DefaultConfig(), nil, slog.New(slog.DiscardHandler))
	seen := make(chan string, 1)
	go c.Watch(t.Context(), func(_ string, all []transport.Sighting) { seen <- all[0].Address })
	c.Add(httpclient.Device{URL: "http://later"})
	if got := <-seen; got != "later:80/mcp" {
		t.Errorf("got %s", got)
	}
}

// TestSet: devices that were added, changed or removed are reported, and no others. A
// device with another token is another instance, so that it is connected again.
func TestSet(t *testing.T) {
	c := httpclient.New(httpclient.DefaultConfig(), nil, slog.New(slog.DiscardHandler))
	seen := make(chan string, 10)
	go c.Watch(t.Context(), func(group string, all []transport.Sighting) {
		for _, s := range all {
			group += fmt.Sprintf(" #%d as %s", s.Instance, s.Name)
		}
		seen <- group
	})
	a, b := httpclient.Device{URL: "http://a", Name: "x"}, httpclient.Device{URL: "http://b"}
	for _, step := range []struct {
		devices []httpclient.Device
		want    []string
	}{
		{[]httpclient.Device{a, b}, []string{"http a:80/mcp #1 as x", "http b:80/mcp #1 as "}},
		{[]httpclient.Device{b, {URL: "http://a", Name: "y"}}, []string{"http a:80/mcp #1 as y"}},
		{[]httpclient.Device{b, {URL: "http://a", Name: "y", Token: "1"}}, []string{"http a:80/mcp #2 as y"}},
		{[]httpclient.Device{b, {URL: "http://a", Name: "y", TokenFile: "f"}}, []string{"http a:80/mcp #3 as y"}},
		{[]httpclient.Device{b, {URL: "http://a", Name: "y", TokenFile: "f", Revision: "2"}}, []string{"http a:80/mcp #4 as y"}},
		{[]httpclient.Device{b}, []string{"http a:80/mcp"}},
		{[]httpclient.Device{{URL: "http://c", Name: "x"}}, []string{"http b:80/mcp", "http c:80/mcp #1 as x"}},
	} {
		c.Set(step.devices)
		for _, want := range step.want {
			if got := <-seen; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

// TestWebSocket: a device with a ws URL is opened by the WebSocket transport, and its
// link carries messages.
func TestWebSocket(t *testing.T) {
	b := newBoard(t)
	go func() {
		conn, err := b.ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		token := ""
		upgrader := gobwas.Upgrader{OnHeader: func(key, value []byte) error {
			if string(key) == "Authorization" {
				token = string(value)
			}
			return nil
		}}
		if _, err := upgrader.Upgrade(conn); err != nil {
			t.Error(err)
		}
		if f, err := gobwas.ReadFrame(conn); err == nil {
			gobwas.WriteFrame(conn, gobwas.NewTextFrame(append([]byte(token+": "), gobwas.UnmaskFrame(f).Payload...)))
		}
	}()
	s := sight(t, httpclient.Device{URL: "ws://" + b.ln.Addr().String(), Token: "secret"})
	if s.Transport != "ws" || s.Address != b.ln.Addr().String()+"/" || !s.Local || !s.Adopted {
		t.Errorf("got %+v", s)
	}
	link, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if err := link.Send(t.Context(), transport.Message{Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if m, err := link.Recv(within(t, wait.Ample)); string(m.Data) != "Bearer secret: {}" || err != nil {
		t.Errorf("got %q, %v", m.Data, err)
	}
	if info := link.Info(); info.Address != s.Address || info.Transport != s.Transport {
		t.Errorf("got %+v", info)
	}
}

// TestSingleSocket: a board that serves one connection at a time is never blocked.
// Nothing is dialed before there is a request, posts go out one at a time, a stream
// is read in parallel, and no connection is left open.
func TestSingleSocket(t *testing.T) {
	b := newBoard(t)
	b.stream = "event: endpoint\ndata: /mcp\n\n"
	b.answer = func(_ *http.Request, body []byte) string {
		time.Sleep(5 * time.Millisecond)
		return plain("200 OK", string(body))
	}
	b.start()
	link, url, client := open(t, httpclient.Device{URL: b.url})
	if url != b.url {
		t.Errorf("the URL is %s, want %s", url, b.url)
	}
	time.Sleep(50 * time.Millisecond)
	if b.conns.Load() != 0 {
		t.Error("dialed before there was a request")
	}
	stream, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	event := make([]byte, 64)
	if n, err := stream.Body.Read(event); err != nil || !strings.Contains(string(event[:n]), "endpoint") {
		t.Fatalf("read %q, %v", event[:n], err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			want := fmt.Sprintf(`{"id":%d}`, i)
			if status, answer, err := post(client, url, want); status != 200 || answer != want || err != nil {
				t.Errorf("%d %q %v, want %q", status, answer, err, want)
			}
		})
	}
	wg.Wait()
	figure.AtMost(t, "20 posts", time.Since(began), 4*time.Second)
	if n := b.silent.Load(); n != 0 {
		t.Errorf("%d connections were silent", n)
	}
	if b.conns.Load() != 21 || b.posts.Load() != 20 {
		t.Errorf("%d connections, %d posts", b.conns.Load(), b.posts.Load())
	}
	link.Close()
}

// TestUnsent: an error is ErrUnsent only if no byte was sent.
func TestUnsent(t *testing.T) {
	gone := newBoard(t)
	gone.ln.Close()
	_, url, client := open(t, httpclient.Device{URL: gone.url})
	if _, _, err := post(client, url, "{}"); !errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("connection refused: got %v", err)
	}

	mute := newBoard(t)
	mute.answer = func(*http.Request, []byte) string { return "" } // it acts and closes the connection
	mute.start()
	link, url, client := open(t, httpclient.Device{URL: mute.url})
	if _, _, err := post(client, url, "{}"); err == nil || errors.Is(err, transport.ErrUnsent) {
		t.Errorf("the action may have run: got %v", err)
	}
	if n := mute.posts.Load(); n != 1 {
		t.Errorf("the board got %d posts", n)
	}
	if _, err := client.Get("http://127.0.0.1:1/mcp"); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("another host: %v", err)
	}
	link.Close()
	if _, _, err := post(client, url, "{}"); !errors.Is(err, transport.ErrUnsent) || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestWaitsForItsTurn: a request whose context ends while another is served returns
// ErrUnsent.
func TestWaitsForItsTurn(t *testing.T) {
	b := newBoard(t)
	served := make(chan struct{})
	free := make(chan struct{})
	b.answer = func(*http.Request, []byte) string { close(served); <-free; return plain("200 OK", "first") }
	b.start()
	_, url, client := open(t, httpclient.Device{URL: b.url})
	first := make(chan string, 1)
	go func() {
		_, answer, _ := post(client, url, "1")
		first <- answer
	}()
	<-served
	r, err := http.NewRequestWithContext(within(t, 50*time.Millisecond), http.MethodPost, url, strings.NewReader("2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r); !errors.Is(err, transport.ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second: %v", err)
	}
	close(free)
	if got := <-first; got != "first" || b.conns.Load() != 1 {
		t.Errorf("got %q by %d connections", got, b.conns.Load())
	}
}

// TestNeverAnswers: a board that does not answer in time, or only in part, is given
// up. The error is not ErrUnsent: the request may have run.
func TestNeverAnswers(t *testing.T) {
	t.Parallel()     // it waits
	b := newBoard(t) // it does not accept
	_, url, client := open(t, httpclient.Device{URL: b.url}, func(c *httpclient.Config) { c.ResponseTimeout = time.Second })
	_, _, err := post(client, url, "{}")
	if err == nil || errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("got %v", err)
	}

	half := newBoard(t)
	free := make(chan struct{})
	defer close(free)
	go func() {
		conn, err := half.ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf")
		}
		<-free
	}()
	_, url, client = open(t, httpclient.Device{URL: half.url}, func(c *httpclient.Config) { c.ResponseTimeout = 5 * time.Second })
	_, got, err := post(client, url, "{}")
	if got != "half" || err == nil || errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), "incomplete: the device did not answer in time") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestRedirect: no redirect is followed: the request was sent already, and the token
// is for this device only.
func TestRedirect(t *testing.T) {
	other, b := newBoard(t), newBoard(t)
	for _, to := range []string{other.url, b.url + "/"} {
		_, url, client := open(t, httpclient.Device{URL: b.url, Token: "secret"})
		b.answer = func(*http.Request, []byte) string {
			return "HTTP/1.1 307 Temporary Redirect\r\nLocation: " + to + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		}
		if b.conns.Load() == 0 {
			b.start()
			other.start()
		}
		_, _, err := post(client, url, "{}")
		if err == nil || errors.Is(err, transport.ErrUnsent) || !strings.Contains(err.Error(), to) {
			t.Errorf("got %v", err)
		}
	}
	if other.conns.Load() != 0 || b.posts.Load() != 2 {
		t.Errorf("%d connections to the other board, and %d posts to this one", other.conns.Load(), b.posts.Load())
	}
}

// TestToken: a token is sent as a bearer token, from the config or from a file that is
// read each time the device is opened.
func TestToken(t *testing.T) {
	b := newBoard(t)
	b.answer = func(r *http.Request, _ []byte) string { return plain("200 OK", r.Header.Get("Authorization")) }
	b.start()
	file := filepath.Join(t.TempDir(), "token")
	s := sight(t, httpclient.Device{URL: b.url, TokenFile: file})
	if _, err := s.Open(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		link, err := s.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		url, tripper := link.(transport.HTTP).HTTP()
		if _, got, err := post(&http.Client{Transport: tripper}, url, "{}"); got != "Bearer "+token || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		link.Close()
	}
	if err := os.WriteFile(file, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context()); err == nil {
		t.Error("an empty token was accepted")
	}
	_, url, client := open(t, httpclient.Device{URL: b.url, Token: "three"})
	if _, got, err := post(client, url, "{}"); got != "Bearer three" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, url, client = open(t, httpclient.Device{URL: b.url})
	if _, got, err := post(client, url, "{}"); got != "" || err != nil {
		t.Errorf("got %q, %v, want no token", got, err)
	}
}

// TestNoProxy: the proxy variables of the environment are ignored.
func TestNoProxy(t *testing.T) {
	b, proxy := newBoard(t).start(), newBoard(t).start()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+proxy.ln.Addr().String())
	}
	_, url, client := open(t, httpclient.Device{URL: b.url})
	if _, _, err := post(client, url, "{}"); err != nil || proxy.conns.Load() != 0 {
		t.Errorf("%v, and %d connections to the proxy", err, proxy.conns.Load())
	}
}

// TestBounds: a response over the limit is cut off with an error, not with EOF.
func TestBounds(t *testing.T) {
	small := func(c *httpclient.Config) { c.MaxMessage = 100 }
	b := newBoard(t)
	b.answer = func(_ *http.Request, body []byte) string { return plain("200 OK", strings.Repeat("x", len(body))) }
	b.stream = ": " + strings.Repeat("x", 90) + "\n\n" + "data: " + strings.Repeat("y", 200)
	b.start()
	_, url, client := open(t, httpclient.Device{URL: b.url}, small)
	if _, answer, err := post(client, url, strings.Repeat("x", 100)); len(answer) != 100 || err != nil {
		t.Errorf("100 bytes: %d, %v", len(answer), err)
	}
	if _, answer, err := post(client, url, strings.Repeat("x", 101)); len(answer) != 100 || !errors.Is(err, transport.ErrTooLong) {
		t.Errorf("101 bytes: %d, %v", len(answer), err)
	}
	stream, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stream.Body); len(got) != 94+100 || !errors.Is(err, transport.ErrTooLong) {
		t.Errorf("a long event: %d bytes, %v", len(got), err)
	}

	b.answer = func(*http.Request, []byte) string {
		return "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 128<<10) + "\r\n\r\n"
	}
	if _, _, err := post(client, url, "{}"); err == nil || errors.Is(err, transport.ErrUnsent) {
		t.Errorf("a long header: %v", err)
	}
	b.answer = func(*http.Request, []byte) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"
	}
	if _, answer, err := post(client, url, "{}"); answer != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half an answer: %q, %v", answer, err)
	}
}

// TestQuestionInStream: while the response to a post is a stream, another post can
// answer a question that the device asks in it.
func TestQuestionInStream(t *testing.T) {
	answered := make(chan struct{})
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "yes" {
			close(answered)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		io.WriteString(w, "data: sure?\n\n")
		w.(http.Flusher).Flush()
		<-answered
		io.WriteString(w, "data: done\n\n")
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	_, url, client := open(t, httpclient.Device{URL: "http://" + ln.Addr().String()})
	r, err := http.NewRequestWithContext(within(t, wait.Ample), http.MethodPost, url, strings.NewReader("call"))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if status, _, err := post(client, url, "yes"); status != http.StatusAccepted || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	if got, err := io.ReadAll(stream.Body); string(got) != "data: sure?\n\ndata: done\n\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestTrace: a trace shows both directions, with methods and statuses.
func TestTrace(t *testing.T) {
	b := newBoard(t)
	b.stream = "data: one\r\n\r\n:\n\nid: 2\ndata: two\n\nhalf"
	b.answer = func(*http.Request, []byte) string { return plain("404 Not Found", "no") }
	b.start()
	link, url, client := open(t, httpclient.Device{URL: b.url, Token: "secret"})
	var mu sync.Mutex
	var seen []string
	link.(transport.Traceable).Observe(func(f transport.Frame) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%d %s %s %s", f.Direction, f.Message.Channel, bytes.Clone(f.Message.Data), f.Note))
	})
	if status, answer, err := post(client, url, "{}"); status != 404 || answer != "no" || err != nil {
		t.Errorf("%d %q %v", status, answer, err)
	}
	stream, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stream.Body, make([]byte, len(b.stream))); err != nil {
		t.Fatal(err)
	}
	link.Close()
	if _, err := stream.Body.Read(make([]byte, 1)); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("after Close, reading the stream returned %v", err)
	}
	want := []string{
		"2 POST {} ", "1 404 no ", "2 GET  ", "1 200  event stream begins",
		"1 event data: one ", "1 event : ", "1 event id: 2\ndata: two ", "1 event half incomplete",
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(seen, "|"); got != strings.Join(want, "|") {
		t.Errorf("traced %q, want %q", seen, want)
	}
}

// TestLink: a link carries no messages, and Close ends what waits on it.
func TestLink(t *testing.T) {
	b := newBoard(t) // it does not accept, so a request hangs
	before := runtime.NumGoroutine()
	link, url, client := open(t, httpclient.Device{URL: b.url})
	info := link.Info()
	if info.Transport != "http" || info.Address != b.ln.Addr().String()+"/mcp" {
		t.Errorf("got %+v", info)
	}
	if _, err := link.Recv(within(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Recv returned %v, want the context's error", err)
	}
	if err := link.Send(t.Context(), transport.Message{Data: []byte("{}")}); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("Send returned %v, want ErrUnsent", err)
	}
	ends := make(chan error, 2)
	go func() {
		_, err := link.Recv(context.Background())
		ends <- err
	}()
	go func() {
		_, _, err := post(client, url, "{}")
		ends <- err
	}()
	far, err := b.ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := link.Close(); err != nil {
			t.Fatal(err)
		}
	}
	far.SetReadDeadline(time.Now().Add(wait.Ample))
	if _, err := io.Copy(io.Discard, far); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection was open after Close")
	}
	far.Close()
	for range 2 {
		if err := <-ends; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	wait.For(t, "its goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}
