package mcpserver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// dialNotified connects a client that is notified when the list of tools changes. Its stream is
// open: before 2026-07-28 the SDK waits for that, later the device acknowledges it.
func dialNotified(t *testing.T, url, version string) (session *mcp.ClientSession, notified <-chan struct{}) {
	t.Helper()
	changes, open := make(chan struct{}, 100), make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changes <- struct{}{} },
	})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				open <- struct{}{}
			}
			return next(ctx, method, req)
		}
	})
	session = connectClient(t, client, &mcp.StreamableClientTransport{Endpoint: url}, version)
	if version >= "2026-07-28" {
		select {
		case <-open:
		case <-time.After(wait.Ample):
			t.Fatal("the subscription was not acknowledged")
		}
	}
	return session, changes
}

// TestGroups: tools of a group are enabled and disabled together, and callers are
// notified.
func TestGroups(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{})
	d.Group("motors", "move")
	d.Group("all", "move", "name")
	d.Disable("motors") // before the device is served
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		session, notified := dialNotified(t, url, version)
		tools := func() int {
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Tools)
		}
		hear := func() {
			t.Helper()
			select {
			case <-notified:
			case <-time.After(wait.Ample):
				t.Error("no notification")
			}
		}
		if n := tools(); n != 5 {
			t.Errorf("%d tools without motors", n)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"}); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("a disabled tool: %v", err)
		}
		d.Disable("all")
		hear()
		d.Enable("motors")
		if n := tools(); n != 4 {
			t.Errorf("%d tools without all", n)
		}
		d.Enable("all")
		hear()
		if n := tools(); n != 6 {
			t.Errorf("%d tools", n)
		}
		call(t, session, "move", moving{})
		d.Disable("motors")
	})
}

// TestRefresh: tools come and go while the device is served, and callers are notified
// once for each change.
func TestRefresh(t *testing.T) {
	board := robot()
	d := mcpserver.New(board, mcpserver.Config{})
	d.Cache("lamp", time.Hour)
	d.Refresh() // not served yet
	url := serve(t, d)
	add := func(text string) {
		thing.Tool(board, "lamp", text, func(context.Context, struct{}) (string, error) { return text, nil })
	}
	inVersions(t, func(t *testing.T, version string) {
		session, notified := dialNotified(t, url, version)
		lamp := func() string {
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range list.Tools {
				if tool.Name == "lamp" {
					return tool.Description
				}
			}
			return ""
		}
		change := func(want string, what func()) {
			t.Helper()
			what()
			d.Refresh()
			select {
			case <-notified:
			case <-time.After(wait.Ample):
				t.Error("no notification")
			}
			if got := lamp(); got != want {
				t.Errorf("the lamp is %q, want %q", got, want)
			}
		}
		change("a lamp", func() { add("a lamp") })
		answers := func(want string) {
			t.Helper()
			if got := call(t, session, "lamp", struct{}{}); !strings.Contains(got, `"`+want+`"`) {
				t.Errorf("the lamp answered %s, want %q", got, want)
			}
		}
		answers("a lamp")
		change("another lamp", func() { board.Remove("lamp"); add("another lamp") })
		answers("another lamp")
		board.Remove("lamp")
		thing.Tool(board, "lamp", "another lamp", func(context.Context, struct{}) (string, error) { return "a third", nil })
		d.Refresh() // to callers it is the same
		answers("a third")
		change("", func() { board.Remove("lamp", "unknown") })
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "lamp"})
		if err == nil {
			t.Errorf("a removed tool answered %v", result)
		}
		d.Refresh()
		select {
		case <-notified:
			t.Error("a notification without a change")
		case <-time.After(50 * time.Millisecond):
		}
	})
}

// TestDisabledWhileWaiting: a waiting call is not made if its tool is disabled
// meanwhile.
func TestDisabledWhileWaiting(t *testing.T) {
	board := thing.New("d", "1")
	began, finish := make(chan struct{}), make(chan struct{})
	thing.Tool(board, "work", "", func(context.Context, struct{}) (int, error) { close(began); <-finish; return 0, nil })
	moved := false
	thing.Tool(board, "move", "", func(context.Context, struct{}) (int, error) { moved = true; return 0, nil })
	d := mcpserver.New(board, mcpserver.Config{})
	d.Group("motors", "move")
	session := dial(t, serve(t, d), versions[0], nil)
	go session.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
	<-began
	answered := make(chan *mcp.CallToolResult)
	go func() {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"})
		if err != nil {
			t.Error(err)
		}
		answered <- result
	}()
	wait.For(t, "the second call waits", func() bool { return d.Stats().Waiting == 1 })
	d.Disable("motors")
	close(finish)
	if result := <-answered; result == nil || result.Meta[mcpserver.Untried] != true || moved {
		t.Errorf("got %+v, moved: %v", result, moved)
	}
}

// TestGroupUnknownTool: a group with an unknown tool panics when the device is served.
func TestGroupUnknownTool(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	d := mcpserver.New(robot(), mcpserver.Config{})
	d.Group("motors", "fly")
	d.Handler()
}
