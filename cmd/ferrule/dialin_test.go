package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// withDialIn lets devices dial in.
func withDialIn(cfg *config.Config) { cfg.DialIn.Listen = "127.0.0.1:0" }

// bothTransports are the transports of devices that dial in.
var bothTransports = []string{"mqtt", "ws"}

// testToy is a voice toy that dials in like firmware.
type testToy struct {
	*sim.Toy
	t      testing.TB
	medium string
}

func newToy(t testing.TB, number int, medium string) *testToy {
	t.Helper()
	toy, err := sim.NewToy(number, "")
	if err != nil {
		t.Fatal(err)
	}
	return &testToy{Toy: toy, t: t, medium: medium}
}

// checkIn asks the gateway for settings.
func (toy *testToy) checkIn(g *testGateway) xiaozhi.Settings {
	toy.t.Helper()
	settings, err := toy.CheckIn(toy.t.Context(), g.DialIn.URL(), toy.Identity)
	if err != nil {
		toy.t.Fatal(err)
	}
	return settings
}

// dial connects with settings.
func (toy *testToy) dial(s xiaozhi.Settings) (xiaozhi.Conn, error) {
	if toy.medium == "mqtt" {
		return toy.DialMQTT(toy.t.Context(), *s.MQTT)
	}
	return toy.DialWebSocket(toy.t.Context(), *s.WebSocket, toy.Identity)
}

// connect connects the toy, until the connection or the test ends.
func (toy *testToy) connect(s xiaozhi.Settings) *toyTalk {
	toy.t.Helper()
	conn, err := toy.dial(s)
	if err != nil {
		toy.t.Fatal(err)
	}
	talk := &toyTalk{Conn: conn, over: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(talk.over)
		toy.ServeConn(ctx, talk, toy.medium == "ws") // the gateway notices how it ends
	}()
	toy.t.Cleanup(func() {
		cancel()
		<-talk.over
	})
	return talk
}

// toyTalk is a connection of a toy on which the test can send too.
type toyTalk struct {
	xiaozhi.Conn
	sending sync.Mutex
	over    chan struct{}
}

func (c *toyTalk) Send(ctx context.Context, m xiaozhi.Message) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.Conn.Send(ctx, m)
}

// person calls one of the gateway's own tools as a person.
func (g *testGateway) person(tool, args string) error {
	_, err := g.Pipeline.Handle(context.Background(), &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"}, Device: ferrule.GatewayID, Tool: tool, Args: json.RawMessage(args),
	})
	return err
}

func (g *testGateway) adopt(id string) {
	g.t.Helper()
	if err := g.person("adopt_device", fmt.Sprintf(`{"device":%q}`, id)); err != nil {
		g.t.Fatal(err)
	}
}

// toyID is the ID of the only simulated toy.
const toyID = "bread-compact-wifi"

// setVolume sets the volume of the toy. The name of its tool is shortened in the list.
func (a *testAgent) setVolume(to int) {
	a.t.Helper()
	for _, name := range a.list() {
		if strings.HasPrefix(name, toyID+"__self_audio_speaker") {
			a.mustUse(name, fmt.Sprintf(`{"volume":%d}`, to), nil)
			return
		}
	}
	a.t.Fatalf("%s: it has %v", a.name, a.list())
}

// volume returns the volume of the toy.
func (a *testAgent) volume() int {
	a.t.Helper()
	var status struct {
		Speaker struct{ Volume int } `json:"audio_speaker"`
	}
	a.mustUse(toyID+"__self_get_device_status", `{}`, &status)
	return status.Speaker.Volume
}

// TestToyOverMQTT checks that an agent lists the tools of a toy that never subscribes,
// and sets its volume.
func TestToyOverMQTT(t *testing.T) {
	g := startGateway(t, nil, withDialIn)
	toy := newToy(t, 1, "mqtt")
	toy.connect(toy.checkIn(g))
	agent := agentOf(t, g)
	if agent.volume() != 70 {
		t.Error("it is not as loud as it was made")
	}
	agent.setVolume(25)
	if got := agent.volume(); got != 25 {
		t.Errorf("the volume is %d", got)
	}
	if dev := g.device(toyID); dev.Transport != "mqtt" || dev.Address != toy.Identity.DeviceID || dev.Protocol != "xiaozhi" {
		t.Errorf("got %+v", dev)
	}
}

