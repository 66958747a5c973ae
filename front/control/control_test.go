package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
	"github.com/ferrulehq/ferrule/front/control"
)

// gateway is what stands behind the socket in a test.
type gateway struct {
	handle ferrule.Handler
	trace  func(ctx context.Context, device string, fn func(ferrule.Trace)) error
}

func (g *gateway) Trace(ctx context.Context, device string, fn func(ferrule.Trace)) error {
	return g.trace(ctx, device, fn)
}

// serve runs a server, and returns a client of it and a way to end it.
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
	ended := make(chan error, 1)
	go func() { ended <- control.NewServer(path, g.handle, g, slog.New(slog.DiscardHandler)).Run(ctx) }()
	client := control.NewClient(path)
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	for { // until the socket is there
		info, err := os.Stat(path)
		if err == nil && info.Mode()&os.ModeSocket != 0 && info.Mode().Perm() == 0o600 {
			return client, cancel
		}
		time.Sleep(time.Millisecond)
	}
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
	var told []string
	result, err := client.Handle(t.Context(), &ferrule.Call{
		Principal: ferrule.Principal{Name: "anna"}, Device: "robot", Tool: "move", Args: []byte(`{"pin":2}`),
		Timeout: ferrule.Duration(time.Second), Progress: func(p ferrule.Progress) { told = append(told, p.Message) },
	})
	if err != nil || string(result.Value) != `"person:annarobotmove{\"pin\":2}1s"` {
		t.Errorf("got %s, %v", result.Value, err)
	}
	if strings.Join(told, " ") != "one two" {
		t.Errorf("told %q", told)
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

func TestCancelReachesTheCall(t *testing.T) {
	cancelled := make(chan error, 1)
	client, _ := serve(t, &gateway{handle: func(ctx context.Context, _ *ferrule.Call) (*ferrule.Result, error) {
		<-ctx.Done()
		cancelled <- ctx.Err()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := client.Handle(ctx, &ferrule.Call{Device: "robot", Tool: "move"})
	if e := ferrule.AsError(err); e.Code != ferrule.Cancelled || !e.MayHaveRun() {
		t.Errorf("got %+v", e)
	}
	select {
	case err := <-cancelled:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the call goes on")
	}
}

func TestStoppingEndsCalls(t *testing.T) {
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
	client := control.NewClient(filepath.Join(t.TempDir(), "control.sock"))
	if _, err := client.Handle(t.Context(), &ferrule.Call{}); !errors.Is(err, control.ErrNoGateway) {
		t.Errorf("got %v", err)
	}
	if err := client.Trace(t.Context(), "robot", nil); !errors.Is(err, control.ErrNoGateway) {
		t.Errorf("got %v", err)
	}
}

func TestTrace(t *testing.T) {
	client, _ := serve(t, &gateway{trace: func(ctx context.Context, device string, fn func(ferrule.Trace)) error {
		if device != "robot 1" {
			return ferrule.Errorf(ferrule.NotFound, "there is no device %q", device)
		}
		for i := range 3 {
			fn(ferrule.Trace{Way: "in", Data: fmt.Sprint(i)})
		}
		<-ctx.Done()
		return nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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

// TestTraceNeverBlocksTheDevice: a reader that is too slow misses frames, and is
// told how many.
func TestTraceNeverBlocksTheDevice(t *testing.T) {
	const frames = 100000
	client, _ := serve(t, &gateway{trace: func(ctx context.Context, _ string, fn func(ferrule.Trace)) error {
		for range frames {
			fn(ferrule.Trace{Way: "in", Data: strings.Repeat("x", 100)})
		}
		time.Sleep(100 * time.Millisecond)
		fn(ferrule.Trace{Way: "in", Data: "last"})
		<-ctx.Done()
		return nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	shown, missed := 0, 0
	err := client.Trace(ctx, "robot", func(tr ferrule.Trace) {
		switch {
		case tr.Data == "last":
			cancel()
		case tr.Note != "":
			n := 0
			fmt.Sscanf(tr.Note, "%d frames came too fast", &n)
			missed += n
		default:
			shown++
		}
	})
	if err != nil || shown+missed != frames || missed == 0 {
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
	path, err := control.SocketPath(long)
	if err != nil || len(path) > 100 || !strings.HasPrefix(path, temp) {
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
	if _, err := control.SocketPath(long); err == nil || !strings.Contains(err.Error(), "is open to others") {
		t.Errorf("got %v for a directory that others can reach into", err)
	}
}
