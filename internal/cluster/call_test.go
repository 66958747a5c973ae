package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/cluster/clustertest"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// pair starts two nodes. Node b has a robot that a sees.
func pair(t *testing.T) (a, b *testNode, cfg Config) {
	t.Helper()
	cfg = clustertest.OneServer(t)
	a, b = node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	b.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "a sees robot", func() bool { return a.seen("robot") != nil })
	return a, b, cfg
}

// newCall returns a call to a device of another node.
func (s *testNode) newCall(id, tool string) *ferrule.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	dev, manifest := s.elsewhere[id], s.remote[id]
	return &ferrule.Call{ID: "c", Device: id, Tool: tool, Target: ferrule.Target{Device: dev, Manifest: manifest, Tool: manifest.Tool(tool)}}
}

// TestCallAway checks that a call to a device that is offline reaches its node, where it
// can wait for the device, and that a call to a released one does not.
func TestCallAway(t *testing.T) {
	a, b, _ := pair(t)
	for state, want := range map[ferrule.State]ferrule.Code{ferrule.StateOffline: "", ferrule.StateReleased: ferrule.Busy} {
		b.putDevice("robot", "arm", state)
		wait.For(t, "a sees the state", func() bool { return a.seen("robot").State == state })
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		_, err := a.callTool(ctx, "robot", "move")
		cancel()
		if (err == nil) != (want == "") || err != nil && ferrule.AsError(err).Code != want {
			t.Errorf("%s: got %v", state, err)
		}
	}
}

// TestProgressAndQuestions checks that the holder can send progress to the caller, and
// ask it questions.
func TestProgressAndQuestions(t *testing.T) {
	a, b, _ := pair(t)
	b.serve = func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Report(ferrule.Progress{Message: "half", Done: 1, Total: 2})
		said, err := call.Ask(ctx, ferrule.Question{Text: "how far?", Schema: json.RawMessage(`{"type":"integer"}`)})
		if err != nil {
			return nil, err
		}
		_, err = call.Ask(ctx, ferrule.Question{Text: "sure?"})
		return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`[%s,%q]`, said.Value, err))}, nil
	}
	call := a.newCall("robot", "move")
	var progress []string
	call.Progress = func(p ferrule.Progress) {
		progress = append(progress, fmt.Sprintf("%s %v/%v", p.Message, p.Done, p.Total))
	}
	call.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
		if q.Text == "sure?" {
			return ferrule.Answer{}, errors.New("nobody is there")
		}
		return ferrule.Answer{Given: true, Value: json.RawMessage("42")}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	result, err := a.cluster.call(ctx, call)
	if err != nil || string(result.Value) != `[42,"nobody is there"]` || strings.Join(progress, ";") != "half 1/2" {
		t.Errorf("got %v, %v, progress %q", result, err, progress)
	}
}

// TestEncoding checks that operations, questions, logs, results and errors arrive
// unchanged at the other node.
func TestEncoding(t *testing.T) {
	a, b, _ := pair(t)
	priority := 0.5
	content := []ferrule.Content{
		{Type: ferrule.LinkContent, URI: "r://1", Role: "user", Link: &ferrule.Resource{URI: "r://1", Title: "One", Icons: []ferrule.Icon{{Source: "https://x/y.png"}}}},
		{Type: ferrule.AudioContent, Data: []byte{1, 2}, Annotations: &ferrule.Annotations{Audience: []string{"user"}, Priority: &priority}},
	}
	questions := []ferrule.Question{
		{Target: ferrule.Model, Prompt: json.RawMessage(`{"messages":[]}`)},
		{Target: ferrule.Roots},
		{Text: "open it", URL: "https://x/"},
	}
	log := ferrule.Log{Level: "warning", Logger: "motor", Data: json.RawMessage(`{"hot":true}`)}
	b.serve = func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Operation == ferrule.ReadResource {
			e := ferrule.Errorf(ferrule.Failed, "no")
			e.Content = content
			return nil, e
		}
		call.Report(ferrule.Progress{Log: &log})
		for _, q := range questions {
			if said, err := call.Ask(ctx, q); err != nil || !said.Dismissed {
				return nil, ferrule.Errorf(ferrule.Failed, "%v %v", said, err)
			}
		}
		return &ferrule.Result{Content: content, Text: string(call.Operation)}, nil
	}
	var asked []ferrule.Question
	var logged *ferrule.Log
	try := func(operation ferrule.Operation) (*ferrule.Result, error) {
		call := a.newCall("robot", "look")
		call.Operation, call.Target.Tool = operation, call.Target.Manifest.ToolFor(operation, "look")
		call.Progress = func(p ferrule.Progress) { logged = p.Log }
		call.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
			asked = append(asked, q)
			return ferrule.Answer{Dismissed: true}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		defer cancel()
		return a.cluster.call(ctx, call)
	}
	result, err := try(ferrule.Subscribe)
	if err != nil || result.Text != string(ferrule.Subscribe) || !reflect.DeepEqual(result.Content, content) {
		t.Errorf("got %+v, %v", result, err)
	}
	if !reflect.DeepEqual(asked, questions) || logged == nil || !reflect.DeepEqual(*logged, log) {
		t.Errorf("asked %+v, logged %+v", asked, logged)
	}
	_, err = try(ferrule.ReadResource)
	if e := ferrule.AsError(err); e.Code != ferrule.Failed || !reflect.DeepEqual(e.Content, content) {
		t.Errorf("got %+v", e)
	}
}

