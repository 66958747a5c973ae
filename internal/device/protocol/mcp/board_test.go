package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/transport/httpclient"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
)

// startWeb runs a simulated board that behaves like mcpd. Its waits are short unless cfg says
// otherwise.
func startWeb(t *testing.T, cfg sim.WebConfig) *sim.Web {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	if cfg.Wait == 0 {
		cfg.Wait = 100 * time.Millisecond
	}
	w, err := sim.ListenWeb(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// pulse is a call that the board counts.
func pulse(token string) ferrule.Call {
	return ferrule.Call{Tool: "pulse", Args: json.RawMessage(fmt.Sprintf(`{"token":%q}`, token))}
}

func pulsed(token string, runs int) string {
	return fmt.Sprintf(`{"value":{"token":%q,"runs":%d}}`, token, runs)
}

// TestBoard: a board that serves one connection at a time is not blocked. After a restart,
// or when another client starts a session, the session ends, and calls have the right
// outcome.
func TestBoard(t *testing.T) {
	b := startWeb(t, sim.WebConfig{})
	m := connect(t, b.URL())
	for n := 1; n <= 5; n++ {
		if got := m.do(pulse("a")); got != pulsed("a", n) {
			t.Errorf("call %d: %s", n, got)
		}
	}
	if b.Silent() != 0 {
		t.Errorf("%d connections without a request", b.Silent())
	}
	b.Restart()
	if got := m.do(pulse("a")); got != pulsed("a", 6) {
		t.Errorf("after a restart: %s", got)
	}
	if err := <-m.ran; err == nil || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("it ended with %v", err)
	}
	first, second := connect(t, b.URL()), connect(t, b.URL())
	if got := first.do(pulse("a")); !strings.Contains(got, `"code":"refused"`) {
		t.Errorf("a session that another client ended: %s", got)
	}
	if err := <-first.ran; err == nil || !strings.Contains(err.Error(), "does not know the session") {
		t.Errorf("it ended with %v", err)
	}
	if got := second.do(pulse("a")); got != pulsed("a", 7) {
		t.Errorf("the current session: %s", got)
	}
}

// TestBoardMissed: list changes are missed while the stream is closed. The lists are read
// when it is open again.
func TestBoardMissed(t *testing.T) {
	b := startWeb(t, sim.WebConfig{})
	h := startGateway(t, b.URL())
	wait.For(t, "the board", h.online)
	wait.For(t, "its stream", func() bool { return b.EndStreams() > 0 })
	thing.Tool(b.Board.Device, "extra", "One more", func(context.Context, struct{}) (bool, error) { return true, nil })
	wait.For(t, "the new tool", func() bool { dev, _ := h.robot(); return dev.Waiting == 1 })
	if dev, _ := h.robot(); dev.State != ferrule.StateOnline {
		t.Errorf("state %s", dev.State)
	}
}

// TestBoardWaits: with the waits of the original, a stream and a silent client block the board
// for five seconds each. Calls of several agents wait, and each runs once.
func TestBoardWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	b := startWeb(t, sim.WebConfig{Wait: 5 * time.Second})
	h := startGateway(t, b.URL())
	wait.For(t, "the board", h.online)
	silent, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(b.URL(), "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			token := fmt.Sprint("agent ", n)
			if got := h.do(pulse(token)); got != pulsed(token, 1) {
				t.Errorf("%s: %s", token, got)
			}
		})
	}
	wg.Wait()
	if b.Silent() != 1 { // the one above
		t.Errorf("%d connections without a request", b.Silent())
	}
	if !h.online() {
		t.Error("the board is offline")
	}
}

// TestBoardRestarts: a board that restarts while a tool runs may have run it, and it is not
// called again.
func TestBoardRestarts(t *testing.T) {
	b := startWeb(t, sim.WebConfig{})
	begun := make(chan struct{}, 10)
	thing.Tool(b.Board.Device, "brew", "Make coffee", func(ctx context.Context, _ struct{}) (bool, error) {
		begun <- struct{}{}
		b.Restart()
		return true, nil
	})
	h := startGateway(t, b.URL())
	wait.For(t, "the board", h.online)
	if got := h.do(ferrule.Call{Tool: "brew"}); !strings.Contains(got, `"code":"unanswered"`) {
		t.Errorf("the call: %s", got)
	}
	wait.For(t, "the board again", func() bool { return h.do(pulse("a")) == pulsed("a", 1) })
	if n := len(begun); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestBoardErrors: what a board rejects was not tried, and the reason is passed on.
func TestBoardErrors(t *testing.T) {
	b := startWeb(t, sim.WebConfig{Token: "secret"})
	if _, _, err := mcp.New(mcp.Parts{}).Greet(t.Context(), openWith(t, httpclient.Device{URL: b.URL(), Token: "secret"})); err != nil {
		t.Errorf("with its token: %v", err)
	}
	denied := startGateway(t, b.URL())
	wait.For(t, "the reason", func() bool {
		dev, _ := denied.robot()
		return dev != nil && strings.Contains(dev.Reason, "401")
	})
	m := connect(t, startWeb(t, sim.WebConfig{}).URL())
	for _, test := range []struct {
		call ferrule.Call
		want string
	}{
		{ferrule.Call{Tool: "set_servo", Args: json.RawMessage(`{"angle":270}`)}, `angle must be within 0 and 180`},
		{ferrule.Call{Tool: "set_servo", Args: json.RawMessage(`{"angle":"up"}`)}, `angle must be an integer`},
		{ferrule.Call{Tool: "gone"}, `Tool not found: gone`},
	} {
		if got := m.do(test.call); !strings.Contains(got, `"code":"refused"`) || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", test.call.Tool, got, test.want)
		}
	}
	fast := startWeb(t, sim.WebConfig{Rate: 8})
	m = connect(t, fast.URL())
	refused, calls := 0, 0
	for ; refused == 0 && calls < 200; calls++ {
		switch got := m.do(pulse("a")); {
		case strings.Contains(got, `"code":"refused"`) && strings.Contains(got, "Rate limit exceeded") && strings.Contains(got, "call less often"):
			refused++
		case got != pulsed("a", fast.Board.Runs()["a"]):
			t.Errorf("a call: %s", got)
		}
	}
	if runs := fast.Board.Runs()["a"]; refused == 0 || runs+refused != calls {
		t.Errorf("%d calls ran and %d were refused", runs, refused)
	}
}
