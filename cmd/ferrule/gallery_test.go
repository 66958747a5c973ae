package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// A gallery has everything that a device which is an MCP server can show. It is used
// directly and through the gateway, and both are compared. Most of it is a thing; what a
// thing does not say, links and whom something is for, is a server of the SDK.

// bytesOf returns data that is different for each n.
func bytesOf(n int) []byte {
	data := make([]byte, 10+n*37%4000)
	for i := range data {
		data[i] = byte(i*n + n)
	}
	return data
}

// numbered is the input of most tools here.
type numbered struct {
	N int `json:"n"`
}

// measured is a result with a bit of everything.
type measured struct {
	N       int              `json:"n"`
	Celsius float64          `json:"celsius"`
	Name    string           `json:"name"`
	Wet     bool             `json:"wet"`
	Last    *float64         `json:"last"`
	Of      map[string][]int `json:"of"`
}

func measure(n int) measured {
	return measured{N: n, Celsius: float64(n)/7 - 3, Name: fmt.Sprintf("sensor %d “<&>”\n\t☂", n), Wet: n%2 == 0, Of: map[string][]int{"a": {n, n + 1}, "": nil}}
}

// galleryThing returns the part of the gallery that is made with package thing. If
// changing is set, its tools are not declared read-only.
func galleryThing(changing bool) *mcpserver.Device {
	board := thing.New("gallery", "1.0.0")
	var options []thing.ToolOption
	if !changing {
		options = append(options, thing.Reads())
	}
	d := mcpserver.New(board, mcpserver.Config{})
	show := func(name string, make func(n int) (any, error)) {
		thing.Tool(board, name, "Show something", func(_ context.Context, in numbered) (any, error) { return make(in.N) }, options...)
	}
	thing.Tool(board, "measure", "Measure something", func(_ context.Context, in numbered) (measured, error) { return measure(in.N), nil }, options...)
	show("text", func(n int) (any, error) { return strings.Repeat(fmt.Sprintf("line %d ☃ \\ \"q\"\n", n), n%9), nil })
	show("number", func(n int) (any, error) { return float64(n) / 3, nil })
	show("list", func(n int) (any, error) { return []int{n, n * n}, nil })
	show("picture", func(n int) (any, error) { return thing.Image{MIME: "image/png", Data: bytesOf(n)}, nil })
	show("sound", func(n int) (any, error) { return thing.Audio{MIME: "audio/wav", Data: bytesOf(n)}, nil })
	show("document", func(n int) (any, error) {
		return thing.Document{URI: fmt.Sprint("gallery://documents/", n), MIME: "text/plain", Text: fmt.Sprint("document ", n)}, nil
	})
	show("archive", func(n int) (any, error) {
		return thing.Document{URI: fmt.Sprint("gallery://archives/", n), MIME: "application/zip", Data: bytesOf(n)}, nil
	})
	show("parts", func(n int) (any, error) {
		return thing.Parts{fmt.Sprint("first ", n), thing.Image{MIME: "image/gif", Data: bytesOf(n)}, measure(n), "last"}, nil
	})
	show("fail", func(n int) (any, error) { return nil, fmt.Errorf("it broke at %d", n) })
	d.Resource(mcpserver.Resource{URI: "gallery://text", Name: "text", MIME: "text/plain", Audience: []string{"user"}, Priority: 0.5},
		func(context.Context) (any, error) { return "a text\nof two lines", nil })
	d.Resource(mcpserver.Resource{URI: "gallery://picture", Name: "picture", MIME: "image/png"},
		func(context.Context) (any, error) { return thing.Image{MIME: "image/png", Data: bytesOf(77)}, nil })
	d.Resource(mcpserver.Resource{URI: "gallery://parts", Name: "parts"},
		func(context.Context) (any, error) { return thing.Parts{"one", measure(2), []byte("three")}, nil })
	rooms := func(_ context.Context, typed string, _ map[string]string) []string {
		return slices.DeleteFunc([]string{"attic", "arcade", "cellar"}, func(room string) bool { return !strings.HasPrefix(room, typed) })
	}
	d.Template(mcpserver.Template{Resource: mcpserver.Resource{URI: "gallery://rooms/{room}/{n}"}, Complete: map[string]mcpserver.Completer{"room": rooms}},
		func(_ context.Context, values map[string]string) (any, error) {
			if values["room"] == "nowhere" {
				return nil, mcpserver.ErrNotFound
			}
			return values, nil
		})
	d.Prompt(mcpserver.Prompt{Name: "describe", Text: "Describe a room", Arguments: []mcpserver.Argument{{Name: "room", Required: true, Complete: rooms}, {Name: "style"}}},
		func(_ context.Context, args map[string]string) ([]mcpserver.Message, error) {
			return []mcpserver.Message{
				{Role: "user", Content: fmt.Sprintf("Describe the %s %q.", args["room"], args["style"])},
				{Role: "user", Content: thing.Image{MIME: "image/png", Data: bytesOf(len(args["room"]))}},
				{Role: "user", Content: thing.Document{URI: "gallery://text", MIME: "text/plain", Text: "a text"}},
				{Role: "assistant", Content: "It is a room."},
			}, nil
		})
	return d
}

