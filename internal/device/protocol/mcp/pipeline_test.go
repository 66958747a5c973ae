package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/dock"
	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/device/protocol"
	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/fleet"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/pipeline"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// gateway is a gateway without servers: a dock, a fleet and the pipeline.
type gateway struct {
	t        *testing.T
	fleet    *fleet.Fleet
	pipeline ferrule.Handler

	mu     sync.Mutex
	events []ferrule.Event
}

// startGateway runs a gateway with one device, robot, until the test ends.
func startGateway(t *testing.T, url string, overlays ...*overlay.File) *gateway {
	t.Helper()
	h := &gateway{t: t, fleet: fleet.New(nil)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	memory, err := dock.OpenStore(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	records, err := journal.Open(t.TempDir(), journal.DefaultConfig(), log)
	if err != nil {
		t.Fatal(err)
	}
	d := dock.New(dock.Parts{
		Config: dock.DefaultConfig(), Connectors: []transport.Connector{connector(t, httpclient.Device{URL: url, Name: "robot"})},
		Protocols: map[string]protocol.Protocol{mcp.Name: mcp.New(mcp.Parts{Version: "1.0"})},
		Overlays:  overlay.NewSet(overlays...), Fleet: h.fleet, Store: memory, Log: log,
		OnEvent: func(e ferrule.Event) { h.mu.Lock(); defer h.mu.Unlock(); h.events = append(h.events, e) },
	})
	h.pipeline = pipeline.New(pipeline.Parts{Config: pipeline.DefaultConfig(), Journal: records, Fleet: h.fleet, Log: log}).Handle
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, memory.Close(), records.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// robot returns the current state of the device.
func (h *gateway) robot() (*ferrule.Device, *ferrule.Manifest) {
	dev, m, _ := h.fleet.Lookup("robot")
	return dev, m
}

func (h *gateway) online() bool {
	dev, _ := h.robot()
	return dev != nil && dev.State == ferrule.StateOnline
}

// do calls as an agent, and returns the result or error as JSON.
func (h *gateway) do(call ferrule.Call) string {
	call.Device, call.Principal = "robot", ferrule.Principal{Role: ferrule.Agent, Name: "test"}
	result, err := h.pipeline(h.t.Context(), &call)
	data, _ := json.Marshal(result)
	if err != nil {
		data, _ = json.Marshal(ferrule.AsError(err))
	}
	return string(data)
}

// TestPipeline: a real device works through the whole pipeline, over each transport:
// invalid calls are not sent, and notifications are passed on.
func TestPipeline(t *testing.T) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			d := robot()
			h := startGateway(t, serveRobot(t, d, name))
			wait.For(t, "the robot", h.online)
			for _, test := range []struct {
				call ferrule.Call
				want string
			}{
				{ferrule.Call{Tool: "move", Args: json.RawMessage(`{"steps":2}`)}, `{"value":{"position":2}}`},
				{ferrule.Call{Tool: "move", Args: json.RawMessage(`{"steps":"two"}`)}, `"code":"invalid"`},
				{ferrule.Call{Operation: ferrule.ReadResource, Tool: "robot://log"}, `"text":"all is well"`},
				{ferrule.Call{Operation: ferrule.GetPrompt, Tool: "tour", Args: json.RawMessage(`{"room":"hall"}`)}, `Show me the hall`},
				{ferrule.Call{Operation: ferrule.GetPrompt, Tool: "tour"}, `room is missing`},
				{ferrule.Call{Operation: ferrule.GetPrompt, Tool: "tours"}, `"code":"not_found"`},
				{ferrule.Call{Operation: ferrule.Subscribe, Tool: "robot://log"}, `{}`},
			} {
				if got := h.do(test.call); !strings.Contains(got, test.want) {
					t.Errorf("%s %s: got %s, want %s", test.call.Operation, test.call.Tool, got, test.want)
				}
			}
			wait.For(t, "a notification", func() bool {
				d.Updated("robot://log")
				time.Sleep(20 * time.Millisecond)
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.events) > 0 && h.events[0].Method == "notifications/resources/updated" && bytes.Contains(h.events[0].Params, []byte("robot://log"))
			})
			before, _ := h.robot()
			d.Disable("extras")
			wait.For(t, "another Kind", func() bool {
				now, m := h.robot()
				return h.online() && now.Kind != before.Kind && m.Tool("extra") == nil
			})
		})
	}
}

