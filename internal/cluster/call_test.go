package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

// pair is two nodes, of which b has a robot that a sees.
func pair(t *testing.T) (a, b *site, cfg Config) {
	t.Helper()
	cfg = oneServer(t)
	a, b = node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	b.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 10*time.Second, "a sees robot", func() bool { return a.sees("robot") != nil })
	return a, b, cfg
}

// call is a call of a's to b's robot.
func (s *site) call(id, tool string) *ferrule.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	dev, laid := s.elsewhere[id], s.laid[id]
	return &ferrule.Call{ID: "c", Device: id, Tool: tool, Target: ferrule.Target{Device: dev, Manifest: laid, Tool: laid.Tool(tool)}}
}

// TestProgressAndQuestions: while a call goes on, the holder can tell the caller how
// it gets on, and ask it something.
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
	call := a.call("robot", "move")
	var told []string
	call.Progress = func(p ferrule.Progress) { told = append(told, fmt.Sprintf("%s %v/%v", p.Message, p.Done, p.Total)) }
	call.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
		if q.Text == "sure?" {
			return ferrule.Answer{}, errors.New("nobody is there")
		}
		return ferrule.Answer{Given: true, Value: json.RawMessage("42")}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	result, err := a.bus.call(ctx, call)
	if err != nil || string(result.Value) != `[42,"nobody is there"]` || strings.Join(told, ";") != "half 1/2" {
		t.Errorf("got %v, %v, told %q", result, err, told)
	}
}

