package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// seenSpan is a span that a collector has received.
type seenSpan struct {
	node, name, trace, id, parent string
	start, end                    string // in nanoseconds, of 19 digits
	failed                        bool
	about                         map[string]string
}

// clockError is how far the beginnings of two spans may be off: a span begins by the clock, and
// ends by a stopwatch that is read a moment later. A busy machine makes that moment long.
const clockError = 100 * time.Millisecond

// times returns when a span began, and how long it lasted; nothing for no span.
func (s seenSpan) times(t *testing.T) (began time.Time, took time.Duration) {
	t.Helper()
	if s.id == "" {
		return time.Time{}, 0
	}
	start, err := strconv.ParseInt(s.start, 10, 64)
	end, err2 := strconv.ParseInt(s.end, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, start), time.Duration(end - start)
}

// collected is the spans that a collector has received.
type collected struct {
	url string

	mu    sync.Mutex
	spans []seenSpan
}

func (c *collected) add(spans ...seenSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
}

// of returns the spans of a trace, or all.
func (c *collected) of(trace string) (all []seenSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.trace == trace || trace == "" {
			all = append(all, s)
		}
	}
	return all
}

// receiver returns a collector in this process.
func receiver(t *testing.T) *collected {
	c := &collected{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err == nil {
			err = proto.Unmarshal(body, &data)
		}
		if err != nil {
			t.Error(err)
		}
		for _, of := range data.ResourceSpans {
			var node string
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.instance.id" {
					node = a.Value.GetStringValue()
				}
			}
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					about := make(map[string]string)
					for _, a := range s.Attributes {
						about[a.Key] = a.Value.GetStringValue()
					}
					c.add(seenSpan{
						node, s.Name, hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId),
						fmt.Sprint(s.StartTimeUnixNano), fmt.Sprint(s.EndTimeUnixNano), s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR, about,
					})
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// realCollector returns the collector of OpenTelemetry; see internal/testenv/collector.
func realCollector(t *testing.T) *collected {
	program := os.Getenv("FERRULE_TEST_COLLECTOR")
	if program == "" {
		t.Skip("FERRULE_TEST_COLLECTOR is not set: it is the program of internal/testenv/collector")
	}
	address := freeAddress(t)
	cmd := exec.Command(program, address)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &collected{url: "http://" + address}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			spans, err := otlpLine(line)
			if err != nil {
				t.Errorf("%v: %s", err, line)
			}
			c.add(spans...)
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-read
		cmd.Wait()
	})
	wait.For(t, "the collector listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return c
}

// otlpLine parses spans of OTLP in JSON.
func otlpLine(line []byte) (all []seenSpan, err error) {
	type attribute struct {
		Key   string
		Value struct{ StringValue string }
	}
	var data struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct {
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name string
					StartTimeUnixNano, EndTimeUnixNano  string
					Attributes                          []attribute
					Status                              struct{ Code int }
				}
			}
		}
	}
	err = json.Unmarshal(line, &data)
	for _, of := range data.ResourceSpans {
		var node string
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.instance.id" {
				node = a.Value.StringValue
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				about := make(map[string]string)
				for _, a := range s.Attributes {
					about[a.Key] = a.Value.StringValue
				}
				all = append(all, seenSpan{node, s.Name, s.TraceID, s.SpanID, s.ParentSpanID, s.StartTimeUnixNano, s.EndTimeUnixNano, s.Status.Code == 2, about})
			}
		}
	}
	return all, err
}

// TestTrace checks that a call from an agent on one node to a device of another is one
// trace below the agent's own span, with a span for each part. The same holds for a
// failed call of a person. Arguments and answers are in no span.
func TestTrace(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *collected{"receiver": receiver, "collector": realCollector} {
		t.Run(name, func(t *testing.T) { traceAcross(t, start(t)) })
	}
}

func traceAcross(t *testing.T, c *collected) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	boards := startSim(t, sim.Config{})
	a := startGateway(t, nil, func(cfg *config.Config) {
		joins(cfg, "a", servers)
		cfg.Listen = "127.0.0.1:0"
		cfg.Telemetry.Traces = config.Traces{Endpoint: c.url, Ratio: 1}
	})
	b := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, func(cfg *config.Config) {
		joins(cfg, "b", servers)
		cfg.Telemetry.Traces = config.Traces{Endpoint: c.url} // only spans with a parent elsewhere
	})
	b.online("robot")
	a.online("robot")
	if _, err := b.call("robot", "gpio_read", `{"pin":2}`, 0); err != nil { // without a parent
		t.Fatal(err)
	}

	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	agent := dialAgent(t, a, modern, "/mcp")
	answer, err := agent.CallTool(t.Context(), &mcp.CallToolParams{
		Meta: mcp.Meta{"traceparent": "00-" + trace + "-" + span + "-01"}, Name: "robot__pulse", Arguments: map[string]any{"token": "secret"},
	})
	if err != nil || answer.IsError {
		t.Fatalf("got %+v, %v", answer, err)
	}
	socket, err := control.SocketPath(a.data)
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	defer client.Close()
	_, err = client.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Name: "anna"}, Device: "robot", Tool: "set_servo", Args: json.RawMessage(`{"angle":7777}`)})
	if code := ferrule.AsError(err).Code; code != ferrule.Refused {
		t.Fatalf("got %v, %v", code, err)
	}
	a.stop()
	b.stop()

	wait.For(t, "all spans have come", func() bool { return len(c.of(trace)) == 37 && len(c.of("")) == 74 })
	wantTrace(t, c.of(trace), span, "agent", map[string]string{"ferrule.call.role": "agent", "gen_ai.tool.name": "pulse"}, "")
	for _, s := range c.of("") {
		if s.name == "control" {
			wantTrace(t, c.of(s.trace), "", "control", map[string]string{"ferrule.call.role": "person", "gen_ai.tool.name": "set_servo"}, "refused")
		}
		// Without IDs and times: their digits may be those of the argument by chance.
		if text := fmt.Sprint(s.node, s.name, s.about); strings.Contains(text, "secret") || strings.Contains(text, "7777") || strings.Contains(text, "anna") {
			t.Errorf("arguments in a span: %+v", s)
		}
	}
}

