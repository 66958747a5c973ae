//lint:file-ignore SA1019 2026-07-28 deprecates some of this, and has no replacement yet

package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestResources: strings, bytes, data and templates are listed and read. An unknown
// resource is not found, and one that panics fails alone.
func TestResources(t *testing.T) {
	d := mcpserver.New(thing.New("d", "1"), mcpserver.Config{})
	d.Resource(mcpserver.Resource{URI: "d://log", Name: "log", MIME: "text/plain", Audience: []string{"user"}, Priority: 0.5},
		func(context.Context) (any, error) { return "all is well", nil })
	d.Resource(mcpserver.Resource{URI: "d://picture"}, func(context.Context) (any, error) {
		return thing.Image{MIME: "image/png", Data: []byte("PNG")}, nil
	})
	d.Resource(mcpserver.Resource{URI: "d://state"}, func(context.Context) (any, error) { return moved{3}, nil })
	d.Resource(mcpserver.Resource{URI: "d://broken"}, func(context.Context) (any, error) { panic("short circuit") })
	d.Template(mcpserver.Template{Resource: mcpserver.Resource{URI: "d://{room}/sensor/{id}"}}, func(_ context.Context, values map[string]string) (any, error) {
		if values["id"] == "9" {
			return nil, mcpserver.ErrNotFound
		}
		return values["room"] + " " + values["id"], nil
	})
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		list, err := session.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 4 {
			t.Fatalf("got %v, %v", list, err)
		}
		if log := list.Resources[1]; log.Name != "log" || log.Annotations.Priority != 0.5 || log.Annotations.Audience[0] != "user" {
			t.Errorf("got %+v", log)
		}
		for uri, want := range map[string]string{
			"d://log":                 `"mimeType":"text/plain","text":"all is well"`,
			"d://picture":             `"mimeType":"image/png","blob":"UE5H"`,
			"d://state":               `"text":"{\"position\":3}"`,
			"d://hall%20way/sensor/7": `"text":"hall way 7"`,
		} {
			result, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if err != nil {
				t.Fatalf("%s: %v", uri, err)
			}
			if got, err := json.Marshal(result); err != nil || !strings.Contains(string(got), want) {
				t.Errorf("%s: got %s", uri, got)
			}
		}
		for uri, want := range map[string]int64{"d://nothing": jsonrpc.CodeInvalidParams, "d://hall/sensor/9": jsonrpc.CodeInvalidParams, "d://broken": jsonrpc.CodeInternalError} {
			if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); code(err) != want {
				t.Errorf("%s: %v", uri, err)
			}
		}
	})
}

// TestInvalidTemplates: an invalid template panics when it is declared.
func TestInvalidTemplates(t *testing.T) {
	for _, uri := range []string{"d://log", "d://{+path}", "d://{a,b}", "d://{}"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", uri)
				}
			}()
			d := mcpserver.New(thing.New("d", "1"), mcpserver.Config{})
			d.Template(mcpserver.Template{Resource: mcpserver.Resource{URI: uri}}, nil)
		}()
	}
}

// TestUpdates: subscribers are notified that a resource has changed.
func TestUpdates(t *testing.T) {
	d := mcpserver.New(thing.New("d", "1"), mcpserver.Config{})
	d.Resource(mcpserver.Resource{URI: "d://log"}, func(context.Context) (any, error) { return "", nil })
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		notified := make(chan string, 100)
		session := dial(t, url, version, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) {
			notified <- req.Params.URI
		}})
		if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "d://log"}); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(wait.Ample)
		for {
			d.Updated("d://other")
			d.Updated("d://log")
			select {
			case uri := <-notified:
				if uri != "d://log" {
					t.Errorf("got update of %s", uri)
				}
				return
			case <-time.After(50 * time.Millisecond): // the stream may not be open yet
			case <-deadline:
				t.Fatal("no notification")
			}
		}
	})
}