// TestEverythingCrosses: what is asked for, who is asked what, what a device logs, and
// every part of an answer and of a failure are on the other node what they were.
func TestEverythingCrosses(t *testing.T) {
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
	try := func(act ferrule.Operation) (*ferrule.Result, error) {
		call := a.call("robot", "look")
		call.Operation, call.Target.Tool = act, call.Target.Manifest.ToolFor(act, "look")
		call.Progress = func(p ferrule.Progress) { logged = p.Log }
		call.Ask = func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
			asked = append(asked, q)
			return ferrule.Answer{Dismissed: true}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return a.bus.call(ctx, call)
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

// TestDeadlineShrinks: the holder has the time that is left.
func TestDeadlineShrinks(t *testing.T) {
	a, b, _ := pair(t)
	left := make(chan time.Duration, 1)
	b.serve = func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		until, _ := ctx.Deadline()
		left <- time.Until(until)
		<-ctx.Done()
		return nil, ferrule.Errorf(ferrule.Busy, "it was waiting in the lane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	call := a.call("robot", "move")
	call.Timeout = ferrule.Duration(time.Hour) // what the road chose counts, not this
	_, err := a.bus.call(ctx, call)
	if l := <-left; l > 310*time.Millisecond || l < 100*time.Millisecond {
		t.Errorf("%v were left", l)
	}
	if e := ferrule.AsError(err); e.Code != ferrule.Busy || e.MayHaveRun() {
		t.Errorf("got %v: what the holder says counts", err)
	}
	if took := time.Since(start); took > 700*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// TestSilentHolder: of a holder that says nothing it is not known whether the call
// ran.
func TestSilentHolder(t *testing.T) {
	a, b, _ := pair(t)
	release := make(chan struct{})
	defer close(release)
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		<-release
		return nil, ferrule.Errorf(ferrule.Failed, "too late")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := a.bus.call(ctx, a.call("robot", "move"))
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() {
		t.Errorf("got %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	_, err = a.bus.call(gone, a.call("robot", "move"))
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || !e.MayHaveRun() {
		t.Errorf("got %v", err)
	}
}

// TestCancelCrosses: that the caller has gone away ends the call at the holder.
func TestCancelCrosses(t *testing.T) {
	a, b, _ := pair(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	b.serve = func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled in the lane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() {
		<-began
		cancel()
	}()
	_, err := a.bus.call(ctx, a.call("robot", "move"))
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || e.MayHaveRun() {
		t.Errorf("got %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestSizes: what is too long for one message comes in several, and arguments that
// are too long are not sent.
func TestSizes(t *testing.T) {
	a, b, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, size := range []int{1 << 20, 1<<20 + 1, 5 << 20} {
		big := `"` + strings.Repeat("x", size-10) + `"`
		b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return &ferrule.Result{Value: json.RawMessage(big)}, nil
		}
		result, err := a.calls(ctx, "robot", "look")
		if err != nil || string(result.Value) != big {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	served := false
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served = true
		return &ferrule.Result{}, nil
	}
	call := a.call("robot", "move")
	call.Args = json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	_, err := a.bus.call(ctx, call)
	if e := ferrule.AsError(err); e.Code != ferrule.Invalid || e.MayHaveRun() || served {
		t.Errorf("got %v, served: %t", err, served)
	}
}

// TestSplit puts together what split has cut, in any order and with parts that come
// twice.
func TestSplit(t *testing.T) {
	data := []byte("Rabcdefghijklmnopqrstuvwxyz")
	for most := partHead + 1; most < 40; most++ {
		all := split(data, most)
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		out := &outgoing{end: make(chan []byte, 1), frames: make(chan []byte, 1)}
		for _, f := range all {
			if len(f) > most {
				t.Fatalf("%d: a message of %d bytes", most, len(f))
			}
			out.take(f)
			if f[0] == framePart {
				out.take(f)
			}
		}
		if got := string(<-out.end); got != string(data) {
			t.Errorf("%d: got %s", most, got)
		}
	}
}

// TestCertainty: what the holder says of a failure is what the caller hears.
func TestCertainty(t *testing.T) {
	a, b, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
		_, err := a.calls(ctx, "robot", "move")
		got := ferrule.AsError(err)
		if got.Code != want.Code || got.Message != want.Message || got.Hint != want.Hint || got.MayHaveRun() != want.MayHaveRun() {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) { panic("short circuit") }
	_, err := a.calls(ctx, "robot", "move")
	if e := ferrule.AsError(err); e.Code != ferrule.Internal || !e.MayHaveRun() {
		t.Errorf("a panic: %v", err)
	}
}

// TestHolderLooks: the holder serves a call only if the device is what the caller's
// node took it for.
func TestHolderLooks(t *testing.T) {
	a, b, _ := pair(t)
	var served atomic.Int64
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served.Add(1)
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, test := range map[string]struct {
		change func(call *ferrule.Call)
		want   ferrule.Code
	}{
		"as it is":      {func(*ferrule.Call) {}, ""},
		"another Kind":  {func(c *ferrule.Call) { d := *c.Target.Device; d.Kind = "another"; c.Target.Device = &d }, ferrule.Invalid},
		"no such tool":  {func(c *ferrule.Call) { c.Tool = "fly" }, ferrule.Invalid},
		"a milder tool": {func(c *ferrule.Call) { c.Target.Tool = &ferrule.Tool{Name: "move", Effect: ferrule.Reads} }, ferrule.Denied},
	} {
		served.Store(0)
		call := a.call("robot", "move")
		test.change(call)
		_, err := a.bus.call(ctx, call)
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

// TestFencing: a call that means a holder of before is refused by it, and finds the
// holder of now.
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
	stale := a.call("robot", "move")
	eventually(t, 5*time.Second, "c knows of it", func() bool { return c.sees("robot") != nil })
	c.has("robot", "arm", ferrule.StateOnline) // a new hello: c takes it
	eventually(t, 5*time.Second, "a sees it at c", func() bool { return a.sees("robot").Node == "c" })
	eventually(t, 5*time.Second, "b has to let go", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.moved) > 0 && b.moved[len(b.moved)-1] == "robot"
	})
	if dev := a.sees("robot"); dev.Epoch != stale.Target.Device.Epoch+1 {
		t.Errorf("its epoch is %d", dev.Epoch)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := a.bus.call(ctx, stale); err != nil || atB.Load() != 0 || atC.Load() != 1 {
		t.Errorf("got %v, %d at b, %d at c", err, atB.Load(), atC.Load())
	}
}

// TestNobody: a node that has gone is noticed in milliseconds, and the device is
// offline since it was last heard of.
func TestNobody(t *testing.T) {
	a, b, _ := pair(t)
	b.bus.engine.Load().conn.Close() // as if it had been killed
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	eventually(t, 5*time.Second, "the server knows", func() bool {
		start := time.Now()
		_, err := a.calls(ctx, "robot", "move")
		e := ferrule.AsError(err)
		return e != nil && e.Code == ferrule.Offline && !e.MayHaveRun() && strings.Contains(e.Message, "offline since") && time.Since(start) < 100*time.Millisecond
	})
}

// TestTwice: a call that comes twice is served once, and one that was asked about
// before it came is not served at all.
func TestTwice(t *testing.T) {
	a, b, _ := pair(t)
	var served atomic.Int64
	b.serve = func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		served.Add(1)
		return &ferrule.Result{Value: json.RawMessage("1")}, nil
	}
	conn := a.bus.engine.Load().conn
	replies := make(chan *nats.Msg, 16)
	sub, err := conn.ChanSubscribe("test.reply.*", replies)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	dev := a.sees("robot")
	data, err := json.Marshal(request{Call: ferrule.Call{Device: "robot", Tool: "move", Timeout: ferrule.Duration(time.Second)}, Kind: dev.Kind, Epoch: dev.Epoch, Effect: ferrule.Changes})
	if err != nil {
		t.Fatal(err)
	}
	send := func(verb, reply string, data []byte) {
		if err := conn.PublishRequest(a.bus.names.at("b", b.bus.boot, verb), reply, data); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want byte) {
		t.Helper()
		select {
		case msg := <-replies:
			if len(msg.Data) == 0 || msg.Data[0] != want {
				t.Errorf("got %q, want %c", msg.Data, want)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("nothing came, want %c", want)
		}
	}
	send(verbCall, "test.reply.1", data)
	expect(frameResult)
	send(verbCall, "test.reply.1", data)
	send(verbAsk, "test.reply.1", []byte{0})
	expect(frameResult) // to the question; the call was not served again
	b.bus.inbox.mu.Lock()
	b.bus.inbox.forgotten = time.Time{} // as if it had run for long
	b.bus.inbox.mu.Unlock()
	send(verbAsk, "test.reply.2", []byte{0})
	expect(frameUnknown)
	send(verbCall, "test.reply.2", data)
	send(verbAsk, "test.reply.2", []byte{0})
	expect(frameUnknown)
	if n := served.Load(); n != 1 {
		t.Errorf("served %d times", n)
	}
}

// TestInboxForgets: of a call that may have been forgotten nobody says that it has
// never come.
func TestInboxForgets(t *testing.T) {
	i := newInbox()
	time.Sleep(2 * time.Millisecond)
	if got := i.ask("before", time.Second); got[0][0] != frameForgot {
		t.Errorf("of a call that was sent before this run: %c", got[0][0])
	}
	if got := i.ask("perhaps before", 0); got[0][0] != frameForgot {
		t.Errorf("of one that may have been sent before, if the question took its time: %c", got[0][0])
	}
	i.forgotten = i.forgotten.Add(-time.Minute)
	if got := i.ask("new", 0); got[0][0] != frameUnknown {
		t.Errorf("of one that was sent just now: %c", got[0][0])
	}
	s, err := i.enter("first", nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	i.leave("first", s, [][]byte{make([]byte, keptBytes/2)})
	for n := range 3 {
		reply := fmt.Sprint(n)
		s, err := i.enter(reply, nil)
		if err != nil {
			t.Fatal(err)
		}
		i.leave(reply, s, [][]byte{make([]byte, keptBytes/3)})
	}
	// The question took longer than the call had.
	if got := i.ask("first", time.Since(sent)-time.Millisecond); got[0][0] != frameForgot {
		t.Errorf("of one that was dropped: %c", got[0][0])
	}
	if i.bytes > keptBytes {
		t.Errorf("%d bytes are kept", i.bytes)
	}
}

// TestLongCalls: the end of a call that took long is kept like any other.
func TestLongCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInbox()
		time.Sleep(time.Minute)
		s, err := i.enter("long", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * keepTime)
		i.leave("long", s, [][]byte{{frameResult}})
		time.Sleep(time.Second)
		if got := i.ask("long", 2*keepTime); got[0][0] != frameResult {
			t.Errorf("a moment after its end: %c", got[0][0])
		}
		time.Sleep(2 * keepTime)
		i.ask("another", 0) // a reason to look what is old
		if got := i.ask("long", 4*keepTime); got[0][0] != frameForgot {
			t.Errorf("long after its end: %c", got[0][0])
		}
	})
}

// TestLateWord: that a call has not come is believed only of a holder that was asked
// just now.
func TestLateWord(t *testing.T) {
	trip := &trip{call: &ferrule.Call{Device: "robot", Tool: "move"}, node: "b", sent: time.Now().Add(-time.Minute)}
	if _, err := trip.end(t.Context(), unknown(time.Minute-slack/2)); !errors.Is(err, errMissed) {
		t.Errorf("asked just now: %v", err)
	}
	for _, data := range [][]byte{unknown(time.Minute - 2*slack), {frameUnknown}} {
		if _, err := trip.end(t.Context(), data); !ferrule.AsError(err).MayHaveRun() {
			t.Errorf("asked long ago: %v", err)
		}
	}
}

// TestNoStore: calls need what nodes share to find each other, and not afterwards.
func TestNoStore(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), natscluster.Port(t)
	hub := hubServer(t, dir, port, natscluster.Port(t))
	cfg := DefaultConfig()
	cfg.Mode, cfg.Servers, cfg.Shards, cfg.Replicas = Join, []string{fmt.Sprintf("nats://127.0.0.1:%d", port)}, 1, 1
	a, b := node(t, "a", cfg), node(t, "b", cfg)
	b.serve = echo
	b.has("robot", "arm", ferrule.StateOnline)
	eventually(t, 10*time.Second, "a sees robot", func() bool { return a.sees("robot") != nil })
	if err := hub.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	b.bus.trouble <- struct{}{} // it looks at everything anew, and cannot
	eventually(t, 30*time.Second, "b notices", func() bool { return b.bus.home.Load() == nil })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := a.calls(ctx, "robot", "look"); err != nil {
		t.Error(err)
	}
}

// TestManyCalls: calls do not get each other's answers.
func TestManyCalls(t *testing.T) {
	a, b, _ := pair(t)
	b.serve = func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: call.Args}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for n := range 50 {
				call := a.call("robot", "look")
				call.Args = json.RawMessage(fmt.Sprintf(`{"x":%d}`, g*1000+n))
				result, err := a.bus.call(ctx, call)
				if err != nil || string(result.Value) != string(call.Args) {
					t.Errorf("got %v, %v", result, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := len(a.bus.outbox.calls); n != 0 {
		t.Errorf("%d calls are still waited for", n)
	}
}

// TestHolderGone: of a call that was sent, and whose holder has gone by the time that
// something else is said to it, it is not known whether it ran.
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
			ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
			defer leave()
			call := a.call("robot", "move")
			call.Ask = func(context.Context, ferrule.Question) (ferrule.Answer, error) {
				time.Sleep(100 * time.Millisecond)
				return ferrule.Answer{Given: true}, nil
			}
			go func() {
				<-reached
				time.Sleep(20 * time.Millisecond)
				b.bus.engine.Load().conn.Close() // as if it had been killed
				time.Sleep(100 * time.Millisecond)
				if !asks {
					leave()
				}
			}()
			_, err := a.bus.call(ctx, call)
			if e := ferrule.AsError(err); !e.MayHaveRun() {
				t.Errorf("it ran, and it is said that it did not: %s, %v", e.Code, err)
			}
		})
	}
}
