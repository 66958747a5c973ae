//lint:file-ignore SA1019 logging is deprecated, but versions up to 2025-11-25 have nothing else

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestContents: every type of content keeps all that the device gave. In an error, the
// content of the device comes first, and what it means for the hardware after it.
func TestContents(t *testing.T) {
	regard := &ferrule.Annotations{Audience: []string{"assistant"}, Priority: &half}
	given := []ferrule.Content{
		{Type: ferrule.TextContent, Text: "", Annotations: regard},
		{Type: ferrule.ImageContent, Data: []byte{1}, MIME: "image/png", Annotations: regard},
		{Type: ferrule.AudioContent, Data: []byte{2}, MIME: "audio/wav"},
		{Type: ferrule.ResourceContent, URI: "file:///log", MIME: "text/plain", Data: []byte{3}, Annotations: regard},
		{Type: ferrule.LinkContent, Link: &ferrule.Resource{URI: "file:///log", Name: "log", Title: "The log", Text: "Lines", MIME: "text/plain", Size: 7, Annotations: regard}},
		{Type: ferrule.LinkContent, URI: "https://example.com/manual"},
	}
	f := newServerOf(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Target.Tool = &ferrule.Tool{}
		if call.Tool == "fail" {
			e := ferrule.Errorf(ferrule.Failed, "the arm is stuck").WithHint("look first")
			e.Content = given[:1]
			return nil, e
		}
		return &ferrule.Result{Value: json.RawMessage(call.Args), Content: given}, nil
	}, &ferrule.Manifest{Tools: []ferrule.Tool{{Name: "show"}, {Name: "fail"}}, Operations: []ferrule.Operation{ferrule.ReadResource}})
	everyView(t, f, func(t *testing.T, session *mcp.ClientSession, prefix, uris string) {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: prefix + "show", Arguments: map[string]any{"a": 1}})
		if err != nil || fmt.Sprint(result.StructuredContent) != "map[a:1]" {
			t.Fatalf("%+v, %v", result, err)
		}
		const about = `"annotations":{"audience":["assistant"],"priority":0.5}`
		for i, want := range []string{
			`{"type":"text","text":"",` + about + `}`,
			`{"type":"image","mimeType":"image/png","data":"AQ==",` + about + `}`,
			`{"type":"audio","mimeType":"audio/wav","data":"Ag=="}`,
			`{"type":"resource","resource":{"uri":"` + uris + `file:///log","mimeType":"text/plain","blob":"Aw=="},` + about + `}`,
			`{"type":"resource_link","mimeType":"text/plain","uri":"` + uris + `file:///log","name":"log","title":"The log","description":"Lines","size":7,` + about + `}`,
			`{"type":"resource_link","uri":"https://example.com/manual","name":"https://example.com/manual"}`,
		} {
			if got, err := json.Marshal(result.Content[i]); err != nil || string(got) != want {
				t.Errorf("got %s, want %s: %v", got, want, err)
			}
		}
		wrong, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: prefix + "fail"})
		if err != nil || !wrong.IsError || len(wrong.Content) != 2 {
			t.Fatalf("%+v, %v", wrong, err)
		}
		if got := wrong.Content[1].(*mcp.TextContent).Text; got != "The device reported an error; the action may be partly done. Look first." {
			t.Errorf("got %s", got)
		}
		if meta, err := json.Marshal(wrong.Meta); err != nil || !strings.Contains(string(meta), `"message":"the arm is stuck"`) || strings.Contains(string(meta), "content") {
			t.Errorf("%s, %v", meta, err)
		}
	})
}

// TestStructured: structured content that is not an object exists only since
// 2026-07-28.
func TestStructured(t *testing.T) {
	given := &ferrule.Result{Value: json.RawMessage(`[1]`), Content: []ferrule.Content{}}
	for stateless, want := range map[bool]string{true: "[1]", false: ""} {
		if got, _ := (&view{}).succeeded("robot", given, stateless).StructuredContent.(json.RawMessage); string(got) != want {
			t.Errorf("stateless %t: got %s", stateless, got)
		}
	}
}

// TestLog: log messages of a device are sent before the result, to an agent that set a
// level, from that level on.
func TestLog(t *testing.T) {
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		for _, l := range []*ferrule.Log{
			{Level: "debug", Data: json.RawMessage(`"too much"`)},
			{Level: "warning", Logger: "arm", Data: json.RawMessage("{\"joint\":\n3}")},
			{Level: "shout", Data: json.RawMessage(`"a level of its own"`)},
			{Level: "error", Data: json.RawMessage(`no JSON`)},
			{Level: "alert", Data: json.RawMessage(strings.Repeat("[", 2000) + strings.Repeat("]", 2000))},
		} {
			call.Report(ferrule.Progress{Log: l})
		}
		return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
	}, ferrule.Tool{Name: "move", Effect: ferrule.Changes})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			lines := make(chan string, 10)
			session := connect(t, f, version, &mcp.ClientOptions{
				LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) {
					data, _ := json.Marshal(req.Params.Data)
					lines <- fmt.Sprintf("%s %s %s", req.Params.Level, req.Params.Logger, data)
				},
			})
			call := func(meta mcp.Meta) {
				t.Helper()
				if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move", Meta: meta}); err != nil {
					t.Fatal(err)
				}
			}
			call(nil)
			meta := mcp.Meta{mcp.MetaKeyLogLevel: "info"}
			if version != mcphttp.StatelessVersion {
				meta = nil
				if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
					t.Fatal(err)
				}
			}
			call(meta)
			for _, want := range []string{`warning arm {"joint":3}`, `info  "a level of its own"`, `error  ""`, `alert  ""`} {
				select {
				case got := <-lines:
					if got != want {
						t.Errorf("got %s, want %s", got, want)
					}
				case <-time.After(wait.Ample):
					t.Fatalf("got nothing, want %s", want)
				}
			}
			if len(lines) > 0 {
				t.Errorf("unexpected %s", <-lines)
			}
		})
	}
}
