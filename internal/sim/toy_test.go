package sim_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/thing/xiaozhi"
)

// toyClient is a client of a toy, in memory.
type toyClient struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func connect(t *testing.T, toy *sim.Toy) *toyClient {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- toy.ServeConn(context.Background(), xiaozhi.Lines(far), false) }()
	t.Cleanup(func() {
		near.Close()
		if err := <-ended; err != nil {
			t.Errorf("ServeConn: %v", err)
		}
	})
	return &toyClient{t, near, bufio.NewReaderSize(near, 128<<10)}
}

func newToy(t *testing.T, misbehave string) *sim.Toy {
	t.Helper()
	toy, err := sim.NewToy(1, misbehave)
	if err != nil {
		t.Fatal(err)
	}
	return toy
}

func (c *toyClient) send(id int, method, params string) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, `{"type":"mcp","payload":{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}}`+"\n", id, method, params); err != nil {
		c.t.Fatal(err)
	}
}

func (c *toyClient) read() string {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (c *toyClient) call(id int, params string) string {
	c.t.Helper()
	c.send(id, "tools/call", params)
	return c.read()
}

// want checks that a text contains parts in this order.
func want(t *testing.T, got string, parts ...string) {
	t.Helper()
	rest := got
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("no %s in %.300s", part, got)
			return
		}
		rest = after
	}
}

// TestToy checks that a toy handles arguments like firmware.
func TestToy(t *testing.T) {
	toy := newToy(t, "")
	c := connect(t, toy)
	for i, test := range []struct{ params, want string }{
		{`{"name":"self.audio_speaker.set_volume","arguments":{"volume":50.9,"more":1}}`, `"text":"true"`},
		{`{"name":"self.get_device_status"}`, `\"volume\":50`},
		{`{"name":"self.audio_speaker.set_volume","arguments":{"volume":"50"}}`, `"error":{"message":"Missing valid argument: volume"}`},
		{`{"name":"self.audio_speaker.set_volume","arguments":{"volume":101}}`, `"error":{"message":"Value exceeds maximum allowed: 100"}`},
		{`{"name":"self.audio_speaker.set_volume","arguments":{"volume":-1}}`, `"error":{"message":"Value is below minimum allowed: 0"}`},
		{`{"name":"self.screen.snapshot","arguments":{"quality":"high"}}`, `"image":"{\"data\":\"/9j/`},
		{`{"name":"self.reboot"}`, `"text":"true"`},
		{`{"name":"self.camera.take_photo","arguments":{"question":"?"}}`, `Image explain URL or token is not set`},
		{`{"name":"self.dog.pulse","arguments":{"token":"a"}}`, `\"runs\":1`},
		{`{"name":"self.lamp.turn_on"}`, `"text":"true"`},
		{`{"name":"self.lamp.get_state"}`, `{\"power\":true}`},
	} {
		want(t, c.call(i, test.params), fmt.Sprintf(`"id":%d,`, i), test.want)
	}
	if toy.Runs()["a"] != 1 {
		t.Errorf("runs: %v", toy.Runs())
	}
	c.send(99, "tools/list", `{"withUserTools":true}`)
	want(t, c.read(), `"name":"self.get_device_status"`, `"required":["volume"]`, `"audience":["user"]`, `"default":"The URL of the firmware`)
}

const lampOn = `{"name":"self.lamp.turn_on"}`

