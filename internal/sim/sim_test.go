package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// start runs a Fleet until the test ends.
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

// client is a minimal client of a board.
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
	conn.SetDeadline(time.Now().Add(wait.Ample))
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

// samples reads the samples of a pin, with additional parameters.
func (c *client) samples(pin int, more string) []float64 {
	c.t.Helper()
	var answer struct{ Result struct{ Values []float64 } }
	line := c.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"get_pin_buffer","params":{"pin":%d%s}}`, pin, more))
	if err := json.Unmarshal([]byte(line), &answer); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	return answer.Result.Values
}

// The sampled pins.
const (
	pinTemperature = 34
	pinLight       = 35
)

// askTwice sends a request that the board reads as two, and checks both answers for part.
func (c *client) askTwice(request, part string) {
	c.t.Helper()
	first := c.ask(request)
	second, err := c.in.ReadString('\n')
	if err != nil || !strings.Contains(first, part) || !strings.Contains(second, part) {
		c.t.Errorf("got %s and %s, %v", first, second, err)
	}
}

const read = `{"jsonrpc":"2.0","id":1,"method":"gpio_read","params":{"pin":2}}`

// TestBoard checks that a board behaves like firmware: it keeps eight bits of a pin, serves
// one client at a time, and resets its outputs when a client connects.
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
		t.Errorf("the second client got %s while the first was connected", got)
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
		t.Errorf("temperature is %v volts at 10 mV per degree: %v", adc.Result.Volts, err)
	}
	wait.For(t, "there are samples of light", func() bool { return len(c.samples(pinLight, "")) >= 2 })
}

// TestAVR checks the limits of the AVR board.
func TestAVR(t *testing.T) {
	fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: "no-schema"})
	c := dial(t, fleet.Addrs()[0])
	for _, test := range []struct{ request, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"get_info"}`, `"memory_profile":"low"`},
		{`{"jsonrpc":"2.0","id":32768,"method":"get_info"}` + "\n" + read, `"name":"led"`}, // the first is ignored
		{pulse(255), `"runs":1`},
		{`{"jsonrpc":"2.0","id":1,"method":"adc_read","params":{"pin":34}}`, `"mv":2`},
		{`{"jsonrpc":"2.0","id":1,"method":"get_pin_buffer","params":{"pin":35}}`, `"buffer_available":false`},
	} {
		if got := c.ask(test.request); !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s", test.request, got)
		}
	}
	c.askTwice(pulse(256), "Parse error")
	now := time.Now()
	for i := range 25 {
		fleet.Boards[0].Tick(now.Add(time.Duration(i) * 500 * time.Millisecond))
	}
	if n := len(c.samples(pinTemperature, "")); n != 10 {
		t.Errorf("%d samples without a limit", n)
	}
	if n := len(c.samples(pinTemperature, `,"limit":50`)); n != 20 {
		t.Errorf("%d samples with a limit", n)
	}
}

// TestLongRequests checks that an ESP32 reads longer requests than an AVR.
func TestLongRequests(t *testing.T) {
	fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1})
	c := dial(t, fleet.Addrs()[0])
	if got := c.ask(pulse(511)); !strings.Contains(got, `"runs":1`) {
		t.Errorf("got %s", got)
	}
	c.askTwice(pulse(512), "Parse error")
}

// pulse returns a request of the given length.
func pulse(length int) string {
	const head, tail = `{"jsonrpc":"2.0","id":1,"method":"pulse","params":{"token":"`, `"}}`
	return head + strings.Repeat("x", length-len(head)-len(tail)) + tail
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
		t.Error("an address is used twice")
	}
	if _, err := sim.Listen(sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: "nicely"}); err == nil || !strings.Contains(err.Error(), "glued") {
		t.Errorf("got %v", err)
	}
}

