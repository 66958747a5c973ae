package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const assistPath = "/mcp?profile=home-assistant"

// homeServer serves one device whose tools have what a profile changes.
func homeServer(t *testing.T, handle ferrule.Handler) *Server {
	t.Helper()
	return newServer(t, handle, ferrule.Tool{
		Name: "move", Effect: ferrule.Changes, Output: json.RawMessage(`{"type":"object"}`),
		Input: json.RawMessage(`{"type":"object","properties":{"far":{"type":"number","multipleOf":0.5},"n":{"type":"integer"}}}`),
	})
}

// clientAt connects a client to an address, over Streamable HTTP or HTTP+SSE.
func clientAt(t *testing.T, url, name, version string, sse bool) *mcp.ClientSession {
	t.Helper()
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url}
	if sse {
		transport = &mcp.SSEClientTransport{Endpoint: url}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil).Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// TestProfile: the profile of an address decides what a client gets, in all versions and
// transports. A client that is called like the SDK gets basic schemas, and nothing else.
func TestProfile(t *testing.T) {
	var args string
	f := homeServer(t, func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		call.Target.Tool = &ferrule.Tool{}
		args = string(call.Args)
		if call.Session != "" {
			args += " in a session"
		}
		return &ferrule.Result{Value: json.RawMessage(`{"ok":true}`), Content: []ferrule.Content{
			{Type: ferrule.TextContent, Text: "moved"}, {Type: ferrule.ImageContent, MIME: "image/png", Data: []byte("PNG")},
		}}, nil
	})
	url := serveSSE(t, f)
	for _, test := range []struct {
		name, path, version string
		sse                 bool
		schema, args        string
		output              bool
	}{
		{"a", "/mcp", "2025-11-25", false, `"multipleOf":0.5`, `{"n":"5"} in a session`, true},
		{"mcp", "/mcp", "2025-11-25", false, `In steps of 0.5.`, `{"n":5} in a session`, true},
		{"mcp", "/mcp", "2025-06-18", true, `In steps of 0.5.`, `{"n":5} in a session`, true},
		{"a", assistPath, "2025-11-25", false, `In steps of 0.5.`, `{"n":5}`, false},
		{"a", assistPath, "2026-07-28", false, `In steps of 0.5.`, `{"n":5}`, false},
		{"a", assistPath, "2024-11-05", true, `In steps of 0.5.`, `{"n":5}`, false},
		{"a", "/mcp/devices/robot?profile=home-assistant", "2024-11-05", true, `In steps of 0.5.`, `{"n":5}`, false},
	} {
		session := clientAt(t, url+test.path, test.name, test.version, test.sse)
		list, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		tool := list.Tools[len(list.Tools)-1]
		encoded, err := json.Marshal(tool.InputSchema)
		if err != nil || !strings.Contains(string(encoded), test.schema) || (tool.OutputSchema != nil) != test.output {
			t.Errorf("%+v: schemas %s and %v", test, encoded, tool.OutputSchema)
		}
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool.Name, Arguments: map[string]any{"n": "5"}})
		if err != nil || result.IsError || args != test.args {
			t.Errorf("%+v: %+v, %v; arguments %s", test, result, err, args)
			continue
		}
		picture := false
		for _, c := range result.Content {
			_, is := c.(*mcp.ImageContent)
			picture = picture || is
		}
		if picture != test.output || (result.StructuredContent != nil) != test.output || len(result.Content) != 2 {
			t.Errorf("%+v: %+v", test, result)
		}
		if strings.HasPrefix(test.path, assistPath) { // an unknown tool is a result that a model can read
			if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"}); err != nil || !result.IsError {
				t.Errorf("%+v: unknown tool: %+v, %v", test, result, err)
			}
		}
	}
	resp, err := http.Get(url + "/mcp?profile=nonsense")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown profile: %s", resp.Status)
	}
}

// TestProfileResource: an address with a profile is a resource of its own, because Home
// Assistant compares the one in the metadata with what its user typed.
func TestProfileResource(t *testing.T) {
	f := newServer(t, nil)
	f.parts.Verify, f.parts.Open, f.parts.AuthServers = resourceTokens(t).verify, closed, func(string) []string { return []string{"http://gw.example"} }
	for path, want := range map[string]string{
		assistPath: "/mcp?profile=home-assistant", "/mcp": "/mcp", "/mcp?profile=nonsense": "/mcp",
		"/mcp/devices/robot?profile=home-assistant&x=y": "/mcp/devices/robot?profile=home-assistant",
	} {
		_, header := refusalOf(f.Handler(), http.MethodPost, path, "", "")
		_, about, _ := strings.Cut(header, `resource_metadata="`)
		about, _, _ = strings.Cut(about, `"`)
		if about != "http://gw.example"+MetadataPath+want {
			t.Errorf("%s: %s", path, header)
		}
		var m metadata
		w := httptest.NewRecorder()
		f.Metadata().ServeHTTP(w, httptest.NewRequest(http.MethodGet, about, nil))
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || m.Resource != "http://gw.example"+want {
			t.Errorf("%s: %s, %v", path, w.Body, err)
		}
	}
}

