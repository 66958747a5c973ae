package thing_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

type greetInput struct {
	Name string `json:"name" jsonschema:"whom"`
}

type greetOutput struct {
	Text string `json:"text"`
}

// board returns the board of the vectors in testdata.
func board() *thing.Device {
	d := thing.New("vectors", "1.0.0")
	d.Output(2, "led", "LED", nil)
	d.Input(0, "button", "Button", func() bool { return true })
	d.PWM(18, "servo", "Servo", nil)
	reads := 0
	d.Analog(34, "light", "Light", func() int { reads++; return reads }).
		Scaled("volts", 0.5).Sampled(time.Second, 2).Summary().Thresholds(0.5, 2.5)
	thing.Tool(d, "greet", "Greet somebody", func(_ context.Context, in greetInput) (greetOutput, error) {
		return greetOutput{"Hello, " + in.Name}, nil
	}, thing.Polled(2*time.Second))
	thing.Tool(d, "refuse", "Refuse", func(context.Context, struct{}) (int, error) {
		return 0, &thing.RefusedError{Reason: "not today"}
	}, thing.NoSchema())
	thing.Tool(d, "fail", "Fail", func(context.Context, struct{}) (int, error) { return 0, errors.New("out of paper") })
	thing.Tool(d, "panic", "Panic", func(context.Context, struct{}) (int, error) { panic("short circuit") })
	start := time.Unix(1000, 0)
	for i := range 3 {
		d.Tick(start.Add(time.Duration(i) * time.Second))
	}
	return d
}

// TestVectors replays testdata: > is a request, < its answer, which ends in CR LF. A request
// without an answer is ignored. The gateway's decoder is tested with the same answers.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := board()
		lines := strings.Split(strings.TrimSpace(string(archive.Files[0].Data)), "\n")
		for i, line := range lines {
			request, ok := strings.CutPrefix(line, "> ")
			if !ok {
				continue
			}
			want := ""
			if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "< ") {
				want = lines[i+1][2:] + "\r\n"
			}
			if got := string(d.Answer(t.Context(), []byte(request))); got != want {
				t.Errorf("%s:\n  > %s\ngot  %swant %s", file, request, got, want)
			}
		}
	}
}

type moveInput struct {
	Pin   int     `json:"pin"`
	Duty  uint8   `json:"duty,omitempty"`
	Trim  int8    `json:"trim,omitempty"`
	Speed float64 `json:"speed,omitempty"`
	Name  string  `json:"name,omitempty"`
	Soft  bool    `json:"soft,omitempty"`
	Path  []int   `json:"path,omitempty"`
	To    struct {
		X int `json:"x"`
	} `json:"to,omitzero"`
}

