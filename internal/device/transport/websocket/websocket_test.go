package websocket_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	gobwas "github.com/gobwas/ws"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/transporttest"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

const (
	mac   = "98:a3:16:f9:d9:34"
	other = "98:a3:16:f9:d9:35"
)

// tokens are fake credentials: a valid token begins with the address. Strangers are
// devices without a token.
type tokens struct {
	strangers bool
	revoked   string
}

func (c tokens) Check(_ context.Context, _ netip.Addr, address, _, token string) (string, bool, error) {
	switch {
	case token == "" && c.strangers:
		return "", false, nil
	case token == "":
		return "", false, errors.New("no token")
	case token == c.revoked:
		return "", false, errors.New("the token was revoked")
	case token != address+" secret":
		return "", false, errors.New("invalid token")
	}
	return "toy", true, nil
}

// gateway is a Connector behind a server, with its reports.
type gateway struct {
	*websocket.Connector
	url  string
	seen chan report
}

type report struct {
	group string
	all   []transport.Sighting
}

func start(t *testing.T, creds tokens, change func(*websocket.Config)) *gateway {
	t.Helper()
	return startOn(t, creds, change, (*httptest.Server).Start)
}

// startOn starts the server with or without TLS.
func startOn(t *testing.T, creds tokens, change func(*websocket.Config), serve func(*httptest.Server)) *gateway {
	t.Helper()
	cfg := websocket.DefaultConfig()
	cfg.Inbound.Protocols = []string{"any"}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	g := &gateway{Connector: websocket.New(cfg, creds, slog.New(slog.DiscardHandler)), seen: make(chan report, 1000)}
	server := httptest.NewUnstartedServer(g)
	serve(server)
	g.url = "ws" + strings.TrimPrefix(server.URL, "http") + "/xiaozhi/v1/"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Watch(ctx, func(group string, all []transport.Sighting) { g.seen <- report{group, all} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch returned %v", err)
		}
		server.Close()
	})
	return g
}

// device is the far end of a connection.
type device struct {
	net.Conn
	r io.Reader
}

// try connects and returns the HTTP status.
func (g *gateway) try(t *testing.T, header http.Header, query ...string) (*device, int) {
	t.Helper()
	dialer := gobwas.Dialer{Header: gobwas.HandshakeHeaderHTTP(header), Timeout: wait.Ample, TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	url := g.url
	if len(query) > 0 {
		url += "?" + strings.Join(query, "&")
	}
	conn, br, _, err := dialer.Dial(t.Context(), url)
	var status gobwas.StatusError
	switch {
	case errors.As(err, &status):
		return nil, int(status)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d := &device{Conn: conn, r: conn}
	if br != nil {
		d.r = br
	}
	return d, http.StatusSwitchingProtocols
}

// headers returns the headers of stock firmware.
func headers(address string) http.Header {
	return http.Header{
		"Device-Id": {address}, "Client-Id": {"7b94d69a-9808-4c59-9c9b-704333b38aff"},
		"Protocol-Version": {"1"}, "Authorization": {"Bearer " + address + " secret"},
	}
}

// dial connects with a token and returns the sighting.
func (g *gateway) dial(t *testing.T, address string) (*device, transport.Sighting) {
	t.Helper()
	d, status := g.try(t, headers(address))
	if d == nil {
		t.Fatalf("refused with %d", status)
	}
	return d, g.sighting(t)
}

// sighting waits for the next sighting.
func (g *gateway) sighting(t *testing.T) transport.Sighting {
	t.Helper()
	for {
		if r := g.next(t); len(r.all) > 0 {
			return r.all[0]
		}
	}
}

func (g *gateway) next(t *testing.T) report {
	t.Helper()
	select {
	case r := <-g.seen:
		return r
	case <-time.After(wait.Ample):
		t.Fatal("nothing was reported")
		return report{}
	}
}

// open connects and opens the link.
func (g *gateway) open(t *testing.T, address string) (transport.Link, *device) {
	t.Helper()
	d, s := g.dial(t, address)
	link, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link, d
}

func (d *device) frame(t *testing.T, f gobwas.Frame) {
	t.Helper()
	if err := gobwas.WriteFrame(d, gobwas.MaskFrameInPlace(f)); err != nil {
		t.Error(err)
	}
}

// Send and Recv implement transporttest.Peer.
func (d *device) Send(m transport.Message) error {
	return gobwas.WriteFrame(d, gobwas.MaskFrame(gobwas.NewTextFrame(m.Data)))
}

func (d *device) Recv() (transport.Message, error) {
	f, err := gobwas.ReadFrame(d.r)
	if err == nil && f.Header.OpCode == gobwas.OpClose {
		err = io.EOF
	}
	return transport.Message{Data: f.Payload}, err
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// recv receives texts; "!" stands for ErrTooLong.
func recv(t *testing.T, link transport.Link, n int) (got []string) {
	t.Helper()
	for range n {
		m, err := link.Recv(within(t, wait.Ample))
		switch {
		case errors.Is(err, transport.ErrTooLong):
			got = append(got, "!")
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, string(m.Data))
		}
	}
	return got
}

func TestLink(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Link, transporttest.Peer) {
		return start(t, tokens{}, nil).open(t, mac)
	})
}

