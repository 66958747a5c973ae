package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var leaseRounds = flag.Int("lease-rounds", 2, "how often TestLeases ends a lease in each way")

// ledLease switches an LED off after some time.
func ledLease(length string) string {
	return `
match: {device: uno}
tools:
  gpio_write:
    lease: {for: ` + length + `, then: {tool: gpio_write, args: {pin: $pin, value: false}}}
`
}

// leaseEnds measures how long an LED stays on after leases have ended.
type leaseEnds struct{ slowest time.Duration }

// wentLow waits until the LED is off. The lease has ended at a time.
func (l *leaseEnds) wentLow(t *testing.T, board *uno.Board, since time.Time) {
	t.Helper()
	wait.For(t, "the LED is off", func() bool { return !board.Pin("B5") })
	l.slowest = max(l.slowest, time.Since(since))
}

// report reports the slowest end.
func (l *leaseEnds) report(t *testing.T) {
	t.Helper()
	figure.AtMost(t, "time from the end of a lease until the LED is off", l.slowest, 2*time.Second)
}

// TestLeases switches an LED of an emulated board on, and checks that it is off soon after
// its lease has expired, its agent was killed, or its gateway was.
func TestLeases(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	on := map[string]any{"pin": 13, "value": true}
	t.Run("expiry", func(t *testing.T) {
		var ends leaseEnds
		defer ends.report(t)
		board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
		g := startGateway(t, nil, onSerial("uno", board, 0), withOverlay(t, ledLease("1s")))
		g.online("uno")
		for range *leaseRounds {
			before := len(board.Edges("B5"))
			start := time.Now()
			g.must("uno", "gpio_write", `{"pin":13,"value":true}`, "value")
			ends.wentLow(t, board, start.Add(time.Second))
			if n := len(board.Edges("B5")) - before; n != 2 {
				t.Fatalf("the LED has changed %d times", n)
			}
		}
		g.Leases.Close() // as on a full disk
		if _, err := g.call("uno", "gpio_write", `{"pin":13,"value":true}`, ample); err == nil || ferrule.AsError(err).Code != ferrule.Denied || board.Pin("B5") {
			t.Errorf("a call whose lease cannot be recorded: %v", err)
		}
	})
	t.Run("agent on standard input", func(t *testing.T) {
		var ends leaseEnds
		defer ends.report(t)
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
			ends.wentLow(t, board, start)
		}
	})
	t.Run("agent whose process is the gateway", func(t *testing.T) {
		var ends leaseEnds
		defer ends.report(t)
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
			ends.wentLow(t, board, start)
		}
	})
	t.Run("agent over HTTP", func(t *testing.T) {
		var ends leaseEnds
		defer ends.report(t)
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
			ends.wentLow(t, board, start)
		}

		// An agent that comes back with its session can use the tool as before.
		agent, err := newPlainAgent(t.Context(), http.DefaultClient, g.URL()+"/mcp", legacy)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			ctx, leave := context.WithCancel(t.Context())
			stream, err := agent.listen(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := agent.call(t.Context(), "uno__gpio_write", `{"pin":13,"value":true}`); err != nil {
				t.Fatal(err)
			}
			if open, due := g.Leases.Count(); open != 1 || due != 0 || !board.Pin("B5") {
				t.Fatalf("%d leases, %d are due", open, due)
			}
			leave()
			stream.Body.Close()
			ends.wentLow(t, board, time.Now())
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
			wait.For(t, "the board can be changed", func() bool {
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

// unoAddress is the address of the emulated board when it dials in.
const unoAddress = "24:6f:28:aa:bb:02"

// dialed is a command that is a node of a cluster, with a device that dials in.
func dialed() {
	cfg := testConfig()
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &cfg); err != nil {
		fail(err)
	}
	data, listen := os.Args[2], os.Args[3]
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		fail(err)
	}
	g, err := gateway.New(gateway.Parts{
		Config: cfg, Data: data, Version: version(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Connectors: []transport.Connector{&dialIn{ln, unoAddress}},
	})
	if err != nil {
		fail(err)
	}
	fail(g.Run(context.Background()))
}

// bridged is a board whose serial port is connected to one of several addresses.
type bridged struct {
	port *os.File

	mu   sync.Mutex
	at   string
	conn net.Conn
}

// bridge connects a board to an address.
func bridge(t *testing.T, board *uno.Board) *bridged {
	t.Helper()
	port, err := os.OpenFile(board.Path(), os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bridged{port: port}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := port.Read(buf)
			if err != nil {
				return
			}
			b.mu.Lock()
			if b.conn != nil {
				b.conn.Write(buf[:n])
			}
			b.mu.Unlock()
		}
	})
	wg.Go(func() {
		for t.Context().Err() == nil {
			b.mu.Lock()
			at := b.at
			b.mu.Unlock()
			conn, err := net.Dial("tcp", at)
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			b.mu.Lock()
			b.conn = conn
			b.mu.Unlock()
			io.Copy(port, conn)
			conn.Close()
		}
	})
	t.Cleanup(func() {
		b.move("")
		port.Close()
		wg.Wait()
	})
	return b
}

// move makes the board dial another address.
func (b *bridged) move(at string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = at
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
}

// TestLeaseOfDeadNode kills the node that holds a board while its LED has a lease. The board
// connects to another node, which ends the lease.
func TestLeaseOfDeadNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const id = "rig-uno"
	var ends leaseEnds
	defer ends.report(t)
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
	line := bridge(t, board)
	b, atB := nodeWithDialIn(t, "b", servers, unoAddress)
	var mu sync.Mutex
	leases := make(map[string]bool)
	b.Cluster.Shared().Watch(func(key string, value []byte) {
		mu.Lock()
		defer mu.Unlock()
		if leases[key] = strings.HasPrefix(key, "lease.") && value != nil && !strings.Contains(string(value), `"ended":true`); !leases[key] {
			delete(leases, key)
		}
	})
	shared := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(leases) == n
		}
	}

	cfg := testConfig()
	joins(&cfg, "a", servers)
	withOverlay(t, strings.ReplaceAll(ledLease("10m"), "device: uno", "device: "+id))(&cfg)
	settings, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	data, atA := t.TempDir(), freeAddress(t)
	for range *leaseRounds {
		a := exec.Command("dialed", string(settings), data, atA)
		a.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		a.Stderr = t.Output()
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		line.move(atA)
		wait.For(t, "node a has the board", func() bool {
			dev := b.device(id)
			_, err := b.call(id, "uptime", `{}`, time.Second)
			return err == nil && dev.Node == "a"
		})
		b.must(id, "gpio_write", `{"pin":13,"value":true}`, "value")
		wait.For(t, "the lease is shared", shared(1))
		if !board.Pin("B5") {
			t.Fatal("the LED is off")
		}
		start := time.Now()
		a.Process.Kill()
		a.Wait()
		line.move(atB)
		ends.wentLow(t, board, start)
		wait.For(t, "the lease is over", shared(0))
	}
}

