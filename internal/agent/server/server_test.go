package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// newServer returns a server for one board, whose tools are served by handle.
func newServer(t *testing.T, handle ferrule.Handler, tools ...ferrule.Tool) *Server {
	t.Helper()
	return newServerOf(t, handle, &ferrule.Manifest{Model: "board", Tools: tools})
}

// newServerOf returns a server for one device with a manifest.
func newServerOf(t *testing.T, handle ferrule.Handler, m *ferrule.Manifest) *Server {
	t.Helper()
	return newServerWith(t, handle, m, nil)
}

// newServerWith returns a server for a device whose samples are reported.
func newServerWith(t *testing.T, handle ferrule.Handler, m *ferrule.Manifest, samples Sampler) *Server {
	t.Helper()
	c := catalog.New(catalog.DefaultConfig())
	c.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m)
	return New(Parts{Config: DefaultConfig(), Catalog: c, Handle: handle, Samples: samples, Version: "1", Log: slog.New(slog.DiscardHandler)})
}

// connect connects the SDK's client to a server, over pipes in memory.
func connect(t *testing.T, f *Server, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connectAt(t, f.viewAt(""), version, options)
}

// connectAt connects the SDK's client to a view.
func connectAt(t *testing.T, v *view, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := v.sdk.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(t.Context(), here, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		server.Close()
	})
	return session
}

var versions = []string{"2025-11-25", mcphttp.StatelessVersion}

// inVirtualTime runs a test in virtual time for each version.
func inVirtualTime(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, version) })
		})
	}
}

func TestTools(t *testing.T) {
	handle := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Target.Tool = &ferrule.Tool{}
		switch call.Tool {
		case "look":
			return &ferrule.Result{Value: json.RawMessage(`{"value":1}`)}, nil
		case "name":
			return &ferrule.Result{Value: json.RawMessage(`"a robot"`), Age: ferrule.Duration(3 * time.Second)}, nil
		case "panic":
			panic("short circuit")
		}
		return nil, ferrule.Errorf(ferrule.Unanswered, "%s is silent", call.Device).WithHint("look first")
	}
	f := newServer(t, handle,
		ferrule.Tool{Name: "look", Effect: ferrule.Reads},
		ferrule.Tool{Name: "name", Effect: ferrule.Reads, Text: "Tell its name", Output: json.RawMessage(`{"type":"object"}`)},
		ferrule.Tool{Name: "move", Effect: ferrule.Endangers},
		ferrule.Tool{Name: "panic", Effect: ferrule.Changes})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			session := connect(t, f, version, nil)
			list, err := session.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 4 {
				t.Fatalf("%v, %v", list, err)
			}
			for i, want := range []string{
				"robot__look true false <nil>", "robot__move false true <nil>", "robot__name true false map[type:object]", "robot__panic false false <nil>",
			} {
				tool := list.Tools[i]
				got := fmt.Sprintf("%s %t %t %v", tool.Name, tool.Annotations.ReadOnlyHint, *tool.Annotations.DestructiveHint, tool.OutputSchema)
				if got != want || tool.Description == "" {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			for tool, want := range map[string]string{
				"robot__look":  `{"value":1} map[value:1] false`,
				"robot__name":  `a robot <nil> false`,
				"robot__move":  `robot is silent. The action may have run. Look first. <nil> true`,
				"robot__panic": `the gateway failed at this call: short circuit. The action may have run. <nil> true`,
			} {
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
				if err != nil {
					t.Fatal(err)
				}
				got := fmt.Sprint(result.Content[0].(*mcp.TextContent).Text, " ", result.StructuredContent, " ", result.IsError)
				if got != want {
					t.Errorf("%s: got %s, want %s", tool, got, want)
				}
				if age := result.Meta[metaAge]; (tool == "robot__name") != (age == "3s") {
					t.Errorf("%s: got age %v", tool, age)
				}
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "fly"}); err == nil || !strings.Contains(err.Error(), `unknown tool "fly"`) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestProgress: progress arrives in order, with increasing numbers, and a stalled agent
// delays nobody.
func TestProgress(t *testing.T) {
	f := newServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Report(ferrule.Progress{Message: "waiting"})
		call.Report(ferrule.Progress{Message: "half", Done: 50, Total: 100})
		call.Report(ferrule.Progress{Message: "less", Done: 40, Total: 100})
		call.Report(ferrule.Progress{Message: "all", Done: 100, Total: 100})
		return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
	}, ferrule.Tool{Name: "move", Effect: ferrule.Changes})
	for _, version := range versions {
		words := make(chan string, 10)
		session := connect(t, f, version, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
				words <- fmt.Sprint(req.Params.ProgressToken, " ", req.Params.Progress, " ", req.Params.Message)
			},
		})
		params := &mcp.CallToolParams{Name: "robot__move", Meta: mcp.Meta{"progressToken": "t"}}
		if _, err := session.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"t 0 waiting", "t 50 half", "t 100 all"} {
			select {
			case got := <-words:
				if got != want {
					t.Errorf("%s: got %s, want %s", version, got, want)
				}
			case <-time.After(wait.Ample):
				t.Fatalf("%s: got nothing, want %s", version, want)
			}
		}
	}
	silent := &reporter{messages: make(chan ferrule.Progress, 1)}
	for range 1000 {
		silent.report(ferrule.Progress{Message: "nobody reads this"})
	}
}