// TestOutputs checks that every listed tool returns what MCP/U or its declaration specifies.
func TestOutputs(t *testing.T) {
	const digital = "{name string, pin number, value bool}"
	want := map[string]struct{ params, shape string }{
		"gpio_write":      {`{"pin":2,"value":true}`, digital},
		"gpio_read":       {`{"pin":0}`, digital},
		"pwm_write":       {`{"pin":18,"duty":7}`, "{duty number, name string, pin number}"},
		"adc_read":        {`{"pin":34}`, "{name string, pin number, value number, volts number}"},
		"get_info":        {`{}`, "{device string, memory_profile string, pin_count number, platform string, version string}"},
		"get_pin_summary": {`{"pin":34}`, "{avg number, latest number, max number, min number, name string, pin number, samples number}"},
		"get_pin_buffer":  {`{"pin":34}`, "{count number, pin string, values [number]}"},
		"get_pin_events":  {`{"pin":34}`, "{events [], pin string}"},
		"set_servo":       {`{"angle":90}`, "{angle number}"},
		"read_climate":    {`{}`, "{celsius number, light number}"},
		"pulse":           {`{"token":"x"}`, "{runs number, token string}"},
		"sweep":           {`{"milliseconds":1}`, "{milliseconds number}"},
		"i2c_scan":        {`{}`, "{count number, devices [number]}"},
		"i2c_write_reg":   {`{"address":72,"reg":1,"value":2}`, "{address number, reg number, value number}"},
		"i2c_read_reg":    {`{"address":72,"reg":1,"length":2}`, "{address number, data [number], hex string, reg number}"},
	}
	seen := make(map[string]bool)
	for _, behavior := range []string{"", "v1.0"} {
		fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: behavior})
		c := dial(t, fleet.Addrs()[0])
		fleet.Boards[0].Tick(time.Now()) // take a sample
		var list struct {
			Result struct{ Tools []struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(c.ask(`{"jsonrpc":"2.0","id":1,"method":"list_tools"}`)), &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Result.Tools {
			var answer struct{ Result any }
			line := c.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":%q,"params":%s}`, tool.Name, want[tool.Name].params))
			if err := json.Unmarshal([]byte(line), &answer); err != nil {
				t.Fatal(err)
			}
			shape := want[tool.Name].shape
			if behavior == "v1.0" {
				shape = strings.Replace(shape, "memory_profile string, ", "", 1)
			}
			if got := shapeOf(answer.Result); got != shape {
				t.Errorf("%s returns %s, want %s: %s", tool.Name, got, shape, line)
			}
			seen[tool.Name] = true
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d tools listed, want %d", len(seen), len(want))
	}
}

// shapeOf returns the types in a JSON value; an array has the type of its first element.
func shapeOf(value any) string {
	switch v := value.(type) {
	case map[string]any:
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			fields = append(fields, name+" "+shapeOf(v[name]))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + shapeOf(v[0]) + "]"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	}
	return fmt.Sprint(value)
}

// TestRunEnds checks that Run ends with every behavior, without leaking goroutines.
func TestRunEnds(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	for _, b := range sim.Behaviors() {
		fleet, err := sim.Listen(sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: b.Name})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- fleet.Run(ctx) }()
		c := dial(t, fleet.Addrs()[0])
		fmt.Fprintf(c, "%s\n%s\n%s\n", read, `{"jsonrpc":"2.0","id":1,"method":"list_tools"}`, read)
		time.Sleep(5 * time.Millisecond) // let it start
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", b.Name, err)
			}
		case <-time.After(wait.Ample):
			t.Fatalf("Run with %s does not end", b.Name)
		}
		c.Close()
	}
	wait.For(t, fmt.Sprintf("no more than %d goroutines", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines })
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		cfg  sim.Config
		want string // in the error; empty for no error
	}{
		{sim.Config{Addr: "127.0.0.1:0", Count: 100000}, ""},
		{sim.Config{Addr: ":65535", Count: 1, Misbehave: "deaf"}, ""},
		{sim.Config{Addr: "[::1]:65000", Count: 536}, ""},
		{sim.Config{Addr: "127.0.0.1:65000", Count: 537}, "not enough ports for 537 devices from 65000 on"},
		{sim.Config{Addr: "127.0.0.1:1", Count: math.MaxInt}, "devices from 1 on"},
		{sim.Config{Addr: "127.0.0.1:-1", Count: 1}, `port must be between 0 and 65535, got "-1"`},
		{sim.Config{Addr: "127.0.0.1", Count: 1}, "HOST:PORT"},
		{sim.Config{Count: 1}, "HOST:PORT"},
		{sim.Config{Addr: "127.0.0.1:0"}, "at least 1, got 0"},
		{sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: "nicely"}, "must be one of bad-tools"},
	} {
		err := test.cfg.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %q", test.cfg, err, test.want)
		}
	}
}

// TestBehaviorsAreDistinct checks that names and texts are unique.
func TestBehaviorsAreDistinct(t *testing.T) {
	names, texts := make(map[string]bool), make(map[string]bool)
	for _, b := range sim.Behaviors() {
		if b.Name == "" || b.Text == "" || names[b.Name] || texts[b.Text] {
			t.Errorf("%q: %q", b.Name, b.Text)
		}
		names[b.Name], texts[b.Text] = true, true
	}
}

// TestHostile checks the hostile board: its second list fits in a line of the gateway, and
// some answers do not.
func TestHostile(t *testing.T) {
	const line = 256 << 10
	fleet := start(t, sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: "hostile"})
	const list = `{"jsonrpc":"2.0","id":1,"method":"list_tools"}`
	first := dial(t, fleet.Addrs()[0])
	if got := first.ask(list); len(got) < 1<<20 {
		t.Errorf("the first list has %d bytes", len(got))
	}
	first.Close()
	c := dial(t, fleet.Addrs()[0])
	var answer struct {
		Result struct{ Tools []json.RawMessage }
	}
	got := c.ask(list)
	if err := json.Unmarshal([]byte(got), &answer); err != nil || len(got) > line || len(answer.Result.Tools) != 1000 {
		t.Errorf("%d bytes, %d tools, %v", len(got), len(answer.Result.Tools), err)
	}
	for method, want := range map[string]string{
		"filler_500":      `{"result":{"called":"filler_500"},"jsonrpc":"2.0","id":1}`,
		"answers_failure": `{"jsonrpc":"2.0","id":1,"error":`,
		"answers_deep":    `{"result":{"a":{"a":`,
	} {
		if got := c.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.100s", method, got)
		}
	}
	if got := c.ask(`{"jsonrpc":"2.0","id":1,"method":"answers_50_megabytes"}`); len(got) < 50<<20 {
		t.Errorf("the answer has %d bytes, want 50 MB", len(got))
	}
}