// TestStillRunning: a call that takes longer than a program waits goes on. The same call by the
// same caller gets its outcome, another one is made, and the outcome is given once.
func TestStillRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		f := homeServer(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			n := calls.Add(1)
			call.Target.Tool = &ferrule.Tool{}
			select {
			case <-time.After(12 * time.Second):
			case <-ctx.Done():
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled").AfterSend()
			}
			if call.Tool == "fail" {
				return nil, ferrule.Errorf(ferrule.Failed, "stuck").AfterSend()
			}
			return &ferrule.Result{Value: json.RawMessage(`{"call":` + string(rune('0'+n)) + `}`)}, nil
		})
		v := f.viewAt("")
		as := func(name string) context.Context {
			ctx := context.WithValue(t.Context(), profileKey{}, profiles["home-assistant"])
			return context.WithValue(ctx, callerKey{}, ferrule.Principal{Role: ferrule.Agent, Name: name})
		}
		use := func(ctx context.Context, tool, args string) string {
			t.Helper()
			start := time.Now()
			result, err := v.callTool(ctx, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "robot__" + tool, Arguments: json.RawMessage(args)}})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
			var texts []string
			for _, c := range result.(*mcp.CallToolResult).Content {
				texts = append(texts, c.(*mcp.TextContent).Text)
			}
			return strings.Join(texts, " | ")
		}
		const still = "move of robot is still running, after 4 seconds. It goes on, and its outcome is not known yet. Call it again with the same arguments to wait for the outcome: that does not start it a second time."
		for i, want := range []string{still, strings.ReplaceAll(still, "4 seconds", "8 seconds")} {
			if got := use(as("assist"), "move", `{"n":1,"far":2}`); got != want {
				t.Errorf("%d: %s", i, got)
			}
		}
		if got := use(as("other"), "move", `{"n":1,"far":2}`); got != still {
			t.Errorf("another caller: %s", got)
		}
		if got := use(as("assist"), "move", `{"far":2,"n":"1"}`); got != `This is the outcome of the call that began 12 seconds ago. Nothing was called now. | {"call":1}` {
			t.Errorf("the outcome: %s", got)
		}
		if got := use(as("assist"), "move", `{"n":1,"far":2}`); got != still || calls.Load() != 3 {
			t.Errorf("%d calls, then %s", calls.Load(), got)
		}
		time.Sleep(12*time.Second + keepOutcome)
		synctest.Wait()
		if n := len(f.running.calls); n != 0 {
			t.Errorf("%d calls are kept", n)
		}
		if got := use(as("assist"), "fail", `{}`); !strings.Contains(got, "still running") {
			t.Errorf("a failing call: %s", got)
		}
		time.Sleep(10 * time.Second)
		if got := use(as("assist"), "fail", `{}`); !strings.Contains(got, "stuck") || !strings.Contains(got, "partly done") {
			t.Errorf("its failure: %s", got)
		}
		// A program that leaves before it was answered cancels its call.
		ctx, leave := context.WithTimeout(as("assist"), time.Second)
		defer leave()
		before := time.Now()
		if got := use(ctx, "move", `{"n":7}`); !strings.Contains(got, "deadline exceeded") || time.Since(before) > 2*time.Second {
			t.Errorf("after leaving: %s", got)
		}
	})
}

// TestStillRunningAgain: the outcome of an earlier call is not given to a caller that means
// another one.
func TestStillRunningAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []string
		f := newServer(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			mu.Lock()
			calls = append(calls, call.Tool)
			mu.Unlock()
			call.Target.Tool = &ferrule.Tool{}
			time.Sleep(6 * time.Second)
			return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
		}, ferrule.Tool{Name: "open", Effect: ferrule.Changes}, ferrule.Tool{Name: "halt", Effect: ferrule.Changes, Idempotent: true}, ferrule.Tool{Name: "look", Effect: ferrule.Reads})
		v := f.viewAt("")
		ctx := context.WithValue(t.Context(), profileKey{}, profiles["home-assistant"])
		ctx = context.WithValue(ctx, callerKey{}, ferrule.Principal{Role: ferrule.Agent, Name: "assist"})
		use := func(name string, want int) {
			t.Helper()
			if _, err := v.callTool(ctx, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: name, Arguments: json.RawMessage(`{}`)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if len(calls) != want {
				t.Errorf("after %s there were %d calls: %v", name, len(calls), calls)
			}
		}
		use("robot__halt", 1)
		use("robot__look", 2)
		use("robot__halt", 2) // its outcome: nothing was changed in between
		use("robot__halt", 3)
		use("robot__open", 4)
		use("robot__halt", 5) // what is meant is the halt of what was opened
		use("robot__open", 5) // its outcome: a second time could do harm
		stop := ferrule.GatewayID + "__" + ferrule.StopTool
		use(stop, 6)
		use(stop, 7)
	})
}
