package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
)

var leaseRounds = flag.Int("lease-rounds", 2, "how often TestLeases ends a lease in each way")

// leaseLimit is how long the end of a lease may take.
const leaseLimit = 2 * time.Second

// ledLease switches an LED off after some time.
func ledLease(length string) string {
	return `
match: {device: uno}
tools:
  gpio_write:
    lease: {for: ` + length + `, then: {tool: gpio_write, args: {pin: $pin, value: false}}}
`
}

// wentLow waits until the LED is off, and reports how long that took since a time.
func wentLow(t *testing.T, board *uno.Board, since time.Time) {
	t.Helper()
	eventually(t, 30*time.Second, "the LED is off", func() bool { return !board.Pin("B5") })
	if took := time.Since(since); took > leaseLimit {
		t.Errorf("the LED was off after %v, at most %v are allowed", took, leaseLimit)
	} else {
		t.Logf("off after %v", took.Round(time.Millisecond))
	}
}

// TestLeases switches an LED of an emulated board on, and checks that it is off soon after
// its lease has expired, its agent was killed, or its gateway was.
func TestLeases(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	on := map[string]any{"pin": 13, "value": true}
	t.Run("expiry", func(t *testing.T) {
		board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
		g := startGateway(t, nil, onSerial("uno", board, 0), withOverlay(t, ledLease("1s")))
		g.online("uno")
		for range *leaseRounds {
			start := time.Now()
			g.must("uno", "gpio_write", `{"pin":13,"value":true}`, "value")
			if !board.Pin("B5") {
				t.Fatal("the LED is off")
			}
			wentLow(t, board, start.Add(time.Second))
		}
		g.Leases.Close() // as on a full disk
		if _, err := g.call("uno", "gpio_write", `{"pin":13,"value":true}`, ample); err == nil || ferrule.AsError(err).Code != ferrule.Denied || board.Pin("B5") {
			t.Errorf("a call whose lease cannot be recorded: %v", err)
		}
	})
	t.Run("agent on standard input", func(t *testing.T) {
		board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
		g := startGateway(t, nil, onSerial("uno", board, 0), withOverlay(t, ledLease("10m")))
		g.online("uno")
		for i := range *leaseRounds {
			agent := startMCP(t, g.data)
			agent.call("uno__gpio_write", on)
			if !board.Pin("B5") {
				t.Fatal("the LED is off")
			}
			start := time.Now()
			if i%2 == 0 {
				agent.kill()
			} else { // as when the agent itself was killed
				agent.session.Close()
			}
			wentLow(t, board, start)
		}
	})
	t.Run("agent whose process is the gateway", func(t *testing.T) {
		board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
		file := filepath.Join(t.TempDir(), "ferrule.yaml")
		var cfg config.Config
		withOverlay(t, ledLease("10m"))(&cfg)
		if err := os.WriteFile(file, []byte("overlays: "+cfg.Overlays+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		data := t.TempDir()
		for range *leaseRounds {
			agent := startMCP(t, data, "--config", file, "--serial", "uno="+board.Path())
			agent.call("uno__gpio_write", on)
			if !board.Pin("B5") {
				t.Fatal("the LED is off")
			}
			start := time.Now()
			agent.session.Close()
			wentLow(t, board, start)
		}
	})
	t.Run("agent over HTTP", func(t *testing.T) {
		board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
		g := startGateway(t, nil, onSerial("uno", board, 0), withOverlay(t, ledLease("10m")))
		g.online("uno")
		for i := range *leaseRounds {
			transport := &http.Transport{}
			agent, err := newPlainAgent(t.Context(), &http.Client{Transport: transport}, g.URL()+"/mcp", legacy)
			if err != nil {
				t.Fatal(err)
			}
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			stream, err := agent.listen(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
			if _, err := agent.call(t.Context(), "uno__gpio_write", `{"pin":13,"value":true}`); err != nil {
				t.Fatal(err)
			}
			if !board.Pin("B5") {
				t.Fatal("the LED is off")
			}
			start := time.Now()
			if i%2 == 0 {
				kill() // its connections are closed
				transport.CloseIdleConnections()
			} else if _, err := agent.send(t.Context(), http.MethodDelete, "", "", ""); err != nil {
				t.Fatal(err)
			}
			wentLow(t, board, start)
		}
	})
	t.Run("gateway", func(t *testing.T) {
		board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
		node := newNode(t, "a", 0, "devices: {serial: [{port: "+board.Path()+", name: uno}]}\n")
		overlays := filepath.Join(node.data, "overlays")
		if err := errors.Join(os.Mkdir(overlays, 0o700), os.WriteFile(filepath.Join(overlays, "test.yaml"), []byte(ledLease("10m")), 0o600)); err != nil {
			t.Fatal(err)
		}
		for range *leaseRounds {
			node.start()
			node.reaches("uno", 30*time.Second)
			if _, err := node.call("uno", "gpio_write", `{"pin":13,"value":true}`); err != nil {
				t.Fatal(err)
			}
			node.kill()
			if !board.Pin("B5") {
				t.Fatal("the LED is off")
			}
			node.start()
			// This call waits for the end of the lease, and both come first.
			eventually(t, 30*time.Second, "the board can be changed", func() bool {
				_, err := node.call("uno", "pwm_write", `{"pin":9,"duty":1}`)
				return err == nil
			})
			if board.Pin("B5") {
				t.Error("another change came before the end of the lease")
			}
			node.stop()
		}
		ends := 0
		if err := journal.Read(node.data, func(e ferrule.Entry) error {
			if e.Principal == (ferrule.Principal{Role: ferrule.Gateway, Name: "lease"}) && e.Tool == "gpio_write" {
				ends++
			}
			return nil
		}); err != nil || ends != 2**leaseRounds {
			t.Errorf("the journal has %d records of %d ends: %v", ends, *leaseRounds, err)
		}
	})
}

// TestLimitsOfAll checks that callers share the limits of a device, that a refused call
// says when it may be tried again, and that a restart changes nothing.
func TestLimitsOfAll(t *testing.T) {
	boards := startSim(t, sim.Config{})
	data := t.TempDir()
	start := func() *testGateway {
		cfg := config.Default()
		cfg.Listen = ""
		cfg.Devices.TCP = []config.TCPDevice{{Name: "board", Address: boards.Addrs()[0]}}
		withOverlay(t, "match: {device: board}\ntools: {gpio_write: {limits: {rate: 2/h}}}\n")(&cfg)
		g, err := gateway.New(gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		running := runGateway(t, g, data)
		running.online("board")
		return running
	}
	write := func(g *testGateway, who ferrule.Principal) error {
		_, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{Principal: who, Device: "board", Tool: "gpio_write", Args: json.RawMessage(`{"pin":2,"value":true}`)})
		return err
	}
	person, agent := ferrule.Principal{Role: ferrule.Person, Name: "anna"}, ferrule.Principal{Role: ferrule.Agent, Name: "test"}
	g := start()
	if err := errors.Join(write(g, person), write(g, agent)); err != nil {
		t.Fatal(err)
	}
	for restarts := range 2 {
		for _, who := range []ferrule.Principal{person, agent} {
			err := write(g, who)
			if err == nil || ferrule.AsError(err).Code != ferrule.Limited || !strings.HasPrefix(ferrule.AsError(err).Hint, "try again in ") {
				t.Errorf("%s after %d restarts: %v", who, restarts, err)
			}
		}
		g.stop()
		g = start()
	}
}