// agentOf waits for the toy, adopts it, and connects an agent that has its tools.
func agentOf(t *testing.T, g *testGateway) *testAgent {
	t.Helper()
	g.online(toyID)
	agent := dialAgent(t, g, modern, "/mcp")
	if dev := g.device(toyID); dev.Trust != ferrule.TrustPending || agent.lists(toyID) {
		t.Errorf("before it is adopted it is %s, and agents see %v", dev.Trust, agent.list())
	}
	g.adopt(toyID)
	wait.For(t, "the agent has its tools", func() bool { return agent.lists(toyID + "__self_audio_speaker") })
	return agent
}

// TestToyOverWebSocket does the same over a WebSocket, while sound arrives.
func TestToyOverWebSocket(t *testing.T) {
	g := startGateway(t, nil, withDialIn)
	toy := newToy(t, 1, "ws")
	conn := toy.connect(toy.checkIn(g))
	agent := agentOf(t, g)
	var frames atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(60 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if err := conn.Send(ctx, xiaozhi.Message{Binary: true, Data: bytes.Repeat([]byte{7}, 160)}); err != nil {
				t.Errorf("after %d frames: %v", frames.Load(), err)
				return
			}
			frames.Add(1)
		}
	})
	wait.For(t, "there was much sound", func() bool {
		for _, volume := range []int{10, 90} {
			agent.setVolume(volume)
			if got := agent.volume(); got != volume {
				t.Fatalf("the volume is %d, want %d", got, volume)
			}
		}
		return frames.Load() >= 20
	})
	cancel()
	wg.Wait()
}