// TestLinkTLS: a link works the same with TLS.
func TestLinkTLS(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Link, transporttest.Peer) {
		return startOn(t, tokens{}, nil, (*httptest.Server).StartTLS).open(t, mac)
	})
}

func TestSighting(t *testing.T) {
	g := start(t, tokens{}, nil)
	_, s := g.dial(t, mac)
	if s.Address != mac || s.Name != "toy" || !s.Adopted || !s.Inbound || s.Local || s.Transport != "ws" || s.Protocols[0] != "any" {
		t.Errorf("got %+v", s)
	}
	link, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context()); err == nil {
		t.Error("opened twice")
	}
	device := link.(interface {
		ClientID() string
		ProtocolVersion() int
	})
	if device.ClientID() != "7b94d69a-9808-4c59-9c9b-704333b38aff" || device.ProtocolVersion() != 1 {
		t.Errorf("client %q, version %d", device.ClientID(), device.ProtocolVersion())
	}
	link.Close()
	if r := g.next(t); r.group != "ws "+mac || len(r.all) != 0 {
		t.Errorf("after Close, %+v was reported", r)
	}
}

func TestRefusals(t *testing.T) {
	with := func(change func(http.Header)) http.Header {
		h := headers(mac)
		change(h)
		return h
	}
	for name, test := range map[string]struct {
		creds  tokens
		header http.Header
		query  []string
		want   int
	}{
		"its own token":                  {header: headers(mac), want: 101},
		"upper case and dashes":          {header: with(func(h http.Header) { h.Set("Device-Id", "98-A3-16-F9-D9-34") }), want: 101},
		"in the query":                   {query: []string{"device-id=" + mac, "client-id=x", "authorization=Bearer%20" + mac + "%20secret"}, want: 101},
		"in the query, bare":             {query: []string{"device-id=" + mac, "authorization=" + mac + "%20secret"}, want: 101},
		"no token":                       {header: with(func(h http.Header) { h.Del("Authorization") }), want: 401},
		"a wrong token":                  {header: with(func(h http.Header) { h.Set("Authorization", "Bearer guess") }), want: 403},
		"another device's token":         {header: with(func(h http.Header) { h.Set("Device-Id", other) }), want: 403},
		"a revoked token":                {creds: tokens{revoked: mac + " secret"}, header: headers(mac), want: 403},
		"no address":                     {header: with(func(h http.Header) { h.Del("Device-Id") }), want: 400},
		"not a MAC":                      {header: with(func(h http.Header) { h.Set("Device-Id", "toy") }), want: 400},
		"two addresses":                  {header: with(func(h http.Header) { h.Add("Device-Id", other) }), want: 400},
		"a long client ID":               {header: with(func(h http.Header) { h.Set("Client-Id", strings.Repeat("x", 1000)) }), want: 400},
		"a stranger, allowed":            {creds: tokens{strangers: true}, header: http.Header{"Device-Id": {mac}}, want: 101},
		"a stranger with a token":        {creds: tokens{strangers: true}, header: with(func(h http.Header) { h.Set("Authorization", "Bearer guess") }), want: 403},
		"a stranger in a browser":        {creds: tokens{strangers: true}, header: http.Header{"Device-Id": {mac}, "Origin": {"https://example.com"}}, want: 403},
		"an adopted device in a browser": {header: with(func(h http.Header) { h.Set("Origin", "https://example.com") }), want: 101},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, test.creds, nil)
			_, status := g.try(t, test.header, test.query...)
			if status != test.want {
				t.Fatalf("answered with %d, want %d", status, test.want)
			}
			if status != 101 {
				return
			}
			s := g.sighting(t)
			if stranger := test.creds.strangers; s.Address != mac || s.Adopted == stranger {
				t.Errorf("sighted as %+v", s)
			}
		})
	}
}

