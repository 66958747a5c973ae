package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/overlay"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// oven is a device whose tool bake takes long.
type oven struct {
	*mcpserver.Device
	started, stopped atomic.Int32
	finish           chan error
}

func newOven() *oven {
	o := &oven{finish: make(chan error)}
	board := thing.New("oven", "1.0.0")
	thing.Tool(board, "bake", "Bake", func(ctx context.Context, _ struct{}) (place, error) {
		o.started.Add(1)
		mcpserver.Progress(ctx, 1, 2, "heating")
		select {
		case err := <-o.finish:
			return place{7}, err
		case <-ctx.Done():
			o.stopped.Add(1)
			return place{}, ctx.Err()
		}
	})
	thing.Tool(board, "grill", "Ask, then grill", func(ctx context.Context, _ struct{}) (string, error) {
		if _, err := mcpserver.AskUser[sure](ctx, "sure", "Is the door closed?"); err != nil {
			return "", err
		}
		o.started.Add(1)
		return "grilled", nil
	})
	thing.Tool(board, "light", "Switch the light", func(context.Context, struct{}) (place, error) { return place{1}, nil })
	o.Device = mcpserver.New(board, mcpserver.Config{})
	o.TaskOnly("bake")
	o.Slow("grill")
	return o
}

func agent(tool string) *ferrule.Call {
	return &ferrule.Call{Device: "robot", Tool: tool, Principal: ferrule.Principal{Role: ferrule.Agent, Name: "test"}}
}

// TestDeviceTask checks that tasks of a real device are followed: the caller gets the result, and
// the device is free meanwhile.
func TestDeviceTask(t *testing.T) {
	for _, transport := range []string{"http modern", "ws"} {
		t.Run(transport, func(t *testing.T) {
			o := newOven()
			h := startGateway(t, serveRobot(t, o.Device, transport))
			wait.For(t, "the oven", h.online)
			var mu sync.Mutex
			var said []string
			call := agent("bake")
			call.Progress = func(p ferrule.Progress) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, p.Message)
			}
			ended := make(chan string, 1)
			go func() {
				result, err := h.pipeline(t.Context(), call)
				data, _ := json.Marshal(result)
				ended <- string(data) + " " + errorText(err)
			}()
			wait.For(t, "progress", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return strings.Contains(strings.Join(said, ";"), "heating (1 of 2)")
			})
			if got := h.do(ferrule.Call{Tool: "light"}); got != `{"value":{"position":1}}` {
				t.Errorf("meanwhile: %s", got)
			}
			o.finish <- nil
			if got := <-ended; got != `{"value":{"position":7}} ` {
				t.Errorf("got %s", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			began := make(chan ferrule.Job, 1)
			call = agent("bake")
			call.Began = func(j ferrule.Job) { began <- j }
			go func() { _, err := h.pipeline(ctx, call); ended <- errorText(err) }()
			<-began
			cancel()
			if got := <-ended; !strings.HasPrefix(got, "cancelled") || o.stopped.Load() != 1 {
				t.Errorf("cancelled: got %s, stopped %d times", got, o.stopped.Load())
			}
			go func() { _, err := h.pipeline(t.Context(), agent("bake")); ended <- errorText(err) }()
			o.finish <- errors.New("out of gas")
			if got := <-ended; !strings.Contains(got, "out of gas") || o.started.Load() != 3 {
				t.Errorf("failed: got %s, started %d times", got, o.started.Load())
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	e := ferrule.AsError(err)
	return string(e.Code) + " " + e.Message
}

// TestDeviceTaskQuestion checks that a question of a task passes the checks of any question:
// only if the owner allows it, and with the name of the device.
func TestDeviceTaskQuestion(t *testing.T) {
	for name, test := range map[string]struct{ overlay, asked, want string }{
		"allowed":   {`{"tools":{},"questions":{"elicitation":{"count":1}}}`, "robot: Is the door closed?", ""},
		"forbidden": {`{"tools":{}}`, "", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOven()
			file, err := overlay.Parse([]byte(test.overlay))
			if err != nil {
				t.Fatal(err)
			}
			h := startGateway(t, serveRobot(t, o.Device, "http modern"), file)
			wait.For(t, "the oven", h.online)
			call := agent("grill")
			asked := ""
			call.Askable = []ferrule.AskTarget{ferrule.User}
			call.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
				asked += q.Text
				return ferrule.Answer{Given: true, Value: json.RawMessage(`{"sure":true}`)}, nil
			}
			result, err := h.pipeline(t.Context(), call)
			if test.want == "" && (err != nil || string(result.Value) != `"grilled"` || o.started.Load() != 1) || !strings.HasPrefix(errorText(err), test.want) || asked != test.asked {
				t.Errorf("got %v, %s, asked %q, started %d times", result, errorText(err), asked, o.started.Load())
			}
		})
	}
}

// TestDeviceTaskLost checks that a device that was restarted does not know its tasks: the call
// may have run, and is not repeated.
func TestDeviceTaskLost(t *testing.T) {
	o := newOven()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(o *oven, ln net.Listener) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- o.Serve(ctx, ln) }()
		return sync.OnceFunc(func() { cancel(); <-ended })
	}
	stop := serve(o, ln)
	defer stop()
	h := startGateway(t, "http://"+ln.Addr().String()+"/mcp")
	wait.For(t, "the oven", h.online)
	began := make(chan ferrule.Job, 1)
	call := agent("bake")
	call.Began = func(j ferrule.Job) { began <- j }
	ended := make(chan string, 1)
	go func() { _, err := h.pipeline(t.Context(), call); ended <- errorText(err) }()
	<-began
	stop()
	again := newOven()
	wait.For(t, "the port", func() bool {
		ln, err = net.Listen("tcp", ln.Addr().String())
		return err == nil
	})
	defer serve(again, ln)()
	if got := <-ended; !strings.HasPrefix(got, "unanswered the outcome of bake on robot is unknown: the device does not know it any more") || again.started.Load() != 0 {
		t.Errorf("got %s, started %d times", got, again.started.Load())
	}
}