// TestToyAfterRestart checks that a toy reconnects to a restarted gateway with its old
// credential and is still trusted.
func TestToyAfterRestart(t *testing.T) {
	for _, medium := range bothTransports {
		t.Run(medium, func(t *testing.T) {
			g := startGateway(t, nil, withDialIn)
			toy := newToy(t, 1, medium)
			settings := toy.checkIn(g)
			talk := toy.connect(settings)
			g.online(toyID)
			g.adopt(toyID)
			cfg := testConfig()
			cfg.Listen, cfg.DialIn.Listen, cfg.DialIn.MQTT = "127.0.0.1:0", g.DialIn.Addr().String(), g.DialIn.MQTTAddr().String()
			g.stop()
			<-talk.over
			again, err := gateway.New(gateway.Parts{Config: cfg, Data: g.data, Version: version(), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			after := runGateway(t, again, g.data)
			toy.connect(settings)
			after.online(toyID)
			if dev := after.device(toyID); dev.Trust != ferrule.TrustAdopted {
				t.Errorf("got %+v", dev)
			}
		})
	}
}

// TestPhoto checks that an agent gets the picture that a toy takes, in both versions of
// MCP.
func TestPhoto(t *testing.T) {
	for _, medium := range bothTransports {
		t.Run(medium, func(t *testing.T) {
			g := startGateway(t, nil, withDialIn)
			toy := newToy(t, 1, medium)
			toy.connect(toy.checkIn(g))
			g.online(toyID)
			g.adopt(toyID)
			for _, mcpVersion := range mcpVersions {
				told, err := dialAgent(t, g, mcpVersion, "/mcp").use(t.Context(), toyID+"__self_camera_take_photo", `{"question":"What is there?"}`)
				if err != nil || told.isError {
					t.Fatalf("%s: %+v, %v", mcpVersion, told, err)
				}
				pictures := 0
				for _, c := range told.result.Content {
					if picture, ok := c.(*mcp.ImageContent); ok {
						pictures++
						if _, err := jpeg.Decode(bytes.NewReader(picture.Data)); err != nil || picture.MIMEType != "image/jpeg" {
							t.Errorf("%s: %s: %v", mcpVersion, picture.MIMEType, err)
						}
					}
				}
				if pictures != 1 {
					t.Errorf("%s: %d pictures in %+v", mcpVersion, pictures, told.result.Content)
				}
			}
		})
	}
}

// refusedToy checks that a connection is refused and that the connected toy is not
// disturbed.
func refusedToy(t *testing.T, g *testGateway, toy *testToy, s xiaozhi.Settings) {
	t.Helper()
	if conn, err := toy.dial(s); err == nil {
		conn.Close()
		t.Error("it was let in")
	}
	if _, err := g.call(toyID, "self.get_device_status", `{}`, wait.Ample); err != nil {
		t.Errorf("the toy that was there: %v", err)
	}
}

// withSecret returns settings with another credential.
func withSecret(s xiaozhi.Settings, secret string) xiaozhi.Settings {
	mqtt, ws := *s.MQTT, *s.WebSocket
	mqtt.Password, ws.Token = secret, secret
	return xiaozhi.Settings{MQTT: &mqtt, WebSocket: &ws}
}

// TestCredentialsRefused checks that a wrong, missing, foreign or revoked credential is
// refused and does not disturb the device that has the address.
func TestCredentialsRefused(t *testing.T) {
	for _, medium := range bothTransports {
		t.Run(medium, func(t *testing.T) {
			g := startGateway(t, nil, withDialIn)
			toy, other := newToy(t, 1, medium), newToy(t, 2, medium)
			own := toy.checkIn(g)
			toy.connect(own)
			g.online(toyID)
			g.adopt(toyID)
			foreign := other.checkIn(g)
			for name, secret := range map[string]string{
				"wrong": own.MQTT.Password + "x", "missing": "", "foreign": foreign.MQTT.Password, "nonsense": "..", "guessed": strings.Repeat("A", len(own.MQTT.Password)),
			} {
				t.Run(name, func(t *testing.T) {
					toy.t = t
					refusedToy(t, g, toy, withSecret(own, secret))
				})
			}
			toy.t = t
			thief := newToy(t, 1, medium)
			thief.Identity.ClientID = "somebody-else"
			if s, err := thief.CheckIn(t.Context(), g.DialIn.URL(), thief.Identity); err == nil {
				t.Errorf("a second device with its address got %+v", s)
			}
			if err := g.person("forget_device", `{"device":"`+toyID+`"}`); err != nil {
				t.Fatal(err)
			}
			wait.For(t, "its connection has ended", func() bool { return g.device(toyID).State != ferrule.StateOnline })
			if conn, err := toy.dial(own); err == nil {
				conn.Close()
				t.Error("a void credential was taken")
			}
			fresh := toy.checkIn(g)
			toy.connect(fresh)
			g.online(toyID)
			if dev := g.device(toyID); dev.Trust != ferrule.TrustPending {
				t.Errorf("after it was forgotten: %+v", dev)
			}
		})
	}
}

// TestForgetSquatter checks that a stranger with a toy's address keeps the toy out only
// until the owner forgets the address.
func TestForgetSquatter(t *testing.T) {
	for _, medium := range bothTransports {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s gone %v", medium, gone), func(t *testing.T) {
				g := startGateway(t, nil, withDialIn)
				toy, squatter := newToy(t, 1, medium), newToy(t, 1, medium)
				squatter.Identity.ClientID = "somebody-else"
				address := toy.Identity.DeviceID
				conn, err := squatter.dial(squatter.checkIn(g))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				wait.For(t, "it is discovered", func() bool { return g.device(address).ID != "" })
				if gone {
					conn.Close()
					wait.For(t, "it is gone", func() bool { return g.device(address).ID == "" })
				}
				if s, err := toy.CheckIn(t.Context(), g.DialIn.URL(), toy.Identity); err == nil {
					t.Fatalf("the toy got %+v", s)
				}
				if err := g.person("forget_device", fmt.Sprintf(`{"device":%q}`, address)); err != nil {
					t.Fatal(err)
				}
				toy.connect(toy.checkIn(g))
				g.online(toyID)
				if err := g.person("forget_device", `{"device":"no-such-device"}`); ferrule.AsError(err).Code != ferrule.NotFound {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestForgetByAddress checks that forgetting a toy by its address forgets all of it: the
// next device with the address is pending.
func TestForgetByAddress(t *testing.T) {
	g := startGateway(t, nil, withDialIn)
	toy, next := newToy(t, 1, "mqtt"), newToy(t, 1, "mqtt")
	toy.connect(toy.checkIn(g))
	g.online(toyID)
	g.adopt(toyID)
	if err := g.person("forget_device", fmt.Sprintf(`{"device":%q}`, toy.Identity.DeviceID)); err != nil {
		t.Fatal(err)
	}
	next.Identity.ClientID = "somebody-else"
	next.connect(next.checkIn(g))
	g.online(toyID)
	if dev := g.device(toyID); dev.Trust != ferrule.TrustPending {
		t.Errorf("got %+v", dev)
	}
}

// TestAdoptByAddress checks that a toy can be adopted by its address, by which it was listed
// before it said what it is.
func TestAdoptByAddress(t *testing.T) {
	g := startGateway(t, nil, withDialIn)
	toy := newToy(t, 1, "ws")
	toy.connect(toy.checkIn(g))
	g.online(toyID)
	if err := g.person("adopt_device", fmt.Sprintf(`{"device":%q,"name":"kitchen"}`, toy.Identity.DeviceID)); err != nil {
		t.Fatal(err)
	}
	if dev := g.device("kitchen"); dev.Trust != ferrule.TrustAdopted || dev.Address != toy.Identity.DeviceID {
		t.Errorf("got %+v", dev)
	}
}

// TestNewestWins checks that a toy that reconnects while its old connection is open is
// served on the new one, and that no call runs twice.
func TestNewestWins(t *testing.T) {
	for _, medium := range bothTransports {
		t.Run(medium, func(t *testing.T) {
			g := startGateway(t, nil, withDialIn)
			toy := newToy(t, 1, medium)
			settings := toy.checkIn(g)
			old := toy.connect(settings)
			g.online(toyID)
			g.adopt(toyID)
			since := g.device(toyID).Since
			toy.connect(settings)
			select {
			case <-old.over:
			case <-time.After(wait.Ample):
				t.Fatal("the old connection still stands")
			}
			wait.For(t, "it has reconnected", func() bool {
				dev := g.device(toyID)
				return dev.State == ferrule.StateOnline && dev.Since.After(since)
			})
			if _, err := g.call(toyID, "self.dog.pulse", `{"token":"once"}`, wait.Ample); err != nil || toy.Runs()["once"] != 1 {
				t.Errorf("%v, %v", err, toy.Runs())
			}
		})
	}
}

// TestActivationCode checks that a new toy shows a code and gets no credential, and is
// adopted once its owner has entered the code.
func TestActivationCode(t *testing.T) {
	g := startGateway(t, nil, withDialIn, func(c *config.Config) { c.DialIn.Activation = true })
	toy := newToy(t, 1, "mqtt")
	settings := toy.checkIn(g)
	if len(settings.Code) != 6 || settings.MQTT != nil || settings.WebSocket != nil {
		t.Fatalf("got %+v", settings)
	}
	if err := g.person("adopt_device", `{"device":"no-such-code"}`); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("got %v", err)
	}
	// Its owner finds it in the list, and agents do not.
	address := toy.Identity.DeviceID
	ask := func(role ferrule.Role, tool, args string) string {
		result, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: role}, Device: ferrule.GatewayID, Tool: tool, Args: json.RawMessage(args)})
		if err != nil {
			return err.Error()
		}
		return string(result.Value)
	}
	for tool, args := range map[string]string{"list_devices": `{}`, "describe_device": fmt.Sprintf(`{"device":%q}`, address)} {
		if got := ask(ferrule.Person, tool, args); !strings.Contains(got, "it shows the code "+settings.Code) || !strings.Contains(got, toyID) {
			t.Errorf("%s: got %s", tool, got)
		}
		if got := ask(ferrule.Agent, tool, args); strings.Contains(got, settings.Code) || strings.Contains(got, toyID) {
			t.Errorf("%s: an agent got %s", tool, got)
		}
	}
	if got := ask(ferrule.Person, "adopt_device", fmt.Sprintf(`{"device":%q}`, address)); !strings.Contains(got, "shows a code") {
		t.Errorf("adopted without its code: %s", got)
	}
	if got := ask(ferrule.Person, "adopt_device", fmt.Sprintf(`{"device":%q,"name":"no good"}`, settings.Code)); !strings.Contains(got, "must be letters and digits") {
		t.Errorf("adopted with a wrong name: %s", got)
	}
	if got := ask(ferrule.Person, "adopt_device", fmt.Sprintf(`{"device":%q,"name":"teddy"}`, settings.Code)); !strings.Contains(got, `"teddy"`) || !strings.Contains(got, toyID+" at "+address) {
		t.Errorf("it is not named: %s", got)
	}
	toy.connect(toy.checkIn(g))
	g.online("teddy")
	if dev := g.device("teddy"); dev.Trust != ferrule.TrustAdopted || dev.Address != address {
		t.Errorf("got %+v", dev)
	}
	if got := ask(ferrule.Person, "list_devices", `{}`); strings.Contains(got, settings.Code) {
		t.Errorf("it is still listed with a code: %s", got)
	}
}

// TestActivationInPlace checks that the adoption of another toy with the same address
// ends the connection of the first and revokes its credential.
func TestActivationInPlace(t *testing.T) {
	g := startGateway(t, nil, withDialIn, func(c *config.Config) { c.DialIn.Activation = true })
	toy, next := newToy(t, 1, "ws"), newToy(t, 1, "mqtt")
	g.adopt(toy.checkIn(g).Code)
	old := toy.connect(toy.checkIn(g))
	g.online(toyID)
	next.Identity.ClientID = "after-its-flash-was-erased"
	g.adopt(next.checkIn(g).Code)
	select {
	case <-old.over:
	case <-time.After(wait.Ample):
		t.Fatal("the toy of before is still there")
	}
	next.connect(next.checkIn(g))
	g.online(toyID)
}

// TestDialInFlood checks that a host with many idle connections uses up its own share
// only.
func TestDialInFlood(t *testing.T) {
	g := startGateway(t, nil, withDialIn, func(c *config.Config) { c.DialIn.PerHost = 8 })
	for _, at := range []net.Addr{g.DialIn.Addr(), g.DialIn.MQTTAddr()} {
		var conns []net.Conn
		for range 40 {
			conn, err := net.Dial("tcp4", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns = append(conns, conn)
		}
		wait.For(t, "one host has at most 8 connections to "+at.String(), func() bool {
			open := 0
			for _, conn := range conns {
				conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				if _, err := conn.Read(make([]byte, 1)); err != io.EOF && !isReset(err) {
					open++
				}
			}
			return open <= 8
		})
	}
	toy := newToy(t, 1, "mqtt")
	toy.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}).DialContext
	toy.connect(toy.checkIn(g))
	g.online(toyID)
}