// restartable is an address at which a device can be started, stopped and restarted.
type restartable struct {
	t       *testing.T
	address string
}

// start serves a handler. Stop breaks every connection.
func (r *restartable) start(handler http.Handler) (stop func()) {
	r.t.Helper()
	var ln net.Listener
	wait.For(r.t, "the address", func() (ok bool) {
		var err error
		ln, err = net.Listen("tcp", r.address)
		return err == nil
	})
	r.address = ln.Addr().String()
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { server.Serve(ln); close(done) }()
	return sync.OnceFunc(func() { server.Close(); <-done })
}

// TestReboot: a device reboots during a call, and comes back with other firmware. It is
// online again with another Kind and its new tools. No call is repeated except one that
// only reads.
func TestReboot(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) http.Handler{"legacy": legacyOnly, "modern": func(h http.Handler) http.Handler { return h }} {
		t.Run(name, func(t *testing.T) {
			at := &restartable{t: t, address: "127.0.0.1:0"}
			var fired, looked atomic.Int64
			var stop atomic.Pointer[func()]
			start := func(handler http.Handler) {
				fn := at.start(handler)
				stop.Store(&fn)
			}
			firmware := func(version string, crash bool) http.Handler {
				board := thing.New("robot", version)
				crashing := func(ctx context.Context, count *atomic.Int64) (int, error) {
					if n := count.Add(1); crash {
						go (*stop.Load())()
						<-ctx.Done()
						return 0, ctx.Err()
					} else {
						return int(n), nil
					}
				}
				thing.Tool(board, "fire", "Fire", func(ctx context.Context, _ struct{}) (int, error) { return crashing(ctx, &fired) })
				thing.Tool(board, "look", "Look, as of "+version, func(ctx context.Context, _ struct{}) (int, error) { return crashing(ctx, &looked) }, thing.Reads())
				if !crash {
					thing.Tool(board, "v"+version[:1], "New", func(context.Context, struct{}) (int, error) { return 0, nil })
				}
				return wrap(mcpserver.New(board, mcpserver.Config{}).Handler())
			}
			start(firmware("1.0", true))
			h := startGateway(t, "http://"+at.address+"/mcp")
			wait.For(t, "the robot", h.online)
			first, _ := h.robot()

			if got := h.do(ferrule.Call{Tool: "fire"}); !strings.Contains(got, `"code":"unanswered"`) || !strings.Contains(got, `"may_have_run":true`) {
				t.Errorf("a call during a reboot: %s", got)
			}
			wait.For(t, "offline", func() bool { return !h.online() })
			if got := h.do(ferrule.Call{Tool: "fire"}); !strings.Contains(got, `"code":"offline"`) {
				t.Errorf("a call while it is offline: %s", got)
			}
			start(firmware("1.0", true))
			wait.For(t, "the same device", h.online)
			if again, _ := h.robot(); again.Kind != first.Kind {
				t.Error("the Kind has changed")
			}
			answered := make(chan string, 1)
			go func() { answered <- h.do(ferrule.Call{Tool: "look"}) }()
			wait.For(t, "a look", func() bool { return looked.Load() == 1 })
			wait.For(t, "offline", func() bool { return !h.online() })
			end := at.start(firmware("2.0", false))
			defer end()
			wait.For(t, "the new firmware", func() bool {
				dev, _ := h.robot()
				return h.online() && dev.Kind != first.Kind && dev.Version == "2.0" && dev.Waiting == 2
			})
			// The tool says something else now, so the call is not repeated.
			if got := <-answered; !strings.Contains(got, `"code":"unanswered"`) {
				t.Errorf("a look during a reboot to other firmware: %s", got)
			}
			if fired.Load() != 1 || looked.Load() != 1 {
				t.Errorf("it fired %d times and looked %d times", fired.Load(), looked.Load())
			}
			if got := h.do(ferrule.Call{Tool: "fire"}); got != `{"value":2}` {
				t.Errorf("in the end: %s", got)
			}
		})
	}
}