// TestBadParams checks that errors name the argument and do not mention Go types.
func TestBadParams(t *testing.T) {
	d := thing.New("d", "1")
	thing.Tool(d, "count", "Count", func(_ context.Context, in map[string]int) (int, error) { return len(in), nil })
	thing.Tool(d, "move", "Move", func(_ context.Context, in moveInput) (moveInput, error) { return in, nil })
	for _, test := range []struct{ tool, params, want string }{
		{"count", `{"pin":2.5,"n":1,"m":"x"}`, `m must be an integer, got a string; pin must be an integer, got 2.5`},
		{"move", `{"pin":2.5}`, `pin must be an integer, got 2.5`},
		{"move", `{"pin":2.0}`, `pin must be an integer, got 2.0`},
		{"move", `{"pin":1e30}`, `pin must be an integer, got 1e30`},
		{"move", `{"pin":"2"}`, `pin must be an integer, got a string`},
		{"move", `{"pin":9223372036854775808}`, `pin must be an integer between -9223372036854775808 and 9223372036854775807, got 9223372036854775808`},
		{"move", `{"pin":2,"duty":-1}`, `duty must be an integer between 0 and 255, got -1`},
		{"move", `{"pin":2,"duty":1.5}`, `duty must be an integer, got 1.5`},
		{"move", `{"pin":2,"trim":300}`, `trim must be an integer between -128 and 127, got 300`},
		{"move", `{"pin":2,"speed":true}`, `speed must be a number, got true or false`},
		{"move", `{"pin":2,"name":5}`, `name must be a string, got a number`},
		{"move", `{"pin":2,"soft":"yes"}`, `soft must be true or false, got a string`},
		{"move", `{"pin":2,"path":{}}`, `path must be a list, got an object`},
		{"move", `{"pin":2,"path":[1,2.5]}`, `path must be an integer, got 2.5`},
		{"move", `{"pin":2,"to":[]}`, `to must be an object, got a list`},
		{"move", `{"pin":2,"to":{"x":0.5}}`, `to.x must be an integer, got 0.5`},
		{"move", `{}`, `pin is missing`},
		{"move", `{"pin":2,"up":1}`, `up is unknown`},
		{"move", `{"duty":300,"name":5,"to":{},"up":1}`, `duty must be an integer between 0 and 255, got 300; name must be a string, got a number; pin is missing; ` +
			`to is invalid: required: missing properties: ["x"]; up is unknown`},
	} {
		var answer struct{ Error struct{ Message string } }
		line := d.Answer(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"`+test.tool+`","params":`+test.params+`}`))
		if err := json.Unmarshal(line, &answer); err != nil {
			t.Fatal(err)
		}
		if got := answer.Error.Message; got != "Bad params: "+test.want || !bytes.Contains(line, []byte(`"code":-32602`)) {
			t.Errorf("%s: got %s", test.params, line)
		}
	}
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		d := board()
		go func() { ended <- d.Serve(ctx, far) }()
		in := bufio.NewReader(near)
		ask := func(request string) string {
			t.Helper()
			if _, err := io.WriteString(near, request); err != nil {
				t.Fatal(err)
			}
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		if got := ask("\r\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"gpio_read\",\"params\":{\"pin\":2}}\r\n"); !strings.Contains(got, `"value":false`) {
			t.Errorf("got %s", got)
		}
		if got := ask(strings.Repeat("x", 64<<10)); !strings.Contains(got, "Parse error") {
			t.Errorf("got %s", got)
		}
		time.Sleep(10*time.Second + time.Millisecond) // let it take samples
		var summary struct{ Result struct{ Samples int } }
		line := ask("\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"get_pin_summary\",\"params\":{\"pin\":34}}\n")
		if err := json.Unmarshal([]byte(line), &summary); err != nil {
			t.Fatal(err)
		}
		if n := summary.Result.Samples; n < 13 || n > 14 {
			t.Errorf("%d samples after ten seconds", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
}

func TestServeTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := board()
	ended := make(chan error, 1)
	go func() { ended <- d.ServeTCP(ctx, ln) }()
	for range 3 { // one client after the other
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"gpio_write\",\"params\":{\"pin\":2,\"value\":true}}\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, `"id":7`) {
			t.Fatalf("got %q, %v", line, err)
		}
		conn.Close()
	}
	// A browser sends what a web page wants in the body of a request.
	web, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	web.SetDeadline(time.Now().Add(wait.Ample))
	io.WriteString(web, "\r\n POST / HTTP/1.1\r\nHost: board\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"gpio_write\",\"params\":{\"pin\":2,\"value\":false}}\n")
	if answer, _ := io.ReadAll(web); strings.Contains(string(answer), `"id":8`) {
		t.Errorf("a web page got %s", answer)
	}
	web.Close()
	if d.Level(2) != 1 {
		t.Error("the LED is off")
	}
	d.Reset()
	if d.Level(2) != 0 {
		t.Error("the LED is on after a reset")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ServeTCP returned %v", err)
	}
}

func TestToolUsesDevice(t *testing.T) {
	d := thing.New("d", "1")
	d.Output(2, "led", "LED", nil)
	thing.Tool(d, "level", "Tell the LED", func(context.Context, struct{}) (int, error) { return d.Level(2), nil })
	d.Answer(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"gpio_write","params":{"pin":2,"value":true}}`))
	if got := string(d.Answer(t.Context(), []byte(`{"jsonrpc":"2.0","id":2,"method":"level"}`))); !strings.HasPrefix(got, `{"result":1,`) {
		t.Errorf("got %s", got)
	}
}

