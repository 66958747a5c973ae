package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// gateway implements everything behind the socket with functions of the test.
type gateway struct {
	handle ferrule.Handler
	trace  func(ctx context.Context, device string, fn func(ferrule.Trace)) error
	watch  func(device string, fn func(ferrule.Event)) (stop func(), err error)
	follow func(ferrule.DeviceWatcher) (stop func())
	// visibility is nil for a gateway that hides nothing.
	visibility control.Visibility
	// samples is nil for a gateway that measures nothing.
	samples control.Sampler
	// journals is nil for a gateway that is not part of a cluster.
	journals control.Journals

	mu        sync.Mutex
	requests  []control.DeviceRequest
	handovers int
}

func (g *gateway) handOver() error {
	if g.handovers++; g.handovers > 1 {
		return errors.New("once is enough")
	}
	return nil
}

func (g *gateway) WatchDevices(f ferrule.DeviceWatcher) (stop func()) { return g.follow(f) }

func (g *gateway) Add(_ context.Context, requests []control.DeviceRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(requests) > 0 && requests[0].Address == "taken" {
		return errors.New("in use")
	}
	g.requests = append(g.requests, requests...)
	return nil
}

func (g *gateway) All() []control.DeviceRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.requests)
}

func (g *gateway) Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error {
	return g.trace(ctx, device, fn)
}

func (g *gateway) Watch(device string, fn func(ferrule.Event)) (stop func(), err error) {
	return g.watch(device, fn)
}

// serve runs a server until cancel or the end of the test, and returns a client.
func serve(t *testing.T, g *gateway) (*control.Client, context.CancelFunc) {
	t.Helper()
	path, err := control.SocketPath(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("left behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server, err := control.Listen(path, control.Parts{Handle: g.handle, Tracer: g, Watcher: g, Samples: g.samples, Fleet: g, Visibility: g.visibility, DeviceRequests: g, Journals: g.journals, HandOver: g.handOver, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode: got %v, %v", info, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	client := control.NewClient(path)
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return client, cancel
}

func TestCall(t *testing.T) {
	client, _ := serve(t, &gateway{handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Tool == "fail" {
			return nil, ferrule.Errorf(ferrule.Unanswered, "silence").WithHint("listen")
		}
		call.Report(ferrule.Progress{Message: "one"})
		call.Report(ferrule.Progress{Message: "two"})
		return &ferrule.Result{Value: fmt.Appendf(nil, "%q", fmt.Sprint(call.Principal, call.Device, call.Tool, string(call.Args), call.Timeout))}, nil
	}})
	var progress []string
	result, err := client.Handle(t.Context(), &ferrule.Call{
		Principal: ferrule.Principal{Name: control.User().Name}, Device: "robot", Tool: "move", Args: []byte(`{"pin":2}`),
		Timeout: ferrule.Duration(time.Second), Progress: func(p ferrule.Progress) { progress = append(progress, p.Message) },
	})
	if want := fmt.Sprintf("%q", "person:"+control.User().Name+`robotmove{"pin":2}1s`); err != nil || string(result.Value) != want {
		t.Errorf("got %s, %v", result.Value, err)
	}
	if strings.Join(progress, " ") != "one two" {
		t.Errorf("got progress %q", progress)
	}
	_, err = client.Handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "fail"})
	if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() || e.Message != "silence" || e.Hint != "listen" {
		t.Errorf("got %+v", e)
	}
	_, err = client.Handle(t.Context(), &ferrule.Call{Tool: strings.Repeat("x", 2<<20)})
	if e := ferrule.AsError(err); e.Code != ferrule.Invalid || e.MayHaveRun() {
		t.Errorf("got %+v", e)
	}
}

