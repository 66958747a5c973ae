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
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// house is a gateway without its fronts: a dock, a fleet and the road to it.
type house struct {
	t     *testing.T
	fleet *fleet.Fleet
	road  ferrule.Handler

	mu   sync.Mutex
	said []ferrule.Event
}

// live runs a gateway with one device, called robot, until the test ends.
func live(t *testing.T, url string) *house {
	t.Helper()
	h := &house{t: t, fleet: fleet.New(nil)}
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
		Overlays:  overlay.NewSet(), Fleet: h.fleet, Store: memory, Log: log,
		OnEvent: func(e ferrule.Event) { h.mu.Lock(); defer h.mu.Unlock(); h.said = append(h.said, e) },
	})
	h.road = pipeline.New(pipeline.Parts{Config: pipeline.DefaultConfig(), Journal: records, Fleet: h.fleet, Log: log}).Handle
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

// robot is the device as it is now.
func (h *house) robot() (*ferrule.Device, *ferrule.Manifest) {
	dev, m, _ := h.fleet.Lookup("robot")
	return dev, m
}

func (h *house) online() bool {
	dev, _ := h.robot()
	return dev != nil && dev.State == ferrule.StateOnline
}

// do calls as an agent does, and returns what came of it as JSON.
func (h *house) do(call ferrule.Call) string {
	call.Device, call.Principal = "robot", ferrule.Principal{Role: ferrule.Agent, Name: "test"}
	result, err := h.road(h.t.Context(), &call)
	data, _ := json.Marshal(result)
	if err != nil {
		data, _ = json.Marshal(ferrule.AsError(err))
	}
	return string(data)
}

// TestRoad: what a real device offers goes the whole road, over each way; what does not
// fit is stopped before it is sent, and what it says by itself is told.
func TestRoad(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			d := robot()
			h := live(t, serveRobot(t, d, way))
			until(t, "the robot", h.online)
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
			until(t, "what it says", func() bool {
				d.Updated("robot://log")
				time.Sleep(20 * time.Millisecond)
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.said) > 0 && h.said[0].Method == "notifications/resources/updated" && bytes.Contains(h.said[0].Params, []byte("robot://log"))
			})
			before, _ := h.robot()
			d.Disable("extras")
			until(t, "another Kind", func() bool {
				now, m := h.robot()
				return h.online() && now.Kind != before.Kind && m.Tool("extra") == nil
			})
		})
	}
}

// restartable is where a device can be started, stopped and started anew.
type restartable struct {
	t       *testing.T
	address string
}

// start serves a handler until it is stopped, which breaks every connection.
func (r *restartable) start(handler http.Handler) (stop func()) {
	r.t.Helper()
	var ln net.Listener
	until(r.t, "the address", func() (ok bool) {
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

// TestReboot: a device is rebooted in mid-run, with a call under way, and comes back
// with other firmware: it is found again, its Kind is another, its tools are listed
// anew, and no call was repeated but one that only reads.
func TestReboot(t *testing.T) {
	for name, era := range map[string]func(http.Handler) http.Handler{"legacy": older, "modern": func(h http.Handler) http.Handler { return h }} {
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
				thing.Tool(board, "look", "Look", func(ctx context.Context, _ struct{}) (int, error) { return crashing(ctx, &looked) }, thing.Reads())
				if !crash {
					thing.Tool(board, "v"+version[:1], "New", func(context.Context, struct{}) (int, error) { return 0, nil })
				}
				return era(mcpserver.New(board, mcpserver.Config{}).Handler())
			}
			start(firmware("1.0", true))
			h := live(t, "http://"+at.address+"/mcp")
			until(t, "the robot", h.online)
			first, _ := h.robot()

			if got := h.do(ferrule.Call{Tool: "fire"}); !strings.Contains(got, `"code":"unanswered"`) || !strings.Contains(got, `"may_have_run":true`) {
				t.Errorf("a call in a reboot: %s", got)
			}
			until(t, "that it is gone", func() bool { return !h.online() })
			if got := h.do(ferrule.Call{Tool: "fire"}); !strings.Contains(got, `"code":"offline"`) {
				t.Errorf("a call to what is gone: %s", got)
			}
			start(firmware("1.0", true))
			until(t, "the same again", h.online)
			if again, _ := h.robot(); again.Kind != first.Kind {
				t.Error("it is another Kind, and is the same")
			}
			answered := make(chan string, 1)
			go func() { answered <- h.do(ferrule.Call{Tool: "look"}) }()
			until(t, "a look", func() bool { return looked.Load() == 1 })
			until(t, "that it is gone", func() bool { return !h.online() })
			end := at.start(firmware("2.0", false))
			defer end()
			until(t, "the new firmware", func() bool {
				dev, m := h.robot()
				return h.online() && dev.Kind != first.Kind && m.Tool("v2") != nil
			})
			// The Kind is another: what was to be looked at is not there any more.
			if got := <-answered; !strings.Contains(got, `"code":"unanswered"`) {
				t.Errorf("a look in a reboot to other firmware: %s", got)
			}
			if fired.Load() != 1 || looked.Load() != 1 {
				t.Errorf("it fired %d times and looked %d times", fired.Load(), looked.Load())
			}
			if got := h.do(ferrule.Call{Tool: "fire"}); got != `{"value":2}` {
				t.Errorf("after it all: %s", got)
			}
		})
	}
}