// TestToyBehaviors checks each behavior, except for those about connections.
func TestToyBehaviors(t *testing.T) {
	tests := map[string]func(t *testing.T, c *toyClient){
		"second-socket": nil, "impatient": nil, "storm": nil, "odd-visit": nil,
		"old-firmware": func(t *testing.T, c *toyClient) {
			want(t, c.read(), `"type":"hello","version":1,"transport"`)
			want(t, c.read(), `"type":"iot"`)
		},
		"hello-late": func(t *testing.T, c *toyClient) {
			c.send(1, "initialize", "{}")
			want(t, c.read(), `"serverInfo"`)
			want(t, c.read(), `"type":"hello"`)
		},
		"strict-hello": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, lampOn), `"id":1,"result"`)
			fmt.Fprintln(c, `{"type":"hello","session_id":"s1"}`)
			if line, err := c.in.ReadString('\n'); err != io.EOF {
				t.Errorf("after a hello without a transport: %s, %v", line, err)
			}
		},
		"reboot": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, `{"name":"self.reboot"}`), `"id":1,"result"`)
			start := time.Now()
			if line, err := c.in.ReadString('\n'); err != io.EOF || time.Since(start) != time.Second {
				t.Errorf("%s, %v after %v", line, err, time.Since(start))
			}
		},
		"hello-again": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, lampOn), `"type":"hello"`)
			want(t, c.read(), `"id":1,"result"`)
		},
		"wants-to-talk": func(t *testing.T, c *toyClient) { want(t, c.read(), `"version":3`, `"transport":"udp"`) },
		"stale-session": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, lampOn), `{"session_id":"of-yesterday","type":"mcp","payload":{"jsonrpc":"2.0","id":1,"result"`)
		},
		"sound": func(t *testing.T, c *toyClient) { // lines cannot carry audio
			want(t, c.call(1, lampOn), `"state":"detect","text":"say "hi""`)
			want(t, c.read(), `"state":"start"`)
			want(t, c.read(), `"id":1,"result"`)
			want(t, c.read(), `"abort"`)
			want(t, c.read(), `"udp_timeout"`)
		},
		"ping": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, lampOn), `{"type":"ping"}`)
			want(t, c.read(), `"id":1,"result"`)
		},
		"notifies": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, lampOn), `"method":"notifications/state_changed"`)
			want(t, c.read(), `"id":1,"result"`)
		},
		"talkative": func(t *testing.T, c *toyClient) {
			want(t, c.read(), `"type":"hello"`)
			want(t, c.read(), `"method":"notifications/state_changed","params":{"count":0}`)
			want(t, c.read(), `"params":{"count":1}`)
		},
		"no-tools": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/list", "{}")
			want(t, c.read(), `"result":{"tools":[]}`)
		},
		"user-tools": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/list", "{}")
			want(t, c.read(), `"Failed to add tool  because of payload size limit"`)
		},
		"long-list": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/list", "{}")
			want(t, c.read(), `"nextCursor":"self.scene.play_`)
		},
		"long-tool": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/list", "{}")
			want(t, c.read(), `"nextCursor":"self.huge"`)
			c.send(2, "tools/list", `{"cursor":"self.huge"}`)
			want(t, c.read(), `"Failed to add tool self.huge because of payload size limit"`)
		},
		"long-user-tool": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/list", `{"withUserTools":true}`)
			want(t, c.read(), `"Failed to add tool self.huge because of payload size limit"`)
			c.send(2, "tools/list", `{}`)
			want(t, c.read(), `"self.get_device_status"`)
		},
		"page-loop": func(t *testing.T, c *toyClient) {
			for id := range 3 {
				c.send(id, "tools/list", `{"cursor":"self.a"}`)
				want(t, c.read(), `"nextCursor":"self.a"`)
			}
		},
		"lost-cursor": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/list", `{}`)
			want(t, c.read(), `"nextCursor"`)
			c.send(2, "tools/list", `{"cursor":"self.scene.play_40"}`)
			want(t, c.read(), `"Failed to add tool  because of payload size limit"`)
			c.send(3, "tools/list", `{"cursor":"self.scene.play_40"}`)
			want(t, c.read(), `"self.scene.play_40"`)
		},
		"unescaped": func(t *testing.T, c *toyClient) {
			want(t, c.call(7, lampOn), `"id":7,"error":{"message":"Failed to open "/dev`)
		},
		"failing": func(t *testing.T, c *toyClient) {
			want(t, c.call(7, lampOn), `"id":7,"error":{"message":"Motor blocked"}`)
		},
		"says-false": func(t *testing.T, c *toyClient) { want(t, c.call(7, lampOn), `"text":"false"`) },
		"late": func(t *testing.T, c *toyClient) {
			start := time.Now()
			want(t, c.call(7, lampOn), `"id":7`)
			if took := time.Since(start); took != 3*time.Second {
				t.Errorf("took %v", took)
			}
		},
		"queued": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/call", lampOn)
			c.send(2, "tools/call", lampOn)
			want(t, c.read(), `"id":1`)
			want(t, c.read(), `"id":2`)
			start := time.Now()
			want(t, c.call(3, lampOn), `"id":3`)
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("a single call took %v", took)
			}
		},
		"silent": func(t *testing.T, c *toyClient) {
			c.send(1, "tools/call", lampOn)
			c.send(2, "initialize", "{}")
			want(t, c.read(), `"id":2`)
		},
		"other-ids": func(t *testing.T, c *toyClient) {
			want(t, c.call(7, lampOn), `"id":2147483647`)
			for _, part := range []string{`"id":8`, `"id":"7"`, `"id":7`, `"again"`} {
				want(t, c.read(), part)
			}
		},
		"bare": func(t *testing.T, c *toyClient) {
			want(t, c.call(7, lampOn), `{"jsonrpc":"2.0","id":107,`)
			want(t, c.read(), `{"jsonrpc":"2.0","id":7,"result"`)
		},
		"half-open": func(t *testing.T, c *toyClient) {
			for id := range 6 {
				want(t, c.call(id, lampOn), `"result"`)
			}
			c.send(6, "tools/call", lampOn)
			c.SetReadDeadline(time.Now().Add(time.Hour))
			if line, err := c.in.ReadString('\n'); err == nil {
				t.Errorf("got %s", line)
			}
		},
		"hang-up": func(t *testing.T, c *toyClient) {
			want(t, c.call(1, lampOn), `"id":1`)
			want(t, c.call(2, lampOn), `"id":2`)
			c.send(3, "tools/call", lampOn)
			if _, err := c.in.ReadString('\n'); err != io.EOF {
				t.Errorf("got %v", err)
			}
		},
	}
	for name, test := range tests {
		if test == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, connect(t, newToy(t, name))) })
		})
	}
	for _, b := range sim.ToyBehaviors() {
		if _, ok := tests[b.Name]; !ok || b.Text == "" {
			t.Errorf("%s has no test or no text", b.Name)
		}
	}
	if _, err := sim.NewToy(1, "nonsense"); err == nil || !strings.Contains(err.Error(), "must be one of bare, failing") {
		t.Errorf("got %v", err)
	}
}