// TestDialInRequests checks that a host that asks for ever more devices on one
// connection is refused after a while and cannot take the code of another host's toy.
func TestDialInRequests(t *testing.T) {
	g := startGateway(t, nil, withDialIn, func(c *config.Config) { c.DialIn.Activation = true })
	toy := newToy(t, 1, "mqtt")
	toy.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}).DialContext
	code := toy.checkIn(g).Code
	answered, start := 0, time.Now()
	for i := range 1000 {
		body := fmt.Sprintf(`{"mac_address":"02:00:00:01:%02x:%02x","uuid":"flood"}`, i/256, i%256)
		resp, err := http.Post(g.DialIn.URL(), "application/json", strings.NewReader(body))
		if err != nil {
			continue
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		answered++
	}
	if limit := 400 + int(256*time.Since(start).Minutes()); answered > limit { // it may send 256 at once, and then 256 a minute
		t.Errorf("%d requests of one host were answered, limit is %d", answered, limit)
	}
	g.adopt(code)
	toy.connect(toy.checkIn(g))
	g.online(toyID)
}

// TestAllAtOnce checks that all toys behind one router can connect at the same time, for
// example after a power cut.
func TestAllAtOnce(t *testing.T) {
	const toys = 16
	g := startGateway(t, nil, withDialIn, func(c *config.Config) { c.DialIn.PerHost = toys })
	for i := range toys {
		toy := newToy(t, i+1, "ws")
		toy.connect(toy.checkIn(g))
	}
	wait.For(t, "all are connected", func() bool { return g.Catalog.Counts().Pending == toys })
}

// isReset reports whether the other side has ended a connection.
func isReset(err error) bool {
	return err != nil && !strings.Contains(err.Error(), "timeout")
}

// TestDialInHelp checks that the address explains itself in a browser, and that nothing
// else of the gateway is served there.
func TestDialInHelp(t *testing.T) {
	g := startGateway(t, nil, withDialIn)
	get := func(url string) (int, string) {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if code, text := get(g.DialIn.URL()); code != http.StatusOK || !strings.Contains(text, "OTA field") {
		t.Errorf("%d %s", code, text)
	}
	for _, path := range []string{"/mcp", "/healthz", "/"} {
		if code, text := get("http://" + g.DialIn.Addr().String() + path); code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}
