package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi"
	"github.com/ferrulehq/ferrule/internal/device/protocol/xiaozhi/provision"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/mqtt"
	"github.com/ferrulehq/ferrule/internal/device/transport/websocket"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// gateway has the real parts of a gateway that voice toys connect to.
type gateway struct {
	url  string // the check-in URL
	ws   *websocket.Connector
	mqtt *mqtt.Connector
	seen chan transport.Sighting

	creds *provision.Credentials

	mu    sync.Mutex
	hosts []netip.Addr // the addresses of the toys
	codes []string     // pairing codes for check-ins, in order
}

// Code implements provision.Admission.
func (g *gateway) Code(context.Context, provision.Identity) (code string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.codes) > 0 {
		code, g.codes = g.codes[0], g.codes[1:]
	}
	return code
}

// check returns an error unless a token belongs to an address.
func (g *gateway) check(host netip.Addr, address, token string) error {
	g.mu.Lock()
	g.hosts = append(g.hosts, host)
	g.mu.Unlock()
	a, err := g.creds.Check(token)
	if err == nil && a.Address != address {
		err = errors.New("the token belongs to another device")
	}
	return err
}

type tokens struct{ *gateway }

func (c tokens) Check(_ context.Context, host netip.Addr, address, _, token string) (string, bool, error) {
	return "toy", true, c.check(host, address, token)
}

type passwords struct{ *gateway }

func (c passwords) Check(_ context.Context, host netip.Addr, address, _, _, password string) (string, string, bool, error) {
	return address, "toy", true, c.check(host, address, password)
}