// TestDeadline checks that the holder gets the time that is left.
func TestDeadline(t *testing.T) {
	a, b, _ := pair(t)
	left := make(chan time.Duration, 1)
	b.serve = func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		until, _ := ctx.Deadline()
		left <- time.Until(until)
		return nil, ferrule.Errorf(ferrule.Busy, "it was waiting in the lane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	until, _ := ctx.Deadline()
	call := a.newCall("robot", "move")
	call.Timeout = ferrule.Duration(2 * time.Hour) // the deadline of ctx counts, not this
	before := time.Until(until)
	_, err := a.cluster.call(ctx, call)
	if l, after := <-left, time.Until(until); l > before || l < after {
		t.Errorf("%v left at the holder; %v before the call, %v after it", l, before, after)
	}
	if e := ferrule.AsError(err); e.Code != ferrule.Busy || e.MayHaveRun() {
		t.Errorf("got %v, want the error of the holder", err)
	}
}

// TestSizes checks that long results arrive in parts, and that arguments that are too
// long are not sent.
func TestSizes(t *testing.T) {
	a, b, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	for _, size := range []int{1 << 20, 1<<20 + 1, 5 << 20} {
		big := `"` + strings.Repeat("x", size-10) + `"`
		b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: json.RawMessage(big)}, nil
		}
		result, err := a.callTool(ctx, "robot", "look")
		if err != nil || string(result.Value) != big {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	served := false
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served = true
		return &ferrule.Result{}, nil
	}
	call := a.newCall("robot", "move")
	call.Args = json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	_, err := a.cluster.call(ctx, call)
	if e := ferrule.AsError(err); e.Code != ferrule.Invalid || e.MayHaveRun() || served {
		t.Errorf("got %v, served: %t", err, served)
	}
}

// TestCertainty checks that the caller gets the error of the holder.
func TestCertainty(t *testing.T) {
	a, b, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	for _, want := range []*ferrule.Error{
		ferrule.Errorf(ferrule.Failed, "it jammed").WithHint("look at it"),
		ferrule.Errorf(ferrule.Unanswered, "the link broke"),
		ferrule.Errorf(ferrule.Refused, "unknown tool"),
		ferrule.Errorf(ferrule.Busy, "its lane is full"),
		ferrule.Errorf(ferrule.Internal, "ours").AfterSend(),
		ferrule.Errorf(ferrule.Internal, "ours, before it was sent"),
	} {
		b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) { return nil, want }
		_, err := a.callTool(ctx, "robot", "move")
		got := ferrule.AsError(err)
		if got.Code != want.Code || got.Message != want.Message || got.Hint != want.Hint || got.MayHaveRun() != want.MayHaveRun() {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) { panic("short circuit") }
	_, err := a.callTool(ctx, "robot", "move")
	if e := ferrule.AsError(err); e.Code != ferrule.Internal || !e.MayHaveRun() {
		t.Errorf("a panic: %v", err)
	}
}