// TestLeaseOfRemoteAgent checks that a lease ends when its agent at another node is killed,
// and when that node stops.
func TestLeaseOfRemoteAgent(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	boards := startSim(t, sim.Config{})
	a := startGateway(t, map[string]string{"board": boards.Addrs()[0]}, func(c *config.Config) { joins(c, "a", servers) },
		withOverlay(t, strings.ReplaceAll(ledLease("10m"), "device: uno", "device: board")))
	b := startGateway(t, nil, func(c *config.Config) { joins(c, "b", servers) })
	for _, end := range []func(*mcpProcess){(*mcpProcess).kill, func(*mcpProcess) { b.stop() }} {
		agent := startMCP(t, b.data)
		if !agent.lists("board__gpio_write") {
			t.Fatal("the board is not listed")
		}
		agent.call("board__gpio_write", map[string]any{"pin": 2, "value": true})
		if a.must("board", "gpio_read", `{"pin":2}`, "value") != true {
			t.Fatal("the pin is low")
		}
		end(agent)
		wait.For(t, "the pin is low", func() bool { return a.must("board", "gpio_read", `{"pin":2}`, "value") == false })
	}
}

// TestLeaseOfForgottenDevice checks that a forgotten device leaves no lease behind.
func TestLeaseOfForgottenDevice(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"board": boards.Addrs()[0]}, withOverlay(t, strings.ReplaceAll(ledLease("10m"), "device: uno", "device: board")))
	g.online("board")
	g.must("board", "gpio_write", `{"pin":2,"value":true}`, "value")
	if open, _ := g.Leases.Count(); open != 1 {
		t.Fatalf("%d leases are open", open)
	}
	person := ferrule.Principal{Role: ferrule.Person, Name: "anna"}
	if _, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{Principal: person, Device: ferrule.GatewayID, Tool: "forget_device", Args: json.RawMessage(`{"device":"board"}`)}); err != nil {
		t.Fatal(err)
	}
	if open, _ := g.Leases.Count(); open != 0 {
		t.Errorf("%d leases are left", open)
	}
}

// TestLimitsOfAll checks that callers share the limits of a device, that a refused call
// says when it may be tried again, and that a restart changes nothing.
func TestLimitsOfAll(t *testing.T) {
	boards := startSim(t, sim.Config{})
	data := t.TempDir()
	start := func() *testGateway {
		cfg := testConfig()
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