// TestCancelAnswered checks that a cancelled call has the answer that the gateway gives after
// the cancel.
func TestCancelAnswered(t *testing.T) {
	started := make(chan struct{})
	client, _ := serve(t, &gateway{handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		close(started)
		<-ctx.Done()
		call.Report(ferrule.Progress{Message: "cancelling"})
		return nil, ferrule.Errorf(ferrule.Cancelled, "kiln was told to stop").AfterSend()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	var progress []string
	_, err := client.Handle(ctx, &ferrule.Call{Device: "kiln", Tool: "fire", Progress: func(p ferrule.Progress) { progress = append(progress, p.Message) }})
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || e.Message != "kiln was told to stop" || !e.MayHaveRun() || strings.Join(progress, " ") != "cancelling" {
		t.Errorf("got %v, progress %q", err, progress)
	}
}

// TestQuestions checks that the caller answers questions of the device, several at once,
// and that a caller without Ask gets none.
func TestQuestions(t *testing.T) {
	client, _ := serve(t, &gateway{handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		if call.Ask == nil {
			return &ferrule.Result{Text: "nobody"}, nil
		}
		said := make([]string, 8)
		var wg sync.WaitGroup
		for i := range said {
			wg.Go(func() {
				a, err := call.Ask(ctx, ferrule.Question{Name: fmt.Sprint(i), Target: call.Askable[0], Prompt: json.RawMessage(`{"a":1}`)})
				said[i] = fmt.Sprint(string(a.Value), err)
			})
		}
		wg.Wait()
		return &ferrule.Result{Text: fmt.Sprint(string(call.Operation), said)}, nil
	}})
	result, err := client.Handle(t.Context(), &ferrule.Call{Operation: ferrule.GetPrompt, Tool: "greet", Askable: []ferrule.AskTarget{ferrule.Model},
		Ask: func(_ context.Context, q ferrule.Question) (ferrule.Answer, error) {
			if q.Name == "7" {
				return ferrule.Answer{}, errors.New("not that")
			}
			return ferrule.Answer{Given: true, Value: json.RawMessage(`"` + q.Name + string(q.Target) + `"`)}, nil
		}})
	want := `prompt["0model"<nil> "1model"<nil> "2model"<nil> "3model"<nil> "4model"<nil> "5model"<nil> "6model"<nil> not that]`
	if err != nil || result.Text != want {
		t.Errorf("got %+v, %v", result, err)
	}
	if result, err = client.Handle(t.Context(), &ferrule.Call{Tool: "move"}); err != nil || result.Text != "nobody" {
		t.Errorf("got %+v, %v", result, err)
	}
}

// TestQuestionsLate checks that a question after the call is refused at once: there is no
// response left that it could be written to.
func TestQuestionsLate(t *testing.T) {
	asks := make(chan func(context.Context, ferrule.Question) (ferrule.Answer, error), 1)
	client, _ := serve(t, &gateway{handle: func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		asks <- call.Ask
		return &ferrule.Result{}, nil
	}})
	_, err := client.Handle(t.Context(), &ferrule.Call{Ask: func(context.Context, ferrule.Question) (ferrule.Answer, error) {
		t.Error("the caller is asked")
		return ferrule.Answer{}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (<-asks)(t.Context(), ferrule.Question{Late: true}); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("got %v", err)
	}
}

// TestQuestionsCancelled checks that an unanswered question does not delay the end of a
// cancelled call or of the gateway.
func TestQuestionsCancelled(t *testing.T) {
	asked, over := make(chan struct{}), make(chan error, 1)
	client, _ := serve(t, &gateway{handle: func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		_, err := call.Ask(ctx, ferrule.Question{})
		over <- err
		return nil, err
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := client.Handle(ctx, &ferrule.Call{Ask: func(ctx context.Context, _ ferrule.Question) (ferrule.Answer, error) {
		close(asked)
		<-ctx.Done()
		return ferrule.Answer{}, ctx.Err()
	}})
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || !e.MayHaveRun() {
		t.Errorf("got %+v", e)
	}
	select {
	case err := <-over:
		if err == nil {
			t.Error("the question got an answer")
		}
	case <-time.After(wait.Ample):
		t.Error("the question is still open")
	}
}

func TestCancelReachesCall(t *testing.T) {
	begun, cancelled := make(chan struct{}), make(chan error, 1)
	client, _ := serve(t, &gateway{handle: func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
		close(begun)
		<-ctx.Done()
		cancelled <- ctx.Err()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := client.Handle(ctx, &ferrule.Call{Device: "robot", Tool: "move"})
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || !e.MayHaveRun() {
		t.Errorf("got %+v", e)
	}
	select {
	case err := <-cancelled:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(wait.Ample):
		t.Error("the call was not cancelled")
	}
}

func TestShutdownCancelsCalls(t *testing.T) {
	begun := make(chan struct{})
	client, stop := serve(t, &gateway{handle: func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
		close(begun)
		<-ctx.Done()
		return nil, ferrule.Errorf(ferrule.Cancelled, "stopped").AfterSend()
	}})
	go func() { <-begun; stop() }()
	_, err := client.Handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"})
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || e.Message != "stopped" {
		t.Errorf("got %+v", e)
	}
}

func TestNoGateway(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "control.sock")
	left := filepath.Join(t.TempDir(), "control.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	for _, path := range []string{absent, left} {
		client := control.NewClient(path)
		if _, err := client.Handle(t.Context(), &ferrule.Call{}); !errors.Is(err, control.ErrNoGateway) {
			t.Errorf("got %v", err)
		}
		if err := client.Trace(t.Context(), "robot", nil); !errors.Is(err, control.ErrNoGateway) {
			t.Errorf("got %v", err)
		}
		if err := client.Watch(t.Context(), control.Subscription{}); !errors.Is(err, control.ErrNoGateway) {
			t.Errorf("got %v", err)
		}
	}
	client := control.NewClient(filepath.Join(t.TempDir(), strings.Repeat("x", 200)))
	if _, err := client.Handle(t.Context(), &ferrule.Call{}); err == nil || errors.Is(err, control.ErrNoGateway) {
		t.Errorf("got %v, want another error than ErrNoGateway", err)
	}
}

// TestConnectionLost checks that a call may have run if the connection breaks after the
// gateway may have received it.
func TestConnectionLost(t *testing.T) {
	for name, answer := range map[string]string{
		"before it answers": "",
		"in the header":     "HTTP/1.1 200 OK\r\nContent-",
		"in the answer":     "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{\"resu",
		"with nonsense":     "what?\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, answer)
				conn.Close()
			}()
			client := control.NewClient(path)
			defer client.Close()
			_, err = client.Handle(t.Context(), &ferrule.Call{Device: "robot", Tool: "move"})
			if e := ferrule.AsError(err); e.Code != ferrule.Unanswered || !e.MayHaveRun() {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestTrace(t *testing.T) {
	client, _ := serve(t, &gateway{trace: func(ctx context.Context, device string, fn func(ferrule.Trace)) error {
		if device != "robot 1" {
			return ferrule.Errorf(ferrule.NotFound, "unknown device %q", device)
		}
		for i := range 3 {
			fn(ferrule.Trace{Direction: "in", Data: fmt.Sprint(i)})
		}
		<-ctx.Done()
		return nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	var seen []string
	err := client.Trace(ctx, "robot 1", func(tr ferrule.Trace) {
		if seen = append(seen, tr.Data); len(seen) == 3 {
			cancel()
		}
	})
	if err != nil || strings.Join(seen, "") != "012" {
		t.Errorf("%q, %v", seen, err)
	}
	if err := client.Trace(t.Context(), "x", nil); err == nil || ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("got %v", err)
	}
}

// TestTraceSlowReader checks that a slow reader does not block the device: frames are
// dropped, and the reader gets their number.
func TestTraceSlowReader(t *testing.T) {
	const frames = 100000
	burst := make(chan struct{})
	var sent atomic.Int64
	client, _ := serve(t, &gateway{trace: func(ctx context.Context, _ string, fn func(ferrule.Trace)) error {
		for i := range frames {
			sent.Add(1)
			fn(ferrule.Trace{Direction: "in", Data: strings.Repeat("x", 100)})
			if i == frames-1 {
				close(burst)
			}
		}
		for n := 0; ctx.Err() == nil; n++ { // until the backlog has space
			sent.Add(1)
			fn(ferrule.Trace{Direction: "in", Data: fmt.Sprint("after ", n)})
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
	defer cancel()
	shown, missed, seen := 0, 0, false
	err := client.Trace(ctx, "robot", func(tr ferrule.Trace) {
		<-burst // read slowly
		n := 0
		switch {
		case seen:
		case tr.Note != "":
			fmt.Sscanf(tr.Note, "%d frames dropped", &n)
			missed += n
		case tr.Data[0] == 'x':
			shown++
		default:
			seen = true
			fmt.Sscanf(tr.Data, "after %d", &n)
			if known := shown + missed; known < frames+n || known > int(sent.Load()) || missed == 0 {
				t.Errorf("%d shown, %d missed, before number %d", shown, missed, frames+n)
			}
			cancel()
		}
	})
	if err != nil || !seen {
		t.Errorf("%d shown, %d missed, %v", shown, missed, err)
	}
}

func TestSocketPath(t *testing.T) {
	short := t.TempDir()
	if path, err := control.SocketPath(short); err != nil || path != filepath.Join(short, "control.sock") && len(short) < 80 {
		t.Errorf("got %s, %v", path, err)
	}
	temp, err := os.MkdirTemp("", "f") // t.TempDir would be too long itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	found, err := control.FindSocket(long)
	if _, statErr := os.Stat(filepath.Dir(found)); err != nil || !errors.Is(statErr, os.ErrNotExist) {
		t.Errorf("FindSocket returned %s, %v; its directory: %v", found, err, statErr)
	}
	path, err := control.SocketPath(long)
	if err != nil || path != found || len(path) > 100 || !strings.HasPrefix(path, temp) {
		t.Fatalf("got %s, %v", path, err)
	}
	if again, err := control.SocketPath(long); err != nil || again != path {
		t.Errorf("got %s, %v the second time", again, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pathOf := range []func(string) (string, error){control.SocketPath, control.FindSocket} {
		if _, err := pathOf(long); err == nil || !strings.Contains(err.Error(), "is accessible to other users") {
			t.Errorf("got %v for a directory that other users can access", err)
		}
	}
}

func TestTakeOver(t *testing.T) {
	g := &gateway{}
	client, end := serve(t, g)
	if err := client.TakeOver(t.Context()); err != nil || g.handovers != 1 {
		t.Errorf("%d, %v", g.handovers, err)
	}
	if err := client.TakeOver(t.Context()); !errors.Is(err, control.ErrNotHandedOver) || !strings.Contains(err.Error(), "once is enough") {
		t.Errorf("got %v", err)
	}
	end()
	wait.For(t, "an error after the gateway exited", func() bool {
		err := client.TakeOver(t.Context())
		return err != nil && !errors.Is(err, control.ErrNotHandedOver)
	})
}