// TestPrompts: arguments of prompts are checked and completed.
func TestPrompts(t *testing.T) {
	plants := []string{"tomato", "thyme", "basil"}
	suggest := func(_ context.Context, typed string, others map[string]string) []string {
		var found []string
		for _, p := range plants {
			if strings.HasPrefix(p, typed) {
				found = append(found, p+others["suffix"])
			}
		}
		return found
	}
	d := mcpserver.New(thing.New("d", "1"), mcpserver.Config{})
	d.Prompt(mcpserver.Prompt{Name: "advise", Text: "Advise", Arguments: []mcpserver.Argument{{Name: "plant", Required: true, Complete: suggest}, {Name: "tone"}}},
		func(_ context.Context, args map[string]string) ([]mcpserver.Message, error) {
			return []mcpserver.Message{
				{Role: "user", Content: "How is my " + args["plant"] + "?"},
				{Role: "assistant", Content: thing.Image{MIME: "image/png", Data: []byte("PNG")}},
			}, nil
		})
	d.Template(mcpserver.Template{Resource: mcpserver.Resource{URI: "d://{plant}"}, Complete: map[string]mcpserver.Completer{
		"plant": func(context.Context, string, map[string]string) []string { return slices.Repeat(plants, 50) },
	}}, func(context.Context, map[string]string) (any, error) { return "", nil })
	url := serve(t, d)
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		result, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "advise", Arguments: map[string]string{"plant": "basil"}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(result.Messages); err != nil || !strings.Contains(string(got), `"How is my basil?"`) || !strings.Contains(string(got), `"data":"UE5H"`) {
			t.Errorf("got %s", got)
		}
		for _, args := range []map[string]string{{}, {"plant": "basil", "colour": "green"}} {
			if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "advise", Arguments: args}); code(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("%v: %v", args, err)
			}
		}
		completion, err := session.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "advise"}, Argument: mcp.CompleteParamsArgument{Name: "plant", Value: "t"},
			Context: &mcp.CompleteContext{Arguments: map[string]string{"suffix": "!"}},
		})
		if err != nil || !slices.Equal(completion.Completion.Values, []string{"tomato!", "thyme!"}) {
			t.Errorf("got %v, %v", completion, err)
		}
		completion, err = session.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "d://{plant}"}, Argument: mcp.CompleteParamsArgument{Name: "plant"},
		})
		if err != nil || len(completion.Completion.Values) != 100 || completion.Completion.Total != 150 || !completion.Completion.HasMore {
			t.Errorf("got %v, %v", completion, err)
		}
		completion, err = session.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "advise"}, Argument: mcp.CompleteParamsArgument{Name: "tone"},
		})
		if err != nil || len(completion.Completion.Values) != 0 {
			t.Errorf("got %v, %v", completion, err)
		}
	})
}

// TestProgressAndLog: a tool reports progress and log messages to a caller that asked
// for them.
func TestProgressAndLog(t *testing.T) {
	board := thing.New("d", "1")
	thing.Tool(board, "work", "Work", func(ctx context.Context, _ struct{}) (string, error) {
		mcpserver.Progress(ctx, 1, 2, "half")
		mcpserver.Log(ctx, slog.LevelDebug, "not this")
		mcpserver.Log(ctx, slog.LevelWarn, "hot")
		return "done", nil
	})
	if result, err := board.Call(t.Context(), "work", nil); err != nil || result != "done" {
		t.Errorf("without MCP: %v, %v", result, err)
	}
	url := serve(t, mcpserver.New(board, mcpserver.Config{}))
	inVersions(t, func(t *testing.T, version string) {
		words := make(chan string, 10)
		session := dial(t, url, version, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
				words <- fmt.Sprint(req.Params.Message, req.Params.Progress, req.Params.Total)
			},
			LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) {
				words <- fmt.Sprint(req.Params.Level, req.Params.Data)
			},
		})
		params := &mcp.CallToolParams{Name: "work", Meta: mcp.Meta{"progressToken": "p"}}
		if version < "2026-07-28" {
			if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
				t.Fatal(err)
			}
		} else {
			params.Meta["io.modelcontextprotocol/logLevel"] = "info"
		}
		if _, err := session.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"half1 2", "warninghot"} {
			select {
			case got := <-words:
				if got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			case <-time.After(wait.Ample):
				t.Fatalf("no message %s", want)
			}
		}
	})
}

