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

// TestGroups: tools come and go together, and callers are told.
func TestGroups(t *testing.T) {
	d := mcpserver.New(robot(), mcpserver.Config{})
	d.Group("motors", "move")
	d.Group("all", "move", "name")
	d.Disable("motors") // before anybody looks
	url := serve(t, d)
	inEras(t, func(t *testing.T, era string) {
		told := make(chan struct{}, 100)
		session := dial(t, url, era, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }})
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
			case <-told:
			case <-time.After(10 * time.Second):
				t.Error("it was not told")
			}
		}
		if n := tools(); n != 5 {
			t.Errorf("%d tools without motors", n)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move"}); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("a tool that is not there: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // for its stream
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

// TestADisabledToolDoesNotBegin: a call that waits while its tool is taken away is not
// made.
func TestADisabledToolDoesNotBegin(t *testing.T) {
	board := thing.New("d", "1")
	began, finish := make(chan struct{}), make(chan struct{})
	thing.Tool(board, "work", "", func(context.Context, struct{}) (int, error) { close(began); <-finish; return 0, nil })
	moved := false
	thing.Tool(board, "move", "", func(context.Context, struct{}) (int, error) { moved = true; return 0, nil })
	d := mcpserver.New(board, mcpserver.Config{})
	d.Group("motors", "move")
	session := dial(t, serve(t, d), eras[0], nil)
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
	time.Sleep(100 * time.Millisecond) // it waits
	d.Disable("motors")
	close(finish)
	if result := <-answered; result == nil || result.Meta[mcpserver.Untried] != true || moved {
		t.Errorf("got %+v, moved: %v", result, moved)
	}
}

// TestGroupsNameTools: a name that means nothing shows when the device is written.
func TestGroupsNameTools(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it went unnoticed")
		}
	}()
	d := mcpserver.New(robot(), mcpserver.Config{})
	d.Group("motors", "fly")
	d.Handler()
}