// wantTrace checks that spans are all parts of one call from node a to a device of node
// b, each below its parent and within its time.
func wantTrace(t *testing.T, spans []seenSpan, root, front string, about map[string]string, failed string) {
	t.Helper()
	way := []string{
		"a " + front, "a pipeline", "a audit", "a limit", "a resolve", "a validate", "a authorize", "a approve", "a hooks", "a cache", "a deadline", "a stop", "a bounds", "a intent", "a questions", "a jobs", "a fleet", "a node",
		"b serve", "b pipeline", "b audit", "b limit", "b resolve", "b validate", "b authorize", "b approve", "b hooks", "b cache", "b deadline", "b stop", "b bounds", "b intent", "b questions", "b jobs", "b fleet",
	}
	find := func(name string) seenSpan {
		i := slices.IndexFunc(spans, func(s seenSpan) bool { return s.node+" "+s.name == name })
		if i < 0 {
			t.Fatalf("there is no %s in %+v", name, spans)
		}
		return spans[i]
	}
	var outside time.Duration
	check := func(s seenSpan, parent string, within seenSpan) {
		began, took := s.times(t)
		outer, most := within.times(t)
		if within.id != "" {
			outside = max(outside, outer.Sub(began), began.Sub(outer)-(most-took))
		}
		if s.parent != parent || took < 0 || s.node == within.node && took > most {
			t.Errorf("%s is below %q from %s to %s, want %q from %s to %s", s.name, s.parent, s.start, s.end, parent, within.start, within.end)
		}
		if s.about["error.type"] != failed && s.name != "lane" || s.failed != (s.about["error.type"] != "") {
			t.Errorf("%s has failed: %v, %v, want %q", s.name, s.failed, s.about, failed)
		}
	}
	var last seenSpan
	above := root
	for _, name := range way {
		s := find(name)
		check(s, above, last)
		above, last = s.id, s
	}
	lane, device := find("b lane"), find("b device")
	check(lane, above, last)
	check(device, above, last)
	laneBegan, laneTook := lane.times(t)
	deviceBegan, _ := device.times(t)
	outside = max(outside, laneBegan.Add(laneTook).Sub(deviceBegan)) // the device has its turn when its lane is free
	figure.AtMost(t, "time by which a span of "+front+" is beside its place", outside, clockError)
	if len(spans) != len(way)+2 {
		t.Errorf("%d spans are too many", len(spans)-len(way)-2)
	}
	served := find("b serve")
	id := served.about["ferrule.call.id"]
	for _, s := range []seenSpan{find("a " + front), find("a pipeline"), served} {
		if s.about["ferrule.device.id"] != "robot" || s.about["ferrule.call.id"] != id || id == "" {
			t.Errorf("%s is about %v", s.name, s.about)
		}
		for key, want := range about {
			if s.about[key] != want {
				t.Errorf("%s has %s %q, want %q", s.name, key, s.about[key], want)
			}
		}
	}
	if device.about["ferrule.device.transport"] != "tcp" || find("a node").about["ferrule.node"] != "b" {
		t.Errorf("the device is %v, the node %v", device.about, find("a node").about)
	}
}

// TestTraceStdio checks that calls over stdio are traced, in the gateway's process and
// in one that has joined it.
func TestTraceStdio(t *testing.T) {
	c := receiver(t)
	data := t.TempDir()
	file := filepath.Join(data, "ferrule.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("telemetry: {traces: {endpoint: %q}}\n", c.url)), 0o600); err != nil {
		t.Fatal(err)
	}
	board := startSim(t, sim.Config{}).Addrs()[0]
	for i, front := range []string{"stdio", "control"} {
		cmd := exec.Command("ferrule", "mcp", "--config", file, "--data", data, "--tcp", "robot="+board)
		a := connectAgent(t, legacy, "stdio", &mcp.CommandTransport{Command: cmd})
		trace := fmt.Sprintf("%032x", i+1)
		answer, err := a.CallTool(t.Context(), &mcp.CallToolParams{
			Meta: mcp.Meta{"traceparent": "00-" + trace + "-b7ad6b7169203331-01"}, Name: "robot__gpio_read", Arguments: map[string]any{"pin": 2},
		})
		if err != nil || answer.IsError {
			t.Fatalf("got %+v, %v", answer, err)
		}
		wait.For(t, "its spans have come", func() bool { return len(c.of(trace)) == 19 })
		first := slices.IndexFunc(c.of(trace), func(s seenSpan) bool { return s.parent == "b7ad6b7169203331" })
		if first < 0 || c.of(trace)[first].name != front || c.of(trace)[first].about["ferrule.call.role"] != "agent" {
			t.Errorf("%s: got %+v", front, c.of(trace))
		}
	}
}
