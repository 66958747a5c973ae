package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// testGateway is a complete gateway in this process, with real files and sockets.
type testGateway struct {
	*gateway.Gateway
	t    testing.TB
	data string
	stop func()
}

// testConfig is the default, except that agents on this machine need no token.
func testConfig() config.Config {
	c := config.Default()
	c.Agents.OpenLoopback = true
	return c
}

// openLoopback does the same in a configuration file.
const openLoopback = "agents: {open_loopback: true}\n"

// openFile writes such a file, for a process.
func openFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ferrule.yaml")
	if err := os.WriteFile(file, []byte(openLoopback), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// needsToken adds tokens, and requires one of every caller.
func needsToken(tokens ...config.Token) func(*config.Config) {
	return func(c *config.Config) { c.Agents.OpenLoopback, c.Auth.Tokens = false, append(c.Auth.Tokens, tokens...) }
}

// startGateway runs a gateway with devices: addresses by name. It ends with the test, or
// by stop.
func startGateway(t testing.TB, devices map[string]string, change ...func(*config.Config)) *testGateway {
	t.Helper()
	return startGatewayWith(t, devices, func(*gateway.Gateway) {}, change...)
}

// startGatewayWith does the same, and calls before with the gateway before it runs.
func startGatewayWith(t testing.TB, devices map[string]string, before func(*gateway.Gateway), change ...func(*config.Config)) *testGateway {
	t.Helper()
	cfg := testConfig()
	cfg.Listen = "127.0.0.1:0"
	for name, addr := range devices {
		cfg.Devices.TCP = append(cfg.Devices.TCP, config.TCPDevice{Name: name, Address: addr})
	}
	for _, fn := range change {
		fn(&cfg)
	}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	g, err := gateway.New(gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	before(g)
	return runGateway(t, g, data)
}

// unmeasured turns polling off, for devices that should only get the calls of the test.
func unmeasured(c *config.Config) { c.Polling.Enabled = false }

// runGateway runs a gateway.
func runGateway(t testing.TB, g *gateway.Gateway, data string) *testGateway {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	tg := &testGateway{Gateway: g, t: t, data: data}
	tg.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the gateway: %v", err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("closing the gateway: %v", err)
		}
	})
	t.Cleanup(tg.stop)
	return tg
}

// device returns a device, or one without an ID.
func (g *testGateway) device(id string) ferrule.Device {
	if dev, _, ok := g.Fleet.Lookup(id); ok {
		return *dev
	}
	return ferrule.Device{}
}

func (g *testGateway) online(id string) {
	g.t.Helper()
	wait.For(g.t, id+" is online", func() bool { return g.device(id).State == ferrule.StateOnline })
}

// call calls a tool as an agent, through the pipeline.
func (g *testGateway) call(device, tool, args string, timeout time.Duration) (string, error) {
	return g.callAs("", device, tool, args, timeout)
}

// callAs makes a call with a given ID.
func (g *testGateway) callAs(id, device, tool, args string, timeout time.Duration) (string, error) {
	result, err := g.Pipeline.Handle(context.Background(), &ferrule.Call{
		ID: id, Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"},
		Device: device, Tool: tool, Args: json.RawMessage(args), Timeout: ferrule.Duration(timeout),
	})
	if err != nil {
		return "", err
	}
	return string(result.Value), nil
}

// startSim runs simulated boards until the test ends.
func startSim(t testing.TB, cfg sim.Config) *sim.Fleet {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	cfg.Count = max(1, cfg.Count)
	fleet, err := sim.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the simulation: %v", err)
		}
	})
	return fleet
}

// cutter is a connection between the gateway and a board that can be cut.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	held  sync.RWMutex // locked while nothing is passed on
}

// heldConn passes on what is written to it, unless its cutter holds everything.
type heldConn struct {
	net.Conn
	cutter *cutter
}

// Write implements io.Writer.
func (c heldConn) Write(p []byte) (int, error) {
	c.cutter.held.RLock()
	defer c.cutter.held.RUnlock()
	return c.Conn.Write(p)
}

// newCutter listens in front of an address.
func newCutter(t testing.TB, target string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				wg.Go(func() {
					io.Copy(heldConn{way[0], c}, way[1])
					near.Close()
					far.Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		ln.Close()
		c.cut(false)
		wg.Wait()
	})
	return c
}

// hold passes nothing on until release is called, and breaks no connection, as a network
// does that is partitioned.
func (c *cutter) hold()    { c.held.Lock() }
func (c *cutter) release() { c.held.Unlock() }

// cut breaks every connection: with a reset, or orderly.
func (c *cutter) cut(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if reset {
			conn.(*net.TCPConn).SetLinger(0)
		}
		conn.Close()
	}
	c.conns = nil
}

func TestHealth(t *testing.T) {
	fleet := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": fleet.Addrs()[0], "away": "127.0.0.1:1"})
	g.online("robot")
	get := func() (int, string) {
		resp, err := http.Get("http://" + g.Addr() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	wait.For(t, "the cluster works", func() bool { return g.Cluster.State().Working })
	if code, body := get(); code != http.StatusOK || body != `{"status":"ok","journal":"ok","cluster":"ok","devices":{"offline":1,"online":1,"released":0}}`+"\n" {
		t.Errorf("got %d %s", code, body)
	}
	// If the journal cannot be written, the gateway is failing and refuses changes.
	g.Journal.Close()
	_, err := g.call("robot", "gpio_write", `{"pin":2,"value":true}`, 0)
	if e := ferrule.AsError(err); e.Code != ferrule.Denied || fleet.Boards[0].Level(sim.PinLED) != 0 {
		t.Errorf("got %v, and the LED is at %d", err, fleet.Boards[0].Level(sim.PinLED))
	}
	if _, err := g.call("robot", "gpio_read", `{"pin":2}`, 0); err != nil {
		t.Errorf("reading: %v", err)
	}
	if code, body := get(); code != http.StatusServiceUnavailable || !strings.Contains(body, `"status":"failing","journal":"failing"`) {
		t.Errorf("got %d %s", code, body)
	}
}