// TestPlainRequest: a plain HTTP request gets a short explanation.
func TestPlainRequest(t *testing.T) {
	g := start(t, tokens{}, nil)
	resp, err := http.Get("http" + strings.TrimPrefix(g.url, "ws"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUpgradeRequired || len(body) > 100 {
		t.Errorf("answered with %d: %s", resp.StatusCode, body)
	}
}

// TestReplaced: the newest socket of an address replaces the previous one, unless it
// lacks the credential.
func TestReplaced(t *testing.T) {
	g := start(t, tokens{strangers: true}, nil)
	first, far := g.open(t, mac)
	if _, status := g.try(t, http.Header{"Device-Id": {mac}}); status != http.StatusConflict {
		t.Errorf("a stranger with the same address got %d", status)
	}
	second, _ := g.open(t, mac)
	if _, err := first.Recv(within(t, wait.Ample)); err == nil || errors.Is(err, transport.ErrClosed) || !strings.Contains(err.Error(), "reconnected") {
		t.Errorf("Recv on the first returned %v", err)
	}
	if _, err := far.Recv(); err == nil {
		t.Error("the first socket is still open")
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close of the first: %v", err)
	}
	if err := second.Send(within(t, wait.Ample), transport.Message{Data: []byte("x")}); err != nil {
		t.Errorf("the second: %v", err)
	}
}

func TestFrames(t *testing.T) {
	limit := websocket.DefaultConfig().MaxMessage
	text := func(s string) gobwas.Frame { return gobwas.NewTextFrame([]byte(s)) }
	part := func(op gobwas.OpCode, fin bool, s string) gobwas.Frame { return gobwas.NewFrame(op, fin, []byte(s)) }
	long, fits := strings.Repeat("x", limit+1), strings.Repeat("y", limit)
	half := strings.Repeat("z", limit/2+1)
	for name, test := range map[string]struct {
		frames []gobwas.Frame
		want   []string
	}{
		"the longest message": {[]gobwas.Frame{text(fits)}, []string{fits}},
		"too long":            {[]gobwas.Frame{text("a"), text(long), text("b")}, []string{"a", "!", "b"}},
		"in fragments": {
			[]gobwas.Frame{part(gobwas.OpText, false, "a"), part(gobwas.OpContinuation, false, ""), part(gobwas.OpContinuation, true, "b"), text("c")},
			[]string{"ab", "c"},
		},
		"in fragments, with a ping between": {
			[]gobwas.Frame{part(gobwas.OpText, false, "a"), gobwas.NewPingFrame([]byte("?")), part(gobwas.OpContinuation, true, "b")},
			[]string{"ab"},
		},
		"too long in fragments": {
			[]gobwas.Frame{part(gobwas.OpText, false, half), part(gobwas.OpContinuation, false, half), part(gobwas.OpContinuation, true, half), text("a")},
			[]string{"!", "a"},
		},
		"binary between": {
			[]gobwas.Frame{gobwas.NewBinaryFrame([]byte(long)), text("a"), part(gobwas.OpBinary, false, "x"), part(gobwas.OpContinuation, true, long), text("b")},
			[]string{"a", "b"},
		},
		"empty": {[]gobwas.Frame{text(""), text("a")}, []string{"", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			link, far := start(t, tokens{}, nil).open(t, mac)
			go func() {
				for _, f := range test.frames {
					far.frame(t, f)
				}
			}()
			if got := recv(t, link, len(test.want)); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got %.80q, want %.80q", got, test.want)
			}
		})
	}
}

// TestConstantMemory: dropped messages take no memory.
func TestConstantMemory(t *testing.T) {
	for name, op := range map[string]gobwas.OpCode{"text": gobwas.OpText, "audio": gobwas.OpBinary} {
		t.Run(name, func(t *testing.T) {
			link, far := start(t, tokens{}, nil).open(t, mac)
			const size = 64 << 20
			go func() {
				gobwas.WriteHeader(far, gobwas.Header{Fin: true, OpCode: op, Masked: true, Length: size})
				piece := make([]byte, 64<<10)
				for range size / len(piece) {
					far.Write(piece)
				}
				far.Send(transport.Message{Data: []byte("after")})
			}()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			want := 1
			if op == gobwas.OpText {
				want = 2
			}
			if got := recv(t, link, want); got[want-1] != "after" {
				t.Errorf("got %.80q", got)
			}
			runtime.ReadMemStats(&after)
			// With the race detector, pools drop some of their content.
			if grown := after.TotalAlloc - before.TotalAlloc; grown > size/2 {
				t.Errorf("%d bytes were allocated for %d dropped bytes", grown, size)
			}
		})
	}
}

// TestAudio: binary messages do not end Recv, and are noted once.
func TestAudio(t *testing.T) {
	link, far := start(t, tokens{}, nil).open(t, mac)
	var notes []string
	link.(transport.Traceable).Observe(func(f transport.Frame) {
		if f.Note != "" {
			notes = append(notes, f.Note)
		}
	})
	random := rand.NewChaCha8([32]byte{})
	go func() {
		for i := range 500 {
			opus := make([]byte, 40+i%200)
			random.Read(opus)
			far.frame(t, gobwas.NewBinaryFrame(opus))
			if i%100 == 99 {
				far.Send(transport.Message{Data: fmt.Append(nil, i)})
			}
		}
	}()
	if got := recv(t, link, 5); fmt.Sprint(got) != "[99 199 299 399 499]" {
		t.Errorf("got %q", got)
	}
	if len(notes) != 5 || !strings.HasPrefix(notes[0], "100 binary messages") {
		t.Errorf("noted %q", notes)
	}
}

// TestProtocolViolation: invalid frames end the link with a protocol error.
func TestProtocolViolation(t *testing.T) {
	mask := func(f gobwas.Frame) []byte { return gobwas.MustCompileFrame(gobwas.MaskFrame(f)) }
	for name, bytes := range map[string][]byte{
		"not masked":                 gobwas.MustCompileFrame(gobwas.NewTextFrame([]byte("x"))),
		"garbage":                    []byte("\xffGET / HTTP/1.1\r\n\r\n"),
		"a reserved opcode":          mask(gobwas.NewFrame(0x3, true, nil)),
		"a fragment without a start": mask(gobwas.NewFrame(gobwas.OpContinuation, true, nil)),
		"a long ping":                mask(gobwas.NewFrame(gobwas.OpPing, true, make([]byte, 126))),
		"a ping in fragments":        mask(gobwas.NewFrame(gobwas.OpPing, false, nil)),
		"a negative length":          {0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			link, far := start(t, tokens{}, nil).open(t, mac)
			far.Write(bytes)
			for range 2 {
				_, err := link.Recv(within(t, wait.Ample))
				if err == nil || !strings.Contains(err.Error(), "protocol") {
					t.Errorf("Recv returned %v", err)
				}
			}
			f, err := gobwas.ReadFrame(far.r)
			if code, _ := gobwas.ParseCloseFrameData(f.Payload); err != nil || code != gobwas.StatusProtocolError {
				t.Errorf("the device got %d, %v", code, err)
			}
		})
	}
}