func TestPaged(t *testing.T) {
	var all []string
	for i := range 2*pageSize + 1 {
		all = append(all, fmt.Sprintf("%04d", i))
	}
	var got []string
	cursor, pages := "", 0
	for {
		page, next, err := paged(all, func(s string) string { return s }, cursor, 0)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		pages++
		if next == "" {
			break
		}
		cursor = next
	}
	if pages != 3 || strings.Join(got, " ") != strings.Join(all, " ") {
		t.Errorf("%d entries in %d pages", len(got), pages)
	}
	if _, _, err := paged(all, func(s string) string { return s }, "!", 0); err == nil {
		t.Error("an invalid cursor was accepted")
	}
	if page, _, err := paged([]string{}, func(s string) string { return s }, "", 0); err != nil || page == nil {
		t.Errorf("an empty list is %v, %v", page, err)
	}
}

// TestInstructions: instructions are short: a token is about four characters.
func TestInstructions(t *testing.T) {
	f := newServer(t, nil)
	for _, device := range []string{"", "robot"} {
		if text := f.viewAt(device).instructions(f.parts.Catalog.All()); len(text) > 4*300 || len(text) < 200 {
			t.Errorf("%d characters: %s", len(text), text)
		}
	}
	talks := newServerOf(t, nil, &ferrule.Manifest{Instructions: "Home the arm first. " + strings.Repeat("x", 3000)})
	if text := talks.viewAt("robot").instructions(talks.parts.Catalog.All()); len(text) > 4*300+maxDeviceInstructions || !strings.Contains(text, "says about itself: Home the arm first.") {
		t.Errorf("%d characters: %s", len(text), text)
	}
	measures, _ := withMeter(t)
	if text := measures.viewAt("").instructions(measures.parts.Catalog.All()); len(text) > 4*300 || !strings.Contains(text, "gateway__plot") {
		t.Errorf("%d characters: %s", len(text), text)
	}
	for _, v := range []*view{f.viewAt(""), measures.viewAt("robot")} { // nothing is recorded, or the view has only one device
		if text := v.instructions(v.server.parts.Catalog.All()); strings.Contains(text, "gateway__plot") {
			t.Errorf("%s", text)
		}
	}
	if f.viewAt("nobody") != nil {
		t.Error("an unknown device has a view")
	}
}

func TestGuard(t *testing.T) {
	f := newServer(t, nil)
	f.SetHosts([]string{"ferrule.example.com"})
	served := f.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, test := range []struct {
		host, origin string
		code         int
	}{
		{"127.0.0.1:3377", "", 200},
		{"localhost:3377", "http://localhost:3377", 200},
		{"[::1]:3377", "http://[::1]:3377", 200},
		{"ferrule.example.com", "https://ferrule.example.com", 200},
		{"FERRULE.example.com:8443", "https://FERRULE.example.com:8443", 200},
		{"ferrule.example.com", "http://evil.example.com", 403},
		{"ferrule.example.com.evil.example.com", "", 403},
		{"evil.example.com", "", 403},
		{"127.0.0.1.evil.example.com", "", 403},
		{"127.0.0.1:3377", "http://evil.example.com", 403},
		{"127.0.0.1:3377", "http://127.0.0.1:8080", 403},
		{"127.0.0.1:3377", "null", 403},
	} {
		for _, method := range []string{"GET", "POST"} {
			r := httptest.NewRequest(method, "/mcp", nil)
			r.Host = test.host
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			local := httptest.NewServer(nil)
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local.Listener.Addr()))
			local.Close()
			w := httptest.NewRecorder()
			if served.ServeHTTP(w, r); w.Code != test.code {
				t.Errorf("%s %s from %q: %d", method, test.host, test.origin, w.Code)
			}
		}
	}
}