// TestQuickRestart: a device that nobody calls is started anew with other firmware, sooner
// than anybody looks whether it is there: it is noticed all the same.
func TestQuickRestart(t *testing.T) {
	for name, era := range map[string]func(http.Handler) http.Handler{"legacy": older, "modern": func(h http.Handler) http.Handler { return h }} {
		for _, version := range []string{"1.0", "2.0"} {
			t.Run(name+" to "+version, func(t *testing.T) {
				t.Parallel()
				firmware := func(version, tool string) http.Handler {
					board := thing.New("robot", version)
					thing.Tool(board, tool, "Do it", func(context.Context, struct{}) (int, error) { return 0, nil })
					return era(mcpserver.New(board, mcpserver.Config{}).Handler())
				}
				at := &restartable{t: t, address: "127.0.0.1:0"}
				stop := at.start(firmware("1.0", "before"))
				h := live(t, "http://"+at.address+"/mcp")
				until(t, "the robot", h.online)
				time.Sleep(200 * time.Millisecond) // it listens by now
				stop()
				t.Cleanup(at.start(firmware(version, "after")))
				until(t, "what it has now", func() bool {
					dev, m := h.robot()
					return h.online() && m.Tool("after") != nil && m.Tool("before") == nil && dev.Version == version
				})
			})
		}
	}
}

// TestFollowEnds: a device does not say whether it will tell of a resource. When the
// conversation with it ends, nobody waits for that any longer.
func TestFollowEnds(t *testing.T) {
	device := robot().Handler()
	asked := make(chan struct{}, 1)
	at := &restartable{t: t, address: "127.0.0.1:0"}
	t.Cleanup(at.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("resourceSubscriptions")) {
			asked <- struct{}{}
			<-r.Context().Done()
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		device.ServeHTTP(w, r)
	})))
	m := meet(t, "http://"+at.address+"/mcp")
	answered := make(chan string, 1)
	go func() { answered <- m.do(ferrule.Call{Operation: ferrule.Subscribe, Tool: "robot://log"}) }()
	<-asked
	began := time.Now()
	m.stop()
	if err := <-m.ran; err != nil {
		t.Error(err)
	}
	if got := <-answered; !strings.Contains(got, `"code":"unanswered"`) {
		t.Errorf("it was told %s", got)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestQuestionEnds: a device is lost while somebody thinks about what it has asked. They
// are not waited for: the conversation is over.
func TestQuestionEnds(t *testing.T) {
	at := &restartable{t: t, address: "127.0.0.1:0"}
	stop := at.start(older(robot().Handler()))
	m := meet(t, "http://"+at.address+"/mcp")
	asked, answered := make(chan struct{}), make(chan error, 1)
	ask := func(ctx context.Context, _ ferrule.Question) (ferrule.Answer, error) {
		close(asked)
		<-ctx.Done()
		return ferrule.Answer{}, ctx.Err()
	}
	go func() { // whoever calls may call again, so that its context does not end with the call
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
			t.Error("it says that it was ended")
		}
	case <-time.After(5 * time.Second):
		t.Error("the conversation goes on")
	}
}
