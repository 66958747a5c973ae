package mcpserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestGroups: tools of a group are enabled and disabled together, and callers are
// notified.
func TestGroups(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{})
	d.Group("motors", "move")
	d.Group("all", "move", "name")
	d.Disable("motors") // before the device is served
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		notified := make(chan struct{}, 100)
		session := dial(t, url, version, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { notified <- struct{}{} }})
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
			case <-time.After(10 * time.Second):
				t.Error("no notification")
			}
		}
		if n := tools(); n != 5 {
			t.Errorf("%d tools without motors", n)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"}); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("a disabled tool: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // until its stream is open
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
	time.Sleep(100 * time.Millisecond) // until it waits
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
