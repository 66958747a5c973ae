package mcpserver_test

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestStats: a device knows how its calls ended, and how long tools ran.
func TestStats(t *testing.T) {
	board := robot()
	thing.Tool(board, "slow", "Take long", func(ctx context.Context, _ struct{}) (string, error) {
		time.Sleep(20 * time.Millisecond) // what is measured
		return "done", nil
	})
	d := mcpserver.New(board, mcpserver.Config{CacheEntries: 2, CacheBytes: 1000})
	d.Cache("where", time.Hour)
	d.Before(func(_ context.Context, tool string, _ json.RawMessage) error {
		if tool == "look" {
			return &thing.RefusedError{Reason: "It is dark"}
		}
		return nil
	})
	if got := d.Stats(); got != (mcpserver.Stats{Cache: mcpserver.CacheStats{MaxEntries: 2, MaxBytes: 1000, Tools: 1}}) {
		t.Errorf("before the first call: %+v", got)
	}
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		before := d.Stats()
		for _, tool := range []string{"where", "where", "fail", "panic", "look", "slow"} {
			call(t, session, tool, struct{}{})
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move", Arguments: map[string]any{"steps": 11}}); err == nil {
			t.Error("wrong arguments were accepted")
		}
		got := d.Stats()
		if got.Calls-before.Calls != 7 || got.Refused-before.Refused != 2 || got.Failed-before.Failed != 2 || got.Waiting != 0 || got.Tasks != 0 {
			t.Errorf("got %+v after %+v", got, before)
		}
		if busy := got.Busy - before.Busy; busy < 20*time.Millisecond {
			t.Errorf("busy for %v", busy)
		}
		if hits := got.Cache.Hits - before.Cache.Hits; got.Cache.Entries != 1 || hits != 2-(got.Cache.Misses-before.Cache.Misses) || hits == 0 {
			t.Errorf("cache: %+v after %+v", got.Cache, before.Cache)
		}
		if version == versions[0] && got.Sessions != 1 {
			t.Errorf("%d sessions", got.Sessions)
		}
	})
	if rate := d.CacheStats().HitRate(); rate != 0.75 { // the first call of four read it
		t.Errorf("hit rate %v", rate)
	}
}

// TestAddr: a device knows where it is served, while it is.
func TestAddr(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{Listen: "127.0.0.1:0", WebSocket: "127.0.0.1:0"})
	if d.Addr() != nil || d.WebSocketAddr() != nil || d.Port() != 0 {
		t.Errorf("before it is served: %v, %v, %d", d.Addr(), d.WebSocketAddr(), d.Port())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	wait.For(t, "both addresses", func() bool { return d.Addr() != nil && d.WebSocketAddr() != nil })
	if port := d.Addr().(*net.TCPAddr).Port; port == 0 || d.Port() != port || d.WebSocketAddr().String() == d.Addr().String() {
		t.Errorf("got %v, %v, %d", d.Addr(), d.WebSocketAddr(), d.Port())
	}
	if got := call(t, dial(t, "http://"+d.Addr().String()+"/mcp", versions[0], nil), "name", struct{}{}); got == "" {
		t.Error("no answer")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if d.Addr() != nil || d.WebSocketAddr() != nil {
		t.Errorf("after it was served: %v, %v", d.Addr(), d.WebSocketAddr())
	}
}