func TestControlFrames(t *testing.T) {
	t.Run("ping", func(t *testing.T) {
		link, far := start(t, tokens{}, nil).open(t, mac)
		go link.Recv(t.Context())
		far.frame(t, gobwas.NewPingFrame([]byte("are you there?")))
		f, err := gobwas.ReadFrame(far.r)
		if err != nil || f.Header.OpCode != gobwas.OpPong || string(f.Payload) != "are you there?" {
			t.Errorf("got %+v, %v", f, err)
		}
	})
	t.Run("a flood of pings", func(t *testing.T) {
		link, far := start(t, tokens{}, nil).open(t, mac)
		const n = 10_000
		go func() {
			frame := gobwas.MustCompileFrame(gobwas.MaskFrame(gobwas.NewPingFrame(nil)))
			far.Write(bytes.Repeat(frame, n))
			far.Send(transport.Message{Data: []byte("after")})
		}()
		if got := recv(t, link, 1); got[0] != "after" {
			t.Errorf("got %q", got)
		}
		link.Close()
		answers := 0
		for {
			if f, err := gobwas.ReadFrame(far.r); err != nil || f.Header.OpCode == gobwas.OpClose {
				break
			}
			answers++
		}
		if answers > n/10 {
			t.Errorf("%d pings had %d answers", n, answers)
		}
	})
	t.Run("close", func(t *testing.T) {
		link, far := start(t, tokens{}, nil).open(t, mac)
		far.frame(t, gobwas.NewCloseFrame(gobwas.NewCloseFrameBody(gobwas.StatusNormalClosure, "")))
		if _, err := link.Recv(within(t, wait.Ample)); err == nil || !strings.Contains(err.Error(), "closed the connection") {
			t.Errorf("Recv returned %v", err)
		}
		if f, err := gobwas.ReadFrame(far.r); err != nil || f.Header.OpCode != gobwas.OpClose {
			t.Errorf("the device got %+v, %v", f, err)
		}
	})
}

