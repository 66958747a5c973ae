package server

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestServe: an agent on a pair of streams has the given principal, and its pages stay
// within the limit. A tool that does not fit is shortened, and can be called.
func TestServe(t *testing.T) {
	const page = 1000
	var who ferrule.Principal
	tools := []ferrule.Tool{
		{Name: "long_text", Text: strings.Repeat("é", 2000), Effect: ferrule.Reads},
		{Name: "long_schema", Input: json.RawMessage(`{"type":"object","properties":{"` + strings.Repeat("x", 3000) + `":{"type":"integer"}}}`), Effect: ferrule.Reads},
	}
	for _, name := range strings.Fields("a b c d e f g h i j k l m n o p") {
		tools = append(tools, ferrule.Tool{Name: name, Text: "Tell what it measures", Effect: ferrule.Reads, Output: json.RawMessage(`{"type":"object"}`)})
	}
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		who = call.Principal
		return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
	}, tools...)
	theirs, answers := io.Pipe()
	in, requests := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- f.Serve(t.Context(), ferrule.Principal{Role: ferrule.Agent, Name: "endpoint:home"}, page, in, answers)
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: theirs, Writer: requests}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for cursor, pages := "", 0; ; pages++ {
		list, err := session.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: cursor})
		if err != nil || len(list.Tools) == 0 {
			t.Fatalf("%v, %v", list, err)
		}
		if n := encodedSize(list.Tools); n > page+2 {
			t.Errorf("page %d has %d bytes", pages, n)
		}
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			if tool.OutputSchema != nil || tool.Annotations != nil || tool.Description == "" {
				t.Errorf("got %+v", tool)
			}
		}
		if cursor = list.NextCursor; cursor == "" {
			break
		}
	}
	if len(names) != len(tools) || !slices.IsSorted(names) {
		t.Errorf("got %v", names)
	}
	if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__long_schema"}); err != nil || result.IsError || who.String() != "agent:endpoint:home" {
		t.Errorf("%+v, %v, called by %v", result, err, who)
	}
	session.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