// TestToyIsFirmware lists the known properties of real firmware. Each is either checked here,
// or simulated by a behavior with its own test.
func TestToyIsFirmware(t *testing.T) {
	plain := newToy(t, "")
	for what, test := range map[string]struct{ payload, want string }{
		"a text for an id is dropped":   {`"id":"7","method":"tools/list"`, ""},
		"params of null are dropped":    {`"id":7,"method":"tools/list","params":null`, ""},
		"an id is a C int":              {`"id":3e9,"method":"initialize"`, `"id":2147483647,"result"`},
		"a notification is dropped":     {`"id":7,"method":"notifications/initialized"`, ""},
		"an unknown cursor is an error": {`"id":7,"method":"tools/list","params":{"cursor":"gone"}`, `"error":{"message":"Failed to add tool  because`},
		"an error has no code":          {`"id":7,"method":"nonsense"`, `"error":{"message":"Method not implemented: nonsense"}}`},
		"a picture is JSON in a text":   {`"id":7,"method":"tools/call","params":{"name":"self.screen.snapshot"}`, `"image":"{\"data\":`},
		"no session yet":                {`"id":7,"method":"initialize"`, `{"session_id":"","type":"mcp"`},
	} {
		got := string(plain.Answer(t.Context(), []byte(`{"type":"mcp","payload":{"jsonrpc":"2.0",`+test.payload+`}}`)))
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %.200s", what, got)
		}
	}
	for what, misbehave := range map[string]string{
		"an oversized tool in mid list":                "long-tool",
		"pages that go round":                          "page-loop",
		"an unknown cursor":                            "lost-cursor",
		"an error with an unescaped quote":             "unescaped",
		"a failure that is a text":                     "says-false",
		"an answer after the deadline":                 "late",
		"two calls that are answered together":         "queued",
		"a hello after initialize":                     "hello-late",
		"a session_id of before":                       "stale-session",
		"a second socket without the first one closed": "second-socket",
		"a FIN without a farewell":                     "hang-up",
		"a restart after the answer":                   "reboot",
		"an answer to hello that is late or wrong":     "strict-hello",
		"sound of all framings between messages":       "sound",
		"a connection with nobody at its end":          "half-open",
		"two minutes without data":                     "impatient",
		"an answer that is too long to be sent":        "silent",
		"all come back at once":                        "storm",
		"settings that are asked for with odd types":   "odd-visit",
		"bare JSON-RPC, told to all":                   "bare",
		"answers to other clients":                     "other-ids",
	} {
		if _, err := sim.NewToy(1, misbehave); err != nil {
			t.Errorf("no toy shows %s: %v", what, err)
		}
	}
}