// TestEarlyData: data that a device sends before the handshake ends is not lost.
func TestEarlyData(t *testing.T) {
	g := start(t, tokens{}, nil)
	host := strings.TrimSuffix(strings.TrimPrefix(g.url, "ws://"), "/xiaozhi/v1/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out bytes.Buffer
	fmt.Fprintf(&out, "GET /xiaozhi/v1/ HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s secret\r\nConnection: Upgrade\r\nDevice-Id: %s\r\n"+
		"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n\r\n", mac, mac)
	gobwas.WriteFrame(&out, gobwas.MaskFrame(gobwas.NewTextFrame([]byte("early"))))
	conn.Write(out.Bytes())
	link, err := g.sighting(t).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if got := recv(t, link, 1); got[0] != "early" {
		t.Errorf("got %q", got)
	}
}

// TestFlood: one host is limited, and other devices are not disturbed.
func TestFlood(t *testing.T) {
	g := start(t, tokens{strangers: true}, func(c *websocket.Config) { c.Inbound.PerHost, c.Inbound.Host.Burst = 8, 100 })
	link, far := g.open(t, other)
	accepted, refused := 0, 0
	for i := range 150 {
		_, status := g.try(t, http.Header{"Device-Id": {fmt.Sprintf("02:00:00:00:00:%02x", i)}})
		switch status {
		case http.StatusSwitchingProtocols:
			accepted++
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Errorf("answered with %d", status)
		}
	}
	if accepted != 7 || refused != 143 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
	far.Send(transport.Message{Data: []byte("still here")})
	if got := recv(t, link, 1); got[0] != "still here" {
		t.Errorf("got %q", got)
	}
}

// TestSlowReader: the link to a device that does not read ends.
func TestSlowReader(t *testing.T) {
	link, _ := start(t, tokens{}, func(c *websocket.Config) { c.Send = 300 * time.Millisecond }).open(t, mac)
	begun := time.Now()
	var err error
	for range 1000 {
		if err = link.Send(t.Context(), transport.Message{Data: make([]byte, 32<<10)}); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Fatalf("Send returned %v", err)
	}
	figure.AtMost(t, "the link to a slow reader ends", time.Since(begun), 4*time.Second)
	if err := link.Send(t.Context(), transport.Message{}); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("after that, Send returned %v", err)
	}
	if _, err := link.Recv(within(t, wait.Ample)); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("after that, Recv returned %v", err)
	}
}

func TestDrop(t *testing.T) {
	g := start(t, tokens{}, nil)
	link, _ := g.open(t, mac)
	g.Drop(mac, errors.New("its credential was revoked"))
	if _, err := link.Recv(within(t, wait.Ample)); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("Recv returned %v", err)
	}
}

func TestChannels(t *testing.T) {
	link, far := start(t, tokens{}, nil).open(t, mac)
	if err := link.Send(t.Context(), transport.Message{Channel: "smoke"}); !errors.Is(err, transport.ErrUnsent) {
		t.Errorf("Send returned %v", err)
	}
	for channel, want := range map[string]gobwas.OpCode{"": gobwas.OpText, websocket.Text: gobwas.OpText, websocket.Binary: gobwas.OpBinary} {
		if err := link.Send(t.Context(), transport.Message{Channel: channel, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if f, err := gobwas.ReadFrame(far.r); err != nil || f.Header.OpCode != want {
			t.Errorf("%q was sent as %v, %v", channel, f.Header.OpCode, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*websocket.Config){
		"max":     func(c *websocket.Config) { c.Inbound.Max = 0 },
		"message": func(c *websocket.Config) { c.MaxMessage = 0 },
		"ping":    func(c *websocket.Config) { c.Ping = 0 },
		"pong":    func(c *websocket.Config) { c.Pong = -1 },
		"send":    func(c *websocket.Config) { c.Send = 0 },
	} {
		cfg := websocket.DefaultConfig()
		change(&cfg)
		if err := cfg.Check(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