// streamCounter counts event streams of a handler that have begun.
type streamCounter struct {
	http.Handler
	begun atomic.Int64
}

func (c *streamCounter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.Handler.ServeHTTP(&streamWriter{ResponseWriter: w, begun: &c.begun}, r)
}

type streamWriter struct {
	http.ResponseWriter
	begun *atomic.Int64
}

func (w *streamWriter) Flush() {
	w.ResponseWriter.(http.Flusher).Flush()
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
		w.begun.Add(1)
	}
}

// TestQuickRestart: an idle device restarts with other firmware between two keep-alives,
// and the gateway notices.
func TestQuickRestart(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) http.Handler{"legacy": legacyOnly, "modern": func(h http.Handler) http.Handler { return h }} {
		for _, version := range []string{"1.0", "2.0"} {
			t.Run(name+" to "+version, func(t *testing.T) {
				t.Parallel()
				firmware := func(version, tool string) http.Handler {
					board := thing.New("robot", version)
					thing.Tool(board, tool, "Do it", func(context.Context, struct{}) (int, error) { return 0, nil })
					return wrap(mcpserver.New(board, mcpserver.Config{}).Handler())
				}
				at := &restartable{t: t, address: "127.0.0.1:0"}
				streams := &streamCounter{Handler: firmware("1.0", "before")}
				stop := at.start(streams)
				h := startGateway(t, "http://"+at.address+"/mcp")
				wait.For(t, "the robot", h.online)
				wait.For(t, "its notifications", func() bool { return streams.begun.Load() > 0 })
				stop()
				t.Cleanup(at.start(firmware(version, "after")))
				wait.For(t, "the new tool", func() bool {
					dev, m := h.robot()
					return h.online() && dev.Waiting == 1 && m.Tool("before") == nil && dev.Version == version
				})
			})
		}
	}
}

// TestSubscribeEnds: a subscription that the device does not confirm ends with the session.
func TestSubscribeEnds(t *testing.T) {
	device := robot().Handler()
	subscribed := make(chan struct{}, 1)
	at := &restartable{t: t, address: "127.0.0.1:0"}
	t.Cleanup(at.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("resourceSubscriptions")) {
			subscribed <- struct{}{}
			<-r.Context().Done()
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		device.ServeHTTP(w, r)
	})))
	m := connect(t, "http://"+at.address+"/mcp")
	answered := make(chan string, 1)
	go func() { answered <- m.do(ferrule.Call{Operation: ferrule.Subscribe, Tool: "robot://log"}) }()
	<-subscribed
	began := time.Now()
	m.stop()
	if err := <-m.ran; err != nil {
		t.Error(err)
	}
	if got := <-answered; !strings.Contains(got, `"code":"unanswered"`) {
		t.Errorf("got %s", got)
	}
	figure.AtMost(t, "a session with an open subscription ends", time.Since(began), 2*time.Second)
}

// TestQuestionEnds: a device is lost while its question is open. The session ends without
// waiting for the answer.
func TestQuestionEnds(t *testing.T) {
	at := &restartable{t: t, address: "127.0.0.1:0"}
	stop := at.start(legacyOnly(robot().Handler()))
	m := connect(t, "http://"+at.address+"/mcp")
	asked, answered := make(chan struct{}), make(chan error, 1)
	ask := func(ctx context.Context, _ ferrule.Question) (ferrule.Answer, error) {
		close(asked)
		<-ctx.Done()
		return ferrule.Answer{}, ctx.Err()
	}
	go func() { // the context does not end with the call
		_, err := m.Invoke(t.Context(), &ferrule.Call{Device: "robot", Tool: "careful", Ask: ask, Askable: []ferrule.AskTarget{ferrule.User}})
		answered <- err
	}()
	<-asked
	stop()
	if err := <-answered; ferrule.AsError(err).Code != ferrule.Unanswered {
		t.Errorf("the call: %v", err)
	}
	select {
	case err := <-m.ran:
		if err == nil {
			t.Error("Run returned nil")
		}
	case <-time.After(wait.Ample):
		t.Error("the session goes on")
	}
}
