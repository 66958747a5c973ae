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
)

// gateway is the parts of a gateway that voice toys meet, without those behind.
type gateway struct {
	url  string // where toys ask for their settings
	ws   *websocket.Connector
	mqtt *mqtt.Connector
	seen chan transport.Sighting

	creds *provision.Credentials

	mu    sync.Mutex
	hosts []netip.Addr // where toys dialled from
	codes []string     // what toys that ask have to show, one after the other
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

// check tells whether a token is that of an address.
func (g *gateway) check(host netip.Addr, address, token string) error {
	g.mu.Lock()
	g.hosts = append(g.hosts, host)
	g.mu.Unlock()
	a, err := g.creds.Check(token)
	if err == nil && a.Address != address {
		err = errors.New("the token is another device's")
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

// startGateway starts the real media and the real place where toys ask.
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
	wsConfig.Ping, wsConfig.Pong = 300*time.Millisecond, 300*time.Millisecond
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

// call has toys call the gateway, and returns what happens to them.
func (g *gateway) call(t *testing.T, cfg sim.CrowdConfig) (*sim.Crowd, <-chan sim.News) {
	t.Helper()
	news := make(chan sim.News, 1000)
	cfg.URL, cfg.First, cfg.Count, cfg.Tell = g.url, 1, max(cfg.Count, 1), func(n sim.News) { news <- n }
	crowd, err := sim.NewCrowd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- crowd.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return crowd, news
}

// met is a toy that was greeted.
type met struct {
	protocol.Session
	manifest *ferrule.Manifest
	over     chan error // why its link has ended
	notes    *notes
}

// notes are the remarks about a link.
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

// sighting waits for the next toy that dials in.
func (g *gateway) sighting(t *testing.T) transport.Sighting {
	t.Helper()
	select {
	case s := <-g.seen:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("nobody dials in")
		return transport.Sighting{}
	}
}

// open waits for the next toy, and opens its link.
func (g *gateway) open(t *testing.T) transport.Link {
	t.Helper()
	link, err := g.sighting(t).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

// greet waits for the next toy, and has the real dialect greet it.
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

// use calls a tool within a time, and returns what it says, or the code of what
// went wrong.
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

// ends waits for a link to end, and wants a reason.
func (m *met) ends(t *testing.T, why string) {
	t.Helper()
	select {
	case err := <-m.over:
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("the link ended with %v, want %s", err, why)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("the link does not end")
	}
}

// TestCrowdTalks: a toy asks, connects over either medium with what it is told, and
// is greeted by the real dialect; what it is told to do, it does, while sound comes
// as from somebody who speaks.
func TestCrowdTalks(t *testing.T) {
	for _, medium := range []string{sim.OverWebSocket, sim.OverMQTT} {
		t.Run(medium, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			start := time.Now()
			_, news := g.call(t, sim.CrowdConfig{Medium: medium, Misbehave: "sound"})
			m := g.greet(t)
			if n := <-news; n.What != "connected" || n.Toy != "02:00:00:00:00:01" {
				t.Errorf("news: %+v", n)
			}
			if m.manifest.Model != "bread-compact-wifi" || len(m.manifest.Tools) != 11 {
				t.Errorf("%s with %d tools", m.manifest.Model, len(m.manifest.Tools))
			}
			time.Sleep(time.Second)
			if got := m.use(t, ample, "self.audio_speaker.set_volume", `{"volume":12}`); !strings.Contains(got, "true") {
				t.Errorf("setting the volume: %s", got)
			}
			if got := m.use(t, ample, "self.get_device_status", `{}`); !strings.Contains(got, `"volume":12`) {
				t.Errorf("the volume is in %s", got)
			}
			took := time.Since(start)
			least, most := 10, int(took/(60*time.Millisecond)) // sleeping takes longer on a busy machine
			if medium == sim.OverMQTT {
				least, most = 0, 0 // it has another way for sound
			}
			if frames := m.notes.sound(); frames < least || frames > most {
				t.Errorf("%d frames of sound came in %v", frames, took)
			}
		})
	}
}

const ample = 10 * time.Second

// sound is how many frames of sound were dropped.
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

// TestCrowdBehaviours: what toys do to their connections, and what the real media
// make of it.
func TestCrowdBehaviours(t *testing.T) {
	const hungUp, anew = "closed the connection", "reconnected"
	for _, test := range []struct {
		medium, misbehave string
		meet              func(t *testing.T, g *gateway, toy *sim.Toy)
	}{
		{"ws", "hang-up", func(t *testing.T, g *gateway, toy *sim.Toy) { // FIN, and no farewell
			m := g.greet(t)
			for range 2 {
				m.use(t, ample, "self.dog.pulse", wag)
			}
			if got := m.use(t, ample, "self.dog.pulse", wag); got != string(ferrule.Unanswered) || toy.Runs()["a"] != 3 {
				t.Errorf("%s, and it ran %d times", got, toy.Runs()["a"])
			}
			m.ends(t, hungUp)
			g.greet(t) // it comes back
		}},
		{"mqtt", "hang-up", func(t *testing.T, g *gateway, _ *sim.Toy) {
			m := g.greet(t)
			for range 3 {
				m.use(t, ample, "self.dog.pulse", wag)
			}
			m.ends(t, hungUp)
		}},
		{"ws", "second-socket", func(t *testing.T, g *gateway, _ *sim.Toy) {
			first := g.greet(t)
			second := g.greet(t)
			first.ends(t, anew)
			if got := second.use(t, ample, "self.lamp.turn_on", "{}"); !strings.Contains(got, "true") {
				t.Errorf("the second socket: %s", got)
			}
		}},
		{"ws", "half-open", func(t *testing.T, g *gateway, _ *sim.Toy) { // pings are not answered either
			m := g.greet(t)
			got := ""
			for n := 0; n < 7 && got != string(ferrule.Unanswered); n++ {
				got = m.use(t, ample, "self.lamp.turn_on", "{}")
			}
			if got != string(ferrule.Unanswered) {
				t.Errorf("the last call: %s", got)
			}
			m.ends(t, "stopped answering")
		}},
		{"ws", "silent", func(t *testing.T, g *gateway, toy *sim.Toy) {
			m := g.greet(t)
			if got := m.use(t, 500*time.Millisecond, "self.dog.pulse", wag); got != string(ferrule.Unanswered) || toy.Runs()["a"] != 1 {
				t.Errorf("%s, and it ran %d times", got, toy.Runs()["a"])
			}
			g.greet(t) // over another socket
			m.ends(t, anew)
		}},
		{"mqtt", "silent", func(t *testing.T, g *gateway, toy *sim.Toy) { // it is sent there, and dropped
			m := g.greet(t)
			if got := m.use(t, 500*time.Millisecond, "self.dog.pulse", wag); got != string(ferrule.Unanswered) || toy.Runs()["a"] != 1 {
				t.Errorf("%s, and it ran %d times", got, toy.Runs()["a"])
			}
		}},
		{"mqtt", "storm", func(t *testing.T, g *gateway, _ *sim.Toy) {
			start := time.Now()
			for range 5 {
				g.open(t).Close()
			}
			if took := time.Since(start); took > 4*time.Second { // another toy would take 40
				t.Errorf("it took %v", took)
			}
		}},
		{"ws", "odd-visit", func(t *testing.T, g *gateway, _ *sim.Toy) { g.greet(t) }},
		{"ws", "stale-session", func(t *testing.T, g *gateway, _ *sim.Toy) { g.greet(t) }},
		{"mqtt", "wants-to-talk", func(t *testing.T, g *gateway, _ *sim.Toy) { g.greet(t) }},
	} {
		t.Run(test.misbehave+" "+test.medium, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			crowd, _ := g.call(t, sim.CrowdConfig{Medium: test.medium, Misbehave: test.misbehave})
			test.meet(t, g, crowd.Toys[0])
		})
	}
}

// TestCrowdBeforeHello: over MQTT a toy answers before there was any hello, without
// a session, and says nothing by itself; told of both media, that is what it takes.
func TestCrowdBeforeHello(t *testing.T) {
	g := startGateway(t)
	g.call(t, sim.CrowdConfig{Medium: sim.OverMQTT})
	s := g.sighting(t)
	if s.Transport != "mqtt" {
		t.Errorf("it came over %s", s.Transport)
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

// TestCrowdCode: a toy shows its code until it is let in.
func TestCrowdCode(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "123456", "123456")
	_, news := g.call(t, sim.CrowdConfig{Medium: sim.OverWebSocket})
	for _, want := range []sim.News{{What: "code", Detail: "123456"}, {What: "connected"}} {
		want.Toy = "02:00:00:00:00:01"
		if n := <-news; n != want {
			t.Errorf("news: %+v, want %+v", n, want)
		}
	}
}

// TestCrowdAsksAgain: a toy that was told nothing asks again, and one that was told of
// another medium alone keeps that.
func TestCrowdAsksAgain(t *testing.T) {
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
	_, news := g.call(t, sim.CrowdConfig{Medium: sim.OverMQTT})
	for _, want := range []string{"asking for settings: 500 not today", "the gateway tells toys of no MQTT"} {
		if n := <-news; n.What != "failed" || n.Detail != want {
			t.Errorf("news: %+v, want %s", n, want)
		}
	}
	if first, second := <-asked, <-asked; second.Sub(first) < 9*time.Second {
		t.Errorf("it asked again after %v", second.Sub(first))
	}
}

// TestCrowdIsCut: all toys lose their connection at once and come back, each from
// an address of its own.
func TestCrowdIsCut(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("this system has one address of its own")
	}
	t.Parallel()
	const count = 20
	g := startGateway(t)
	_, news := g.call(t, sim.CrowdConfig{Medium: sim.OverMQTT, Count: count, Misbehave: "storm", Cut: 2 * time.Second, From: netip.MustParsePrefix("127.9.0.0/16")})
	times := make(map[string]int)
	for range 2 * count {
		link := g.open(t)
		go link.Recv(context.Background()) // until it ends
		times[link.Info().Address]++
	}
	for range 2 * count {
		if n := <-news; n.What == "ended" && n.Detail != "the connection was cut" {
			t.Errorf("news: %+v", n)
		}
	}
	for address, n := range times {
		if n != 2 {
			t.Errorf("%s came %d times", address, n)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	hosts := make(map[netip.Addr]int)
	for _, host := range g.hosts {
		hosts[host]++
	}
	if len(hosts) != count || hosts[netip.MustParseAddr("127.9.0.1")] < 2 || hosts[netip.MustParseAddr("127.9.0.20")] < 2 {
		t.Errorf("they came from %v", hosts)
	}
}

// TestCrowdConfig: what cannot be is told before anybody calls.
func TestCrowdConfig(t *testing.T) {
	good := sim.CrowdConfig{URL: "http://127.0.0.1:3388/xiaozhi/ota/", Medium: sim.OverWebSocket, First: 1, Count: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(c *sim.CrowdConfig){
		"where toys ask":       func(c *sim.CrowdConfig) { c.URL = "ws://127.0.0.1/" },
		"want ws or mqtt":      func(c *sim.CrowdConfig) { c.Medium = "pigeon" },
		"want a first toy":     func(c *sim.CrowdConfig) { c.First = 0 },
		"want a count":         func(c *sim.CrowdConfig) { c.Count = 0 },
		"from 1 to 2, got 3":   func(c *sim.CrowdConfig) { c.First, c.Count = 1<<24-2, 3 },
		"between cuts":         func(c *sim.CrowdConfig) { c.Cut = -1 },
		"no toy misbehaves":    func(c *sim.CrowdConfig) { c.Misbehave = "nonsense" },
		"not from 10.0.0.0/8":  func(c *sim.CrowdConfig) { c.From = netip.MustParsePrefix("10.0.0.0/8") },
		"not from ::1/128":     func(c *sim.CrowdConfig) { c.From = netip.MustParsePrefix("::1/128") },
		"not from 127.0.0.0/4": func(c *sim.CrowdConfig) { c.From = netip.MustParsePrefix("127.0.0.0/4") },
	} {
		cfg := good
		change(&cfg)
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}