// TestHolderChecks checks that the holder rejects a call if its device or tool is not what
// the caller's node expects.
func TestHolderChecks(t *testing.T) {
	a, b, _ := pair(t)
	var served atomic.Int64
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served.Add(1)
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	for name, test := range map[string]struct {
		change func(call *ferrule.Call)
		want   ferrule.Code
	}{
		"unchanged":     {func(*ferrule.Call) {}, ""},
		"another Kind":  {func(c *ferrule.Call) { d := *c.Target.Device; d.Kind = "another"; c.Target.Device = &d }, ferrule.Invalid},
		"no such tool":  {func(c *ferrule.Call) { c.Tool = "fly" }, ferrule.Invalid},
		"a milder tool": {func(c *ferrule.Call) { c.Target.Tool = &ferrule.Tool{Name: "move", Effect: ferrule.Reads} }, ferrule.Denied},
	} {
		served.Store(0)
		call := a.newCall("robot", "move")
		test.change(call)
		_, err := a.cluster.call(ctx, call)
		switch {
		case test.want == "":
			if err != nil || served.Load() != 1 {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil || ferrule.AsError(err).Code != test.want || ferrule.AsError(err).MayHaveRun() || served.Load() != 0:
			t.Errorf("%s: got %v, served %d", name, err, served.Load())
		}
	}
}

// TestFencing checks that a former holder rejects a call, which then reaches the current
// one.
func TestFencing(t *testing.T) {
	a, b, cfg := pair(t)
	c := node(t, "c", cfg)
	var atB, atC atomic.Int64
	count := func(n *atomic.Int64) ferrule.Handler {
		return func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			n.Add(1)
			return &ferrule.Result{Value: json.RawMessage("1")}, nil
		}
	}
	b.serve, c.serve = count(&atB), count(&atC)
	stale := a.newCall("robot", "move")
	wait.For(t, "c sees it", func() bool { return c.seen("robot") != nil })
	c.putDevice("robot", "arm", ferrule.StateOnline) // it connects to c, which takes it
	wait.For(t, "a sees it at c", func() bool { return a.seen("robot").Node == "c" })
	wait.For(t, "b is told that it moved", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.moved) > 0 && b.moved[len(b.moved)-1] == "robot"
	})
	if dev := a.seen("robot"); dev.Epoch != stale.Target.Device.Epoch+1 {
		t.Errorf("its epoch is %d, want %d", dev.Epoch, stale.Target.Device.Epoch+1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	if _, err := a.cluster.call(ctx, stale); err != nil || atB.Load() != 0 || atC.Load() != 1 {
		t.Errorf("got %v, %d at b, %d at c", err, atB.Load(), atC.Load())
	}
}

// TestNodeGone checks that a node that is gone is detected, and its device is then offline.
func TestNodeGone(t *testing.T) {
	a, b, _ := pair(t)
	b.cluster.engine.Load().Conn.Close() // as if it had been killed
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	offline := func() bool {
		_, err := a.callTool(ctx, "robot", "move")
		e := ferrule.AsError(err)
		return e != nil && e.Code == ferrule.Offline && !e.MayHaveRun() && strings.Contains(e.Message, "offline since")
	}
	wait.For(t, "the call fails", offline)
	best := wait.Ample
	for range 5 {
		start := time.Now()
		if !offline() {
			t.Error("the device is not offline any more")
		}
		best = min(best, time.Since(start))
	}
	figure.AtMost(t, "call to a device whose node is gone", best, 100*time.Millisecond)
}

// TestNoStore checks that nodes that know each other can call without shared buckets.
func TestNoStore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir, port := t.TempDir(), natscluster.Port(t)
	hub := hubServer(t, dir, port, natscluster.Port(t))
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	b.putDevice("robot", "arm", ferrule.StateOnline)
	wait.For(t, "a sees robot", func() bool { return a.seen("robot") != nil })
	if err := hub.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	b.cluster.registry.Refresh() // fails
	wait.For(t, "b reports it", func() bool { return !b.cluster.State().Working })
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	if _, err := a.callTool(ctx, "robot", "look"); err != nil {
		t.Error(err)
	}
}

