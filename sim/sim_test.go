package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/sim"
)

// start runs a simulation until the test ends.
func start(t *testing.T, cfg sim.Config) *sim.Fleet {
	t.Helper()
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
			t.Errorf("Run: %v", err)
		}
	})
	return fleet
}

// client is a bare client of a board.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) ask(request string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c, request); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

const read = `{"jsonrpc":"2.0","id":1,"method":"gpio_read","params":{"pin":2}}`

// TestBoard: a board answers as firmware does, keeps eight bits of a pin, serves
// one client at a time, and forgets its outputs when a client connects.
func TestBoard(t *testing.T) {
	fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1})
	one := dial(t, fleet.Addrs()[0])
	if got := one.ask(`{"jsonrpc":"2.0","id":7,"method":"gpio_write","params":{"pin":258,"value":true}}`); got != `{"result":{"pin":2,"name":"led","value":true},"jsonrpc":"2.0","id":7}` {
		t.Errorf("got %s", got)
	}
	if fleet.Boards[0].Level(sim.PinLED) != 1 {
		t.Error("the LED is off")
	}
	two := dial(t, fleet.Addrs()[0])
	answered := make(chan string, 1)
	go func() { answered <- two.ask(read) }()
	select {
	case got := <-answered:
		t.Errorf("the second client got %s while the first was there", got)
	case <-time.After(50 * time.Millisecond):
	}
	one.Close()
	if got := <-answered; !strings.Contains(got, `"value":false`) {
		t.Errorf("got %s: the LED is on after a new connection", got)
	}
}

func TestMeasurements(t *testing.T) {
	fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1})
	c := dial(t, fleet.Addrs()[0])
	var adc struct {
		Result struct {
			Value int
			Volts float64
		}
	}
	if err := json.Unmarshal([]byte(c.ask(`{"jsonrpc":"2.0","id":1,"method":"adc_read","params":{"pin":34}}`)), &adc); err != nil || adc.Result.Volts < 0.17 || adc.Result.Volts > 0.25 {
		t.Errorf("a room of %v volts, at ten millivolts a degree: %v", adc.Result.Volts, err)
	}
	time.Sleep(1200 * time.Millisecond)
	var buffer struct{ Result struct{ Values []float64 } }
	if err := json.Unmarshal([]byte(c.ask(`{"jsonrpc":"2.0","id":2,"method":"get_pin_buffer","params":{"pin":35}}`)), &buffer); err != nil || len(buffer.Result.Values) < 2 {
		t.Errorf("%d samples after more than a second, %v", len(buffer.Result.Values), err)
	}
}

func TestCount(t *testing.T) {
	fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 20})
	seen := make(map[string]bool)
	for _, addr := range fleet.Addrs() {
		seen[addr] = true
		if got := dial(t, addr).ask(read); !strings.Contains(got, `"name":"led"`) {
			t.Errorf("%s: got %s", addr, got)
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d addresses", len(seen))
	}
	if _, err := sim.Listen(sim.Config{Addr: fleet.Addrs()[0], Count: 1}); err == nil {
		t.Error("an address was given out twice")
	}
	if _, err := sim.Listen(sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: "nicely"}); err == nil || !strings.Contains(err.Error(), "glued") {
		t.Errorf("got %v", err)
	}
}

// TestBehavioursAreDistinct: each has a name and a text of its own.
func TestBehavioursAreDistinct(t *testing.T) {
	names, texts := make(map[string]bool), make(map[string]bool)
	for _, b := range sim.Behaviours() {
		if b.Name == "" || b.Text == "" || names[b.Name] || texts[b.Text] {
			t.Errorf("%q: %q", b.Name, b.Text)
		}
		names[b.Name], texts[b.Text] = true, true
	}
}