// TestInvalidDeclarations checks that mistakes in a declaration panic.
func TestInvalidDeclarations(t *testing.T) {
	nothing := func(context.Context, struct{}) (int, error) { return 0, nil }
	zero := func() int { return 0 }
	for name, declare := range map[string]func(d *thing.Device){
		"a pin twice":             func(d *thing.Device) { d.Output(2, "a", "", nil); d.Output(2, "b", "", nil) },
		"a tool twice":            func(d *thing.Device) { thing.Tool(d, "a", "", nothing); thing.Tool(d, "a", "", nothing) },
		"a tool like a built-in":  func(d *thing.Device) { thing.Tool(d, "get_info", "", nothing) },
		"samples of an output":    func(d *thing.Device) { d.Output(2, "a", "", nil).Sampled(time.Second, 1) },
		"samples without a pause": func(d *thing.Device) { d.Analog(2, "a", "", zero).Sampled(0, 1) },
		"fewer samples than none": func(d *thing.Device) { d.Analog(2, "a", "", zero).Sampled(time.Second, -1) },
		"a schema that is none": func(d *thing.Device) {
			thing.Tool(d, "a", "", nothing, thing.WithSchema(json.RawMessage(`{"type":5}`)))
		},
		"an output that is none": func(d *thing.Device) { thing.Tool(d, "a", "", nothing, thing.WithOutput(json.RawMessage(`[]`))) },
		"arguments without a schema": func(d *thing.Device) {
			thing.Tool(d, "a", "", func(context.Context, chan int) (int, error) { return 0, nil })
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			declare(thing.New("d", "1"))
		}()
	}
}

func TestFailedWrite(t *testing.T) {
	d := thing.New("d", "1")
	d.Output(2, "led", "LED", func(bool) error { return errors.New("wire cut") })
	got := string(d.Answer(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"gpio_write","params":{"pin":2,"value":true}}`)))
	if !strings.Contains(got, `"code":-32000,"message":"wire cut"`) || d.Level(2) != 0 {
		t.Errorf("got %s, level %d", got, d.Level(2))
	}
}

// FuzzAnswer checks that the answer to any request is one line of JSON.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":2,"method":"gpio_write","params":{"pin":2,"value":true}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":2,"method":"get_pin_buffer","params":{"pin":"light","limit":-1}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":2,"method":"greet","params":{"name":"x"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got := board().Answer(context.Background(), line)
		if got == nil {
			return
		}
		if body, ok := strings.CutSuffix(string(got), "\r\n"); !ok || strings.Contains(body, "\n") || !json.Valid([]byte(body)) {
			t.Errorf("got %q", got)
		}
	})
}

// TestClone checks that a clone has the same tools, which learn their device from the context,
// and that clones run concurrently.
func TestClone(t *testing.T) {
	type key struct{}
	named := func(name string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, name) }
	}
	model := thing.New("d", "1")
	enter, leave := make(chan struct{}), make(chan struct{})
	thing.Tool(model, "who", "Tell who it is", func(ctx context.Context, _ struct{}) (any, error) {
		enter <- struct{}{}
		<-leave
		return ctx.Value(key{}), nil
	})
	one, two := make(chan any, 1), make(chan []byte, 1)
	go func() {
		result, _ := model.Clone(named("one")).Call(t.Context(), "who", nil)
		one <- result
	}()
	go func() {
		two <- model.Clone(named("two")).Answer(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"who"}`))
	}()
	<-enter
	<-enter // both are running
	close(leave)
	if got := <-one; got != "one" {
		t.Errorf("one is %v", got)
	}
	if got := string(<-two); !strings.Contains(got, `"two"`) {
		t.Errorf("two is %s", got)
	}
}