// TestDisconnect: a disconnected caller reconnects for the result; a caller that cannot
// reconnect waits for it.
func TestDisconnect(t *testing.T) {
	board := thing.New("d", "1")
	ran := 0
	thing.Tool(board, "work", "Work", func(ctx context.Context, _ struct{}) (string, error) {
		mcpserver.Disconnect(ctx, 10*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		ran++
		return "done", nil
	})
	url := serve(t, mcpserver.New(board, mcpserver.Config{}))
	inVersions(t, func(t *testing.T, version string) {
		before := ran
		if got := call(t, dial(t, url, version, nil), "work", nil); !strings.Contains(got, `"text":"done"`) || ran != before+1 {
			t.Errorf("got %s, ran %d times", got, ran-before)
		}
	})
}

type confirmation struct {
	Sure bool `json:"sure"`
}

// asker returns a device whose tool asks the user twice, the model, and for folders,
// before it acts.
func asker(opened *int) *mcpserver.Device {
	board := thing.New("d", "1")
	thing.Tool(board, "open", "Open the door", func(ctx context.Context, in struct {
		Door string `json:"door"`
	}) (string, error) {
		first, err := mcpserver.AskUser[confirmation](ctx, "first", "Open the "+in.Door+" door?")
		if err != nil {
			return "", err
		}
		more, err := mcpserver.Ask(ctx, mcpserver.Generate{Name: "reason", Text: "Why?", MaxTokens: 10}, mcpserver.Roots{Name: "folders"})
		if err != nil {
			return "", err
		}
		*opened++
		return fmt.Sprint(in.Door, first.Sure, more[0].Text, more[1].Roots), nil
	}, thing.Endangers())
	return mcpserver.New(board, mcpserver.Config{})
}

// answering returns options of a client whose user and model answer.
func answering(action string) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if action != "accept" {
				return &mcp.ElicitResult{Action: action}, nil
			}
			return &mcp.ElicitResult{Action: action, Content: map[string]any{"sure": true}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "because"}}, nil
		},
	}
}

// TestAsk: a tool asks in several rounds, in all protocol versions, and acts once.
func TestAsk(t *testing.T) {
	opened := 0
	url := serve(t, asker(&opened))
	inVersions(t, func(t *testing.T, version string) {
		before := opened
		session := dial(t, url, version, answering("accept"))
		got := call(t, session, "open", map[string]any{"door": "front"})
		if !strings.Contains(got, `fronttruebecause[]`) || opened != before+1 {
			t.Errorf("got %s, opened %d times", got, opened-before)
		}
		for who, options := range map[string]*mcp.ClientOptions{"a user who declines": answering("decline"), "nobody": nil} {
			result, err := dial(t, url, version, options).CallTool(t.Context(), &mcp.CallToolParams{Name: "open", Arguments: map[string]any{"door": "front"}})
			if err == nil && result.Meta[mcpserver.Untried] != true || opened != before+1 {
				t.Errorf("asking %s: %+v, %v, opened %d times", who, result, err, opened-before)
			}
		}
	})
}