// startGateway starts the real transports and the real check-in endpoint.
func startGateway(t *testing.T, codes ...string) *gateway {
	t.Helper()
	g := &gateway{seen: make(chan transport.Sighting, 1000), codes: codes}
	var err error
	if g.creds, err = provision.NewCredentials(make([]byte, 32), nil, func(provision.KnownDevice) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wsConfig := websocket.DefaultConfig()
	wsConfig.Ping, wsConfig.Pong = 300*time.Millisecond, 2*time.Second
	wsConfig.Inbound.Address.Burst = 1000
	mqttConfig := mqtt.DefaultConfig()
	mqttConfig.Inbound.Address.Burst = 1000
	g.ws = websocket.New(wsConfig, tokens{g}, slog.New(slog.DiscardHandler))
	g.mqtt = mqtt.New(mqttConfig, ln, passwords{g}, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	mux.Handle("/xiaozhi/v1/", g.ws)
	server := httptest.NewServer(mux)
	ota, err := provision.NewOTA(provision.OTAParts{
		Config: provision.OTAConfig{MQTT: ln.Addr().String(), WebSocket: "ws" + strings.TrimPrefix(server.URL, "http") + "/xiaozhi/v1/"},
		Issuer: g.creds, Admission: g,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/xiaozhi/ota/", ota)
	g.url = server.URL + "/xiaozhi/ota/"
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, c := range []transport.Connector{g.ws, g.mqtt} {
		wg.Go(func() {
			err := c.Watch(ctx, func(_ string, all []transport.Sighting) {
				for _, s := range all {
					g.seen <- s
				}
			})
			if err != nil {
				t.Errorf("Watch: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		server.Close()
	})
	return g
}

// call runs toys that connect to the gateway, and returns their events.
func (g *gateway) call(t *testing.T, cfg sim.ToyClientsConfig) (*sim.ToyClients, <-chan sim.Event) {
	t.Helper()
	events := make(chan sim.Event, 1000)
	cfg.URL, cfg.First, cfg.Count, cfg.OnEvent = g.url, 1, max(cfg.Count, 1), func(n sim.Event) { events <- n }
	toys, err := sim.NewToyClients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- toys.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return toys, events
}

// met is a toy after its greeting.
type met struct {
	protocol.Session
	manifest *ferrule.Manifest
	over     chan error // the error of its link
	notes    *notes
}

// notes collects the dropped frames of a link.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) see(f transport.Frame) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.Note != "" {
		n.all = append(n.all, f.Note)
	}
}

// sighting waits for the next toy.
func (g *gateway) sighting(t *testing.T) transport.Sighting {
	t.Helper()
	select {
	case s := <-g.seen:
		return s
	case <-time.After(wait.Ample):
		t.Fatal("timeout: no toy dials in")
		return transport.Sighting{}
	}
}

// open waits for the next toy and opens its link.
func (g *gateway) open(t *testing.T) transport.Link {
	t.Helper()
	link, err := g.sighting(t).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

// greet waits for the next toy and greets it with the real protocol.
func (g *gateway) greet(t *testing.T) *met {
	t.Helper()
	link := g.open(t)
	m := &met{over: make(chan error, 1), notes: &notes{}}
	link.(transport.Traceable).Observe(m.notes.see)
	var err error
	if m.Session, m.manifest, err = xiaozhi.New(xiaozhi.Parts{}).Greet(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { m.over <- m.Run(ctx) }()
	return m
}

// use calls a tool with a timeout, and returns the result or the error code.
func (m *met) use(t *testing.T, within time.Duration, tool, args string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	result, err := m.Invoke(ctx, &ferrule.Call{Device: "toy", Tool: tool, Args: json.RawMessage(args)})
	if err != nil {
		return string(ferrule.AsError(err).Code)
	}
	return fmt.Sprintf("%s %v", result.Value, result.Content)
}

// ends waits for the end of the link and checks the reason.
func (m *met) ends(t *testing.T, why ...string) {
	t.Helper()
	select {
	case err := <-m.over:
		if err == nil || !slices.ContainsFunc(why, func(w string) bool { return strings.Contains(err.Error(), w) }) {
			t.Errorf("the link ended with %v, want %q", err, why)
		}
	case <-time.After(wait.Ample):
		t.Errorf("timeout: the link does not end")
	}
}

// TestToyClients checks that toys check in, connect by each transport, are greeted by the
// real protocol, and answer calls while they stream audio.
func TestToyClients(t *testing.T) {
	for _, name := range []string{sim.OverWebSocket, sim.OverMQTT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			start := time.Now()
			_, events := g.call(t, sim.ToyClientsConfig{Transport: name, Misbehave: "sound"})
			m := g.greet(t)
			if n := <-events; n.What != "connected" || n.Toy != "02:00:00:00:00:01" {
				t.Errorf("event: %+v", n)
			}
			if m.manifest.Model != "bread-compact-wifi" || len(m.manifest.Tools) != 11 {
				t.Errorf("%s with %d tools", m.manifest.Model, len(m.manifest.Tools))
			}
			time.Sleep(time.Second)
			if got := m.use(t, wait.Ample, "self.audio_speaker.set_volume", `{"volume":12}`); !strings.Contains(got, "true") {
				t.Errorf("setting the volume: %s", got)
			}
			if got := m.use(t, wait.Ample, "self.get_device_status", `{}`); !strings.Contains(got, `"volume":12`) {
				t.Errorf("the status is %s", got)
			}
			if name == sim.OverWebSocket { // over MQTT, audio uses another channel
				for m.notes.sound() < 10 {
					if time.Since(start) > wait.Ample {
						t.Fatalf("only %d audio frames", m.notes.sound())
					}
					m.use(t, wait.Ample, "self.get_device_status", `{}`) // audio is counted before an answer
				}
			}
			took := time.Since(start)
			most := int(took / (60 * time.Millisecond))
			if name == sim.OverMQTT {
				most = 0
			}
			if frames := m.notes.sound(); frames > most {
				t.Errorf("%d audio frames in %v", frames, took)
			}
		})
	}
}

// sound returns the number of dropped audio frames.
func (n *notes) sound() (total int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, note := range n.all {
		var frames, bytes int
		if _, err := fmt.Sscanf(note, "%d binary messages with %d bytes", &frames, &bytes); err == nil {
			total += frames
		}
	}
	return total
}

const wag = `{"token":"a"}`

// TestToyClientBehaviors checks behaviors that concern connections, with the real transports.
func TestToyClientBehaviors(t *testing.T) {
	const closed, replaced = "closed the connection", "reconnected"
	for _, test := range []struct {
		transport, misbehave string
		meet                 func(t *testing.T, g *gateway, toy *sim.Toy)
	}{
		{"ws", "hang-up", func(t *testing.T, g *gateway, toy *sim.Toy) { // FIN without a close frame
			m := g.greet(t)
			for range 2 {
				m.use(t, wait.Ample, "self.dog.pulse", wag)
			}
			if got := m.use(t, wait.Ample, "self.dog.pulse", wag); got != string(ferrule.Unanswered) || toy.Runs()["a"] != 3 {
				t.Errorf("%s, ran %d times", got, toy.Runs()["a"])
			}
			m.ends(t, closed)
			g.greet(t) // it reconnects
		}},
		{"mqtt", "hang-up", func(t *testing.T, g *gateway, _ *sim.Toy) {
			m := g.greet(t)
			for range 3 {
				m.use(t, wait.Ample, "self.dog.pulse", wag)
			}
			m.ends(t, closed)
		}},
		{"ws", "second-socket", func(t *testing.T, g *gateway, _ *sim.Toy) {
			first := g.greet(t)
			second := g.greet(t)
			first.ends(t, replaced)
			if got := second.use(t, wait.Ample, "self.lamp.turn_on", "{}"); !strings.Contains(got, "true") {
				t.Errorf("the second socket: %s", got)
			}
		}},
		{"ws", "half-open", func(t *testing.T, g *gateway, _ *sim.Toy) { // pings are not answered either
			m := g.greet(t)
			got := ""
			for n := 0; n < 7 && got != string(ferrule.Unanswered); n++ {
				got = m.use(t, wait.Ample, "self.lamp.turn_on", "{}")
			}
			if got != string(ferrule.Unanswered) {
				t.Errorf("the last call: %s", got)
			}
			m.ends(t, "stopped answering")
		}},
		{"ws", "silent", func(t *testing.T, g *gateway, toy *sim.Toy) {
			m := g.greet(t)
			if got := m.use(t, 2*time.Second, "self.dog.pulse", wag); got != string(ferrule.Unanswered) {
				t.Errorf("got %s", got)
			}
			wait.For(t, "it runs once", func() bool { return toy.Runs()["a"] == 1 })
			g.greet(t)                  // on another socket
			m.ends(t, replaced, closed) // whichever is noticed first
		}},
		{"mqtt", "silent", func(t *testing.T, g *gateway, toy *sim.Toy) { // MQTT sends it, and it is dropped
			m := g.greet(t)
			if got := m.use(t, 2*time.Second, "self.dog.pulse", wag); got != string(ferrule.Unanswered) {
				t.Errorf("got %s", got)
			}
			wait.For(t, "it runs once", func() bool { return toy.Runs()["a"] == 1 })
		}},
		{"mqtt", "storm", func(t *testing.T, g *gateway, _ *sim.Toy) {
			start := time.Now()
			for range 5 {
				g.open(t).Close()
			}
			figure.AtMost(t, "a storm of five connections", time.Since(start), 4*time.Second) // a normal toy needs 40 s
		}},
		{"ws", "reboot", func(t *testing.T, g *gateway, _ *sim.Toy) {
			m := g.greet(t)
			if got := m.use(t, wait.Ample, "self.reboot", "{}"); !strings.Contains(got, "true") {
				t.Errorf("reboot: %s", got)
			}
			m.ends(t, closed)
			if again := g.greet(t); len(again.manifest.Tools) != len(m.manifest.Tools) {
				t.Errorf("%d tools after the restart", len(again.manifest.Tools))
			}
		}},
		{"ws", "odd-visit", func(t *testing.T, g *gateway, _ *sim.Toy) { g.greet(t) }},
		{"ws", "stale-session", func(t *testing.T, g *gateway, _ *sim.Toy) { g.greet(t) }},
		{"mqtt", "wants-to-talk", func(t *testing.T, g *gateway, _ *sim.Toy) { g.greet(t) }},
	} {
		t.Run(test.misbehave+" "+test.transport, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			toys, _ := g.call(t, sim.ToyClientsConfig{Transport: test.transport, Misbehave: test.misbehave})
			test.meet(t, g, toys.Toys[0])
		})
	}
}

// TestToyClientBeforeHello checks that a toy on MQTT answers before hello, without a session,
// and sends nothing on its own.
func TestToyClientBeforeHello(t *testing.T) {
	g := startGateway(t)
	g.call(t, sim.ToyClientsConfig{Transport: sim.OverMQTT})
	s := g.sighting(t)
	if s.Transport != "mqtt" {
		t.Errorf("the transport is %s", s.Transport)
	}
	link, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	link.Send(t.Context(), transport.Message{Data: []byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":7,"method":"tools/list"}}`)})
	m, err := link.Recv(t.Context())
	if err != nil || !strings.HasPrefix(string(m.Data), `{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":7,"result"`) {
		t.Errorf("%.200s, %v", m.Data, err)
	}
}

// TestToyClientCode checks that a toy shows its code until it is activated.
func TestToyClientCode(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	g := startGateway(t, "123456", "123456")
	_, events := g.call(t, sim.ToyClientsConfig{Transport: sim.OverWebSocket})
	for _, want := range []sim.Event{{What: "code", Detail: "123456"}, {What: "connected"}} {
		want.Toy = "02:00:00:00:00:01"
		if n := <-events; n != want {
			t.Errorf("event: %+v, want %+v", n, want)
		}
	}
}

// TestToyClientRetries checks that a toy without settings checks in again, and that it keeps
// settings without its transport.
func TestToyClientRetries(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	asked := make(chan time.Time, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked <- time.Now(); len(asked) == 1 {
			http.Error(w, "not today", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, `{"websocket":{"url":"ws://127.0.0.1:9/","token":"t"}}`)
	}))
	defer server.Close()
	g := &gateway{url: server.URL}
	_, events := g.call(t, sim.ToyClientsConfig{Transport: sim.OverMQTT})
	for _, want := range []string{"checking in: 500 not today", "the gateway offers no MQTT to toys"} {
		if n := <-events; n.What != "failed" || n.Detail != want {
			t.Errorf("event: %+v, want %s", n, want)
		}
	}
	if first, second := <-asked, <-asked; second.Sub(first) < 9*time.Second {
		t.Errorf("second check-in after %v", second.Sub(first))
	}
}

// TestToyClientsCut checks that toys reconnect after all connections were cut, each from its
// own address.
func TestToyClientsCut(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if runtime.GOOS == "darwin" {
		t.Skip("this system has one address of its own")
	}
	t.Parallel()
	const count = 20
	g := startGateway(t)
	_, events := g.call(t, sim.ToyClientsConfig{Transport: sim.OverMQTT, Count: count, Misbehave: "storm", Cut: 5 * time.Second, From: netip.MustParsePrefix("127.9.0.0/16")})
	times := make(map[string]int)
	for range 2 * count {
		link := g.open(t)
		go link.Recv(context.Background()) // until the link ends
		times[link.Info().Address]++
	}
	for range 2 * count {
		if n := <-events; n.What == "ended" && n.Detail != "the connection was cut" {
			t.Errorf("event: %+v", n)
		}
	}
	for address, n := range times {
		if n != 2 {
			t.Errorf("%s connected %d times", address, n)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	hosts := make(map[netip.Addr]int)
	for _, host := range g.hosts {
		hosts[host]++
	}
	if len(hosts) != count || hosts[netip.MustParseAddr("127.9.0.1")] < 2 || hosts[netip.MustParseAddr("127.9.0.20")] < 2 {
		t.Errorf("addresses: %v", hosts)
	}
}

// TestToyClientsConfig checks the errors of invalid configurations.
func TestToyClientsConfig(t *testing.T) {
	good := sim.ToyClientsConfig{URL: "http://127.0.0.1:3388/xiaozhi/ota/", Transport: sim.OverWebSocket, First: 1, Count: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(c *sim.ToyClientsConfig){
		"check-in URL":           func(c *sim.ToyClientsConfig) { c.URL = "ws://127.0.0.1/" },
		"must be ws or mqtt":     func(c *sim.ToyClientsConfig) { c.Transport = "pigeon" },
		"first toy must be":      func(c *sim.ToyClientsConfig) { c.First = 0 },
		"count must be":          func(c *sim.ToyClientsConfig) { c.Count = 0 },
		"between 1 and 2, got 3": func(c *sim.ToyClientsConfig) { c.First, c.Count = 1<<24-2, 3 },
		"between cuts":           func(c *sim.ToyClientsConfig) { c.Cut = -1 },
		"unknown misbehavior":    func(c *sim.ToyClientsConfig) { c.Misbehave = "nonsense" },
		"got 10.0.0.0/8":         func(c *sim.ToyClientsConfig) { c.From = netip.MustParsePrefix("10.0.0.0/8") },
		"got ::1/128":            func(c *sim.ToyClientsConfig) { c.From = netip.MustParsePrefix("::1/128") },
		"got 127.0.0.0/4":        func(c *sim.ToyClientsConfig) { c.From = netip.MustParsePrefix("127.0.0.0/4") },
	} {
		cfg := good
		change(&cfg)
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}
