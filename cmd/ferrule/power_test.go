package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

var powerCuts = flag.Int("power-cuts", 2, "how often TestPowerCuts cuts the power of its devices for 3 s")

// powered is a device whose power can be cut. It keeps its address.
type powered struct {
	t       *testing.T
	address string
	serve   func(ctx context.Context, address string) error
	off     func()
}

func (p *powered) turnOn() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- p.serve(ctx, p.address) }()
	p.off = func() {
		cancel()
		if err := <-over; err != nil {
			p.t.Errorf("%s: %v", p.address, err)
		}
		p.off = func() {}
	}
	wait.For(p.t, "it accepts connections", func() bool {
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// newPowered turns a device on, and off when the test ends.
func newPowered(t *testing.T, serve func(ctx context.Context, address string) error) *powered {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	p := &powered{t: t, address: ln.Addr().String(), serve: serve}
	p.turnOn()
	t.Cleanup(func() { p.off() })
	return p
}

// serveBoard serves a simulated board.
func serveBoard(ctx context.Context, address string) error {
	fleet, err := sim.Listen(sim.Config{Addr: address, Count: 1})
	if err != nil {
		return err
	}
	return fleet.Run(ctx)
}

// serveGate serves an MCP server over HTTP that counts how often it was opened. It
// forgets its sessions when it is turned off. A quiet one has no stream of its own, so
// that the gateway does not notice the power cut.
func serveGate(opened *atomic.Int64, version string, quiet bool) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		gate := thing.New("gate", "1")
		thing.Tool(gate, "open", "Open the gate", func(context.Context, struct{}) (int64, error) { return opened.Add(1), nil })
		thing.Tool(gate, "look", "Look whether it is open", func(context.Context, struct{}) (int64, error) { return opened.Load(), nil }, thing.Reads())
		handler := mcpserver.New(gate, mcpserver.Config{}).Handler()
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if version == legacy && r.Header.Get("Mcp-Protocol-Version") >= modern {
				http.Error(w, "what is that?", http.StatusBadRequest)
				return
			}
			if quiet && r.Method == http.MethodGet {
				http.Error(w, "there is no stream", http.StatusMethodNotAllowed)
				return
			}
			handler.ServeHTTP(w, r)
		})}
		stop := context.AfterFunc(ctx, func() { server.Close() })
		defer stop()
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// TestPowerCuts cuts the power of a board and of HTTP devices for 3 s. The tools of the
// devices stay in the list, and the first call after a device is back succeeds, and runs
// once.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	var opened, openedOld, openedQuiet atomic.Int64
	board, gate := newPowered(t, serveBoard), newPowered(t, serveGate(&opened, modern, false))
	old, quiet := newPowered(t, serveGate(&openedOld, legacy, false)), newPowered(t, serveGate(&openedQuiet, legacy, true))
	g := startGateway(t, map[string]string{"robot": board.address}, unmeasured, func(c *config.Config) {
		c.Retry.Grace, c.Retry.Wait, c.Calls.Deadline = config.Interval(ample), config.Interval(ample), config.Interval(ample)
		for name, d := range map[string]*powered{"gate": gate, "old": old, "quiet": quiet} {
			c.Devices.HTTP = append(c.Devices.HTTP, config.HTTPDevice{URL: "http://" + d.address + "/mcp", Name: name})
		}
	})
	agent := dialAgent(t, g, modern, "/mcp")
	devices := []struct {
		*powered
		id, tool, args string
	}{
		{board, "robot", "gpio_write", `{"pin":2,"value":true}`},
		{gate, "gate", "open", `{}`},
		{old, "old", "open", `{}`},
		{old, "old", "look", `{}`},
		{quiet, "quiet", "open", `{}`},
		{quiet, "quiet", "look", `{}`},
	}
	for _, d := range devices {
		g.online(d.id)
	}
	wait.For(t, "all tools are listed", func() bool {
		return agent.lists("robot") && agent.lists("gate") && agent.lists("old") && agent.lists("quiet")
	})
	before := agent.list()
	for round := range *powerCuts {
		for _, d := range devices {
			d.off()
		}
		time.Sleep(3 * time.Second) // the power cut
		if now := agent.list(); !slices.Equal(now, before) {
			t.Fatalf("during cut %d the list is %q, before it was %q", round, now, before)
		}
		results := make(chan error, len(devices))
		for i, d := range devices {
			if i == 0 || devices[i-1].powered != d.powered {
				d.turnOn()
			}
			go func() {
				begun := time.Now()
				_, err := g.call(d.id, d.tool, d.args, 0)
				if err != nil {
					err = fmt.Errorf("cut %d: %s of %s: %s after %v: %w", round, d.tool, d.id, ferrule.AsError(err).Code, time.Since(begun), err)
				}
				results <- err
			}()
		}
		for range devices {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if n := int64(round + 1); opened.Load() != n || openedOld.Load() != n || openedQuiet.Load() != n {
			t.Fatalf("after cut %d the gates were opened %d, %d and %d times", round, opened.Load(), openedOld.Load(), openedQuiet.Load())
		}
		if now := agent.list(); !slices.Equal(now, before) {
			t.Fatalf("after cut %d the list is %q, before it was %q", round, now, before)
		}
	}
	for _, d := range devices {
		// A read is answered before it is on disk.
		wait.For(t, d.tool+" of "+d.id+" is recorded once per cut", func() bool {
			return len(g.outcomes(d.id, d.tool)) == *powerCuts
		})
	}
}