// TestToyHelloTimeout checks that a strict toy that said hello drops the connection after ten
// seconds, unless it was answered.
func TestToyHelloTimeout(t *testing.T) {
	for _, answered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			go newToy(t, "strict-hello").ServeConn(t.Context(), xiaozhi.Lines(far), true)
			in := bufio.NewReader(near)
			in.ReadString('\n')
			if answered {
				fmt.Fprintln(near, `{"type":"hello","transport":"websocket"}`)
			}
			start := time.Now()
			near.SetReadDeadline(start.Add(time.Hour))
			_, err := in.ReadString('\n')
			if took := time.Since(start); answered != (took == time.Hour) || !answered && (err != io.EOF || took != 10*time.Second) {
				t.Errorf("answered %t: %v after %v", answered, err, took)
			}
			near.Close()
		})
	}
}

// TestToyReconnects checks that toys reconnect, some without closing the last connection.
func TestToyReconnects(t *testing.T) {
	for name, test := range map[string]struct {
		lasts  time.Duration // how long the server keeps a connection; zero for no limit
		within time.Duration
		dials  int // connections
		open   int // of them at the end
	}{
		"":              {lasts: 10 * time.Second, within: 36 * time.Second, dials: 3, open: 1},
		"impatient":     {within: 310 * time.Second, dials: 3, open: 3},
		"second-socket": {within: 20 * time.Second, dials: 3, open: 3},
		"storm":         {lasts: time.Second, within: 10 * time.Second, dials: 10, open: 1},
	} {
		t.Run("toy "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reconnects(t, newToy(t, name), true, test.lasts, test.within, test.dials, test.open)
			})
		})
	}
	t.Run("over MQTT", func(t *testing.T) { // the delay is twice as long
		synctest.Test(t, func(t *testing.T) { reconnects(t, newToy(t, ""), false, 10*time.Second, 45*time.Second, 3, 1) })
	})
}

func reconnects(t *testing.T, toy *sim.Toy, first bool, lasts, within time.Duration, dials, open int) {
	var mu sync.Mutex
	dialed, alive := 0, 0
	ctx, cancel := context.WithCancel(context.Background())
	dial := func(context.Context) (xiaozhi.Conn, error) {
		near, far := net.Pipe()
		mu.Lock()
		defer mu.Unlock()
		dialed++
		alive++
		if lasts > 0 {
			time.AfterFunc(lasts, func() { near.Close() })
		}
		go func() {
			io.Copy(io.Discard, near)
			mu.Lock()
			defer mu.Unlock()
			alive--
		}()
		return xiaozhi.Lines(far), nil
	}
	ended := make(chan error, 1)
	go func() { ended <- toy.Reconnect(ctx, dial, first) }()
	time.Sleep(within)
	mu.Lock()
	if dialed != dials || alive != open {
		t.Errorf("%d connections, %d of them open; want %d and %d", dialed, alive, dials, open)
	}
	mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Reconnect: %v", err)
	}
}

// TestToysListen checks several toys over TCP, with several clients.
func TestToysListen(t *testing.T) {
	toys, err := sim.ListenToys(sim.Config{Addr: "127.0.0.1:0", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- toys.Run(ctx) }()
	for _, addr := range append(toys.Addrs(), toys.Addrs()...) {
		c := dial(t, addr)
		line, err := c.in.ReadString('\n')
		if err != nil || !strings.Contains(line, `"hello"`) {
			t.Errorf("%s, %v", line, err)
		}
		want(t, c.ask(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":7,"method":"ping"}}`), `"id":7,"error"`)
	}
	if toys.Toys[0].Identity == toys.Toys[1].Identity {
		t.Error("two toys have the same state")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}