// TestManyCalls checks that concurrent calls get their own answers.
func TestManyCalls(t *testing.T) {
	a, b, _ := pair(t)
	b.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: call.Args}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for n := range 50 {
				call := a.newCall("robot", "look")
				call.Args = json.RawMessage(fmt.Sprintf(`{"x":%d}`, g*1000+n))
				result, err := a.cluster.call(ctx, call)
				if err != nil || string(result.Value) != string(call.Args) {
					t.Errorf("got %v, %v", result, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := a.cluster.Stats().Sending; n != 0 {
		t.Errorf("%d calls are still waiting", n)
	}
}

// TestHolderGone checks that a call may have run if its holder disappears after the call
// was sent.
func TestHolderGone(t *testing.T) {
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprintf("asks %t", asks), func(t *testing.T) {
			a, b, _ := pair(t)
			reached := make(chan struct{})
			b.serve = func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
				if asks {
					go call.Ask(ctx, ferrule.Question{Text: "sure?"})
				}
				close(reached)
				<-ctx.Done()
				return nil, ferrule.Errorf(ferrule.Unanswered, "sent, and then the node ended")
			}
			ctx, leave := context.WithTimeout(t.Context(), wait.Ample)
			defer leave()
			call := a.newCall("robot", "move")
			call.Ask = func(context.Context, ferrule.Question) (ferrule.Answer, error) {
				time.Sleep(100 * time.Millisecond)
				return ferrule.Answer{Given: true}, nil
			}
			go func() {
				<-reached
				time.Sleep(20 * time.Millisecond)
				b.cluster.engine.Load().Conn.Close() // as if it had been killed
				time.Sleep(100 * time.Millisecond)
				if !asks {
					leave()
				}
			}()
			_, err := a.cluster.call(ctx, call)
			if e := ferrule.AsError(err); !e.MayHaveRun() {
				t.Errorf("it ran, but the error says that it did not: %s, %v", e.Code, err)
			}
		})
	}
}

// TestJobElsewhere checks that a job of a device of another node can be followed from here: its
// handle, its state and its end arrive unchanged.
func TestJobElsewhere(t *testing.T) {
	a, b, _ := pair(t)
	var got []string
	b.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if !call.TakesJob {
			return nil, ferrule.Errorf(ferrule.Internal, "the caller cannot follow a job")
		}
		handle := ""
		if call.Job != nil {
			handle = call.Job.Handle
		}
		got = append(got, fmt.Sprintf("%s %q %s %s", call.Operation, handle, call.Target.Tool.Effect, call.Via))
		switch len(got) {
		case 1:
			return &ferrule.Result{Job: &ferrule.Job{Handle: "task:1", Message: "begun", Every: ferrule.Duration(time.Second)}}, nil
		case 2:
			return nil, ferrule.Errorf(ferrule.Unanswered, "not now")
		case 3:
			return &ferrule.Result{Job: &ferrule.Job{Handle: "task:1"}}, nil
		}
		return nil, ferrule.Errorf(ferrule.Unanswered, "lost").EndsJob()
	}
	send := func(op ferrule.Operation, job *ferrule.Job) (*ferrule.Result, error) {
		call := a.newCall("robot", "move")
		call.Operation, call.Job, call.TakesJob = op, job, true
		call.Target.Tool = call.Target.Manifest.ToolFor(op, "move")
		ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
		defer cancel()
		return a.cluster.call(ctx, call)
	}
	result, err := send(ferrule.CallTool, nil)
	if err != nil || result.Job == nil || result.Job.Message != "begun" || result.Job.Every != ferrule.Duration(time.Second) {
		t.Fatalf("got %+v, %v", result, err)
	}
	if _, err := send(ferrule.PollJob, result.Job); ferrule.AsError(err).Code != ferrule.Unanswered || ferrule.AsError(err).JobEnded {
		t.Errorf("a poll that failed: %v", err)
	}
	if _, err := send(ferrule.CancelJob, result.Job); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if _, err := send(ferrule.PollJob, result.Job); !ferrule.AsError(err).JobEnded {
		t.Errorf("the end: %v", err)
	}
	if want := ` "" changes a; poll_job "task:1" reads a; cancel_job "task:1" changes a; poll_job "task:1" reads a`; strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "; "), want)
	}
}