// galleryServer returns the part that is made with the SDK, for both versions of MCP.
func galleryServer() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "gallery", Version: "1.0.0"}, nil)
	size := int64(99)
	show := func(name string, make func(n int) *mcp.CallToolResult) {
		server.AddTool(&mcp.Tool{
			Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
		}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in numbered
			if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
				return nil, err
			}
			return make(in.N), nil
		})
	}
	show("link", func(n int) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "Look there."},
			&mcp.ResourceLink{
				URI: fmt.Sprint("gallery://documents/", n), Name: fmt.Sprint("document ", n), Title: "A document", Description: "It is there.", MIMEType: "text/plain", Size: &size,
				Annotations: &mcp.Annotations{Audience: []mcp.Role{"assistant"}, Priority: 0.25, LastModified: "2026-11-15T12:00:00Z"},
			},
			&mcp.ResourceLink{URI: "https://example.org/" + fmt.Sprint(n), Name: "elsewhere"},
		}}
	})
	show("noted", func(n int) *mcp.CallToolResult {
		about := &mcp.Annotations{Audience: []mcp.Role{"user", "assistant"}, Priority: float64(1+n%9) / 10}
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: fmt.Sprint("a note ", n), Annotations: about},
			&mcp.ImageContent{MIMEType: "image/png", Data: bytesOf(n), Annotations: about},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "gallery://text", MIMEType: "text/plain", Text: "a text"}, Annotations: about},
		}}
	})
	show("aside", func(n int) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(`{"n":%d}`, n), Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}}}}}
	})
	show("both", func(n int) *mcp.CallToolResult { // data with a different text
		return &mcp.CallToolResult{StructuredContent: measure(n), Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("It is %d.", n)}}}
	})
	show("failing", func(n int) *mcp.CallToolResult {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{
			&mcp.TextContent{Text: fmt.Sprint("it broke at ", n)}, &mcp.ImageContent{MIMEType: "image/png", Data: bytesOf(n)},
		}}
	})
	get := func(*http.Request) *mcp.Server { return server }
	return bothMCPVersions(get)
}

// bothMCPVersions serves both versions of MCP with the SDK.
func bothMCPVersions(get func(*http.Request) *mcp.Server) http.Handler {
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	stateful := mcp.NewStreamableHTTPHandler(get, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= modern {
			stateless.ServeHTTP(w, r)
			return
		}
		stateful.ServeHTTP(w, r)
	})
}

// visit is one request to a part of the gallery.
type visit struct {
	part string // thing or server
	what string
	do   func(ctx context.Context, s *mcp.ClientSession) (any, error)
}

func askTool(part, tool string, n int) visit {
	return visit{part, fmt.Sprint(tool, " ", n), func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		return s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: numbered{n}})
	}}
}

func askRead(uri string) visit {
	return visit{"thing", uri, func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		return s.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	}}
}

func askPrompt(args map[string]string) visit {
	return visit{"thing", fmt.Sprint("describe ", args), func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		return s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "describe", Arguments: args})
	}}
}

func askCompletion(ref *mcp.CompleteReference, begun string) visit {
	return visit{"thing", fmt.Sprintf("completion of %q", begun), func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		return s.Complete(ctx, &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "room", Value: begun}})
	}}
}

// tour returns two hundred requests.
func tour() (all []visit) {
	for n := 0; len(all) < 200; n++ {
		for _, tool := range []string{"measure", "text", "number", "list", "picture", "sound", "document", "archive", "parts", "fail"} {
			all = append(all, askTool("thing", tool, n))
		}
		for _, tool := range []string{"link", "noted", "aside", "both", "failing"} {
			all = append(all, askTool("server", tool, n))
		}
		all = append(all,
			askRead([]string{"gallery://text", "gallery://picture", "gallery://parts"}[n%3]),
			askRead(fmt.Sprintf("gallery://rooms/attic/%d", n)),
			askPrompt(map[string]string{"room": fmt.Sprint("room ", n), "style": []string{"", "plain"}[n%2]}),
			[]visit{
				askCompletion(&mcp.CompleteReference{Type: "ref/prompt", Name: "describe"}, "a"),
				askCompletion(&mcp.CompleteReference{Type: "ref/resource", URI: "gallery://rooms/{room}/{n}"}, "c"),
			}[n%2],
			[]visit{
				askTool("thing", "nothing", n), askRead("gallery://nothing"), askRead("gallery://rooms/nowhere/1"), askPrompt(nil),
			}[n%4],
		)
	}
	return all[:200]
}

// seen returns all contents of a result, or the code of its error. _meta is left out,
// because it names the sender.
func seen(result any, err error) (contents []string, isError bool) {
	if wrong := (*jsonrpc.Error)(nil); errors.As(err, &wrong) {
		return []string{fmt.Sprint("error ", wrong.Code)}, true
	}
	if err != nil {
		return []string{err.Error()}, true
	}
	add := func(part any) {
		data, err := json.Marshal(part)
		if err != nil {
			data = []byte(err.Error())
		}
		contents = append(contents, string(data))
	}
	switch r := result.(type) {
	case *mcp.CallToolResult:
		if isError = r.IsError; r.StructuredContent != nil {
			add(r.StructuredContent)
		}
		for _, c := range r.Content {
			add(c)
		}
	case *mcp.ReadResourceResult:
		for _, c := range r.Contents {
			add(c)
		}
	case *mcp.GetPromptResult:
		add(r.Description)
		for _, m := range r.Messages {
			add(m)
		}
	case *mcp.CompleteResult:
		add(r.Completion)
	}
	return contents, isError
}