// TestRequestState: a state is valid once, for the same request of this device. An
// answer without a question is ignored, and an invalid form is asked for again.
func TestRequestState(t *testing.T) {
	opened := 0
	url := serve(t, asker(&opened))
	options := answering("accept")
	options.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
	session := dial(t, url, versions[1], options)
	ask := func(door, state string, responses mcp.InputResponseMap) (*mcp.CallToolResult, error) {
		return session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "open", Arguments: map[string]any{"door": door}, RequestState: state, InputResponses: responses,
		})
	}
	first, err := ask("front", "", nil)
	if err != nil || first.InputRequests["first"] == nil {
		t.Fatalf("got %v, %v", first, err)
	}
	again, err := ask("front", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := ask("front", again.RequestState, mcp.InputResponseMap{"first": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"sure": "yes"}}})
	if err != nil || wrong.InputRequests["first"] == nil {
		t.Errorf("an invalid answer: %v, %v", wrong, err)
	}
	right := mcp.InputResponseMap{"first": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"sure": true}}}
	early := maps.Clone(right)
	early["reason"] = &mcp.CreateMessageWithToolsResult{Role: "assistant", Model: "m", Content: []mcp.Content{&mcp.TextContent{Text: "early"}}}
	second, err := ask("front", first.RequestState, early)
	if err != nil || len(second.InputRequests) != 2 {
		t.Fatalf("got %v, %v", second, err)
	}
	for name, attempt := range map[string]func() (*mcp.CallToolResult, error){
		"changed":            func() (*mcp.CallToolResult, error) { return ask("front", second.RequestState+"A", nil) },
		"of another request": func() (*mcp.CallToolResult, error) { return ask("back", second.RequestState, nil) },
		"used":               func() (*mcp.CallToolResult, error) { return ask("front", first.RequestState, right) },
	} {
		if _, err := attempt(); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("a state that was %s: %v", name, err)
		}
	}
	if unasked, err := ask("front", "", right); err != nil || unasked.InputRequests["first"] == nil {
		t.Errorf("an answer without a question: %v, %v", unasked, err)
	}
	if opened != 0 {
		t.Errorf("opened %d times", opened)
	}
	rest := mcp.InputResponseMap{
		"reason":  &mcp.CreateMessageWithToolsResult{Role: "assistant", Model: "m", Content: []mcp.Content{&mcp.TextContent{Text: "because"}}},
		"folders": &mcp.ListRootsResult{Roots: []*mcp.Root{{URI: "file:///home"}}},
	}
	if done, err := ask("front", second.RequestState, rest); err != nil || done.IsError || opened != 1 {
		t.Errorf("got %+v, %v, opened %d times", done, err, opened)
	}
	if _, err := ask("front", second.RequestState, rest); code(err) != jsonrpc.CodeInvalidParams || opened != 1 {
		t.Errorf("a second time: %v, opened %d times", err, opened)
	}
}

// TestAskWithoutMCP: over other protocols the user cannot be asked, and nothing is
// done.
func TestAskWithoutMCP(t *testing.T) {
	opened := 0
	if _, err := asker(&opened).Call(t.Context(), "open", json.RawMessage(`{"door":"front"}`)); err == nil || opened != 0 {
		t.Errorf("got %v, opened %d times", err, opened)
	}
}

// TestSubscriptionLimit: only known resources can be subscribed to, up to a limit.
func TestSubscriptionLimit(t *testing.T) {
	d := mcpserver.New(thing.New("d", "1"), mcpserver.Config{})
	d.Template(mcpserver.Template{Resource: mcpserver.Resource{URI: "d://{id}"}}, func(context.Context, map[string]string) (any, error) { return "", nil })
	d.Resource(mcpserver.Resource{URI: "d://"}, func(context.Context) (any, error) { return "", nil })
	session := dial(t, serve(t, d), versions[0], nil)
	want := func(uri string) error { return session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}) }
	for _, uri := range []string{"other://1", "d://" + strings.Repeat("x", 2000)} {
		if err := want(uri); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("%.20s: %v", uri, err)
		}
	}
	for i := range 1024 {
		if err := want(fmt.Sprint("d://", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := want("d://1024"); code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := want("d://"); err != nil {
		t.Errorf("a declared resource: %v", err)
	}
}
