package sim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/transcript"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestHTTPPage runs the transcripts of the page about HTTP devices.
func TestHTTPPage(t *testing.T) {
	ran := make(map[string]int)
	for _, s := range transcript.Read(t, "../../docs/reference/http-devices.md", "http") {
		for _, target := range s.Targets {
			ran[target]++
			t.Run(fmt.Sprintf("line %d with %s", s.Line, target), func(t *testing.T) {
				var at string
				switch target {
				case "sim":
					at = startWeb(t)
				case "thing":
					at = serveThing(t)
				default:
					t.Fatalf("unknown device %s", target)
				}
				(&webClient{t: t, host: at}).run(s)
			})
		}
	}
	if ran["thing"] < 3 || ran["sim"] < 5 {
		t.Errorf("transcripts by device: %v", ran)
	}
}

// startWeb runs a board, and returns its host and port.
func startWeb(t *testing.T) string {
	t.Helper()
	w, err := sim.ListenWeb(sim.WebConfig{Addr: "127.0.0.1:0", Wait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	until(t, w.Run)
	return strings.TrimSuffix(strings.TrimPrefix(w.URL(), "http://"), "/mcp")
}

// until runs something until the test ends.
func until(t *testing.T, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// serveThing serves a device with two tools, and returns its host and port.
func serveThing(t *testing.T) string {
	t.Helper()
	type steps struct {
		Steps int `json:"steps"`
	}
	d := thing.New("robot", "1.2.3")
	at := 0
	thing.Tool(d, "move", "Move some steps", func(_ context.Context, in steps) (steps, error) {
		at += in.Steps
		return steps{at}, nil
	}, thing.WithSchema(json.RawMessage(`{"type":"object","properties":{"steps":{"type":"integer","maximum":10}},"required":["steps"]}`)))
	thing.Tool(d, "position", "Get the position", func(context.Context, struct{}) (steps, error) { return steps{at}, nil }, thing.Reads())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	device := mcpserver.New(d, mcpserver.Config{})
	until(t, func(ctx context.Context) error { return device.Serve(ctx, ln) })
	return ln.Addr().String()
}

// webClient has the conversation of a transcript.
type webClient struct {
	t       *testing.T
	host    string
	session string // that the device sent last
}

// run sends each request and compares its response.
func (c *webClient) run(s transcript.Transcript) {
	for steps := s.Steps; len(steps) > 0; {
		out, rest := take(steps, ">")
		want, rest := take(rest, "<")
		if len(out) == 0 || len(want) == 0 {
			c.t.Fatalf("line %d: a request needs a response", s.Line)
		}
		c.exchange(out, want)
		steps = rest
	}
}

// take returns the lines of one kind that steps begin with. They are those of one message:
// a request that follows another begins a new one, after the response.
func take(steps []transcript.Step, kind string) (lines []string, rest []transcript.Step) {
	for len(steps) > 0 && steps[0].Kind == kind {
		lines, steps = append(lines, steps[0].Text), steps[1:]
	}
	return lines, steps
}

// split splits a message into its first line, its headers and its body.
func split(lines []string) (first string, headers, body []string) {
	for i, line := range lines[1:] {
		if line == "" {
			return lines[0], lines[1 : i+1], lines[i+2:]
		}
	}
	return lines[0], lines[1:], nil
}

func (c *webClient) exchange(out, want []string) {
	c.t.Helper()
	first, headers, body := split(out)
	method, path, _ := strings.Cut(first, " ")
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.host+path, strings.NewReader(strings.Join(body, "\n")))
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Close = true; body != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, strings.ReplaceAll(value, "…", c.session))
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatalf("%s: %v", out, err)
	}
	defer response.Body.Close()
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	c.compare(response, want)
}

// compare compares a response with what the page says.
func (c *webClient) compare(response *http.Response, want []string) {
	c.t.Helper()
	status, headers, body := split(want)
	if got := strconv.Itoa(response.StatusCode); got != status {
		c.t.Errorf("status %s, want %s", got, status)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if got := response.Header.Get(name); got == "" || !transcript.Match(value, got) {
			c.t.Errorf("%s is %q, want %s", name, got, value)
		}
	}
	in := bufio.NewReader(response.Body)
	for _, line := range body {
		got, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			c.t.Fatalf("the body: %v", err)
		}
		if got = strings.TrimRight(got, "\r\n"); !transcript.Match(line, got) {
			c.t.Errorf("the page and the device differ\ngot  %s\nwant %s", got, line)
		}
	}
	if response.Header.Get("Content-Type") == "text/event-stream" {
		return // it has no end
	}
	if rest, err := io.ReadAll(in); err != nil || strings.TrimSpace(string(rest)) != "" {
		c.t.Errorf("more than the page says: %s, %v", rest, err)
	}
}
