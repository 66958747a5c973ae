package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// versions are the protocol versions that tests use.
var versions = []string{"2025-11-25", "2026-07-28"}

// inVersions runs a test in each protocol version.
func inVersions(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

// serve serves a device until the test ends, and returns its URL.
func serve(t *testing.T, d *mcpserver.Device) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return "http://" + ln.Addr().String() + "/mcp"
}

// dial connects the official client with a protocol version.
func dial(t *testing.T, url, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.StreamableClientTransport{Endpoint: url}, version, options)
}

func connect(t *testing.T, transport mcp.Transport, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connectClient(t, mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options), transport, version)
}

func connectClient(t *testing.T, client *mcp.Client, transport mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("got protocol version %s, want %s", got, version)
	}
	return session
}

// call calls a tool, and returns its result as JSON.
func call(t *testing.T, session *mcp.ClientSession, tool string, args any) string {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// code returns the code of a request's error.
func code(err error) int64 {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

type moving struct {
	Steps int `json:"steps" jsonschema:"how many"`
}

type moved struct {
	Position int `json:"position"`
}

// robot returns a device with one tool of each kind.
func robot() *thing.Device {
	d := thing.New("robot", "1.2.3")
	position := 0
	thing.Tool(d, "move", "Move some steps", func(_ context.Context, in moving) (moved, error) {
		position += in.Steps
		return moved{position}, nil
	}, thing.WithSchema(json.RawMessage(`{"type":"object","properties":{"steps":{"type":"integer","maximum":10}},"required":["steps"]}`)))
	thing.Tool(d, "where", "Tell the position", func(context.Context, struct{}) (moved, error) { return moved{position}, nil },
		thing.Reads(), thing.Titled("Where it is"))
	thing.Tool(d, "look", "Take a picture", func(context.Context, struct{}) (thing.Image, error) {
		return thing.Image{MIME: "image/png", Data: []byte("PNG")}, nil
	})
	thing.Tool(d, "name", "Tell its name", func(context.Context, struct{}) (string, error) { return "Robbie", nil })
	thing.Tool(d, "fail", "Fail", func(context.Context, struct{}) (int, error) { return 0, errors.New("out of oil") })
	thing.Tool(d, "panic", "Panic", func(context.Context, struct{}) (int, error) { panic("short circuit") })
	thing.Tool(d, "reboot", "For people", func(context.Context, struct{}) (int, error) { return 0, nil }, thing.UserOnly())
	return d
}

// TestTools: tools are listed and called in all protocol versions.
func TestTools(t *testing.T) {
	url := serve(t, mcpserver.New(robot(), mcpserver.Config{Title: "A robot", Instructions: "Mind the cat.", Icons: []mcpserver.Icon{{URL: "https://example.com/robot.png", MIME: "image/png"}}}))
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		about := session.InitializeResult()
		if about.Instructions != "Mind the cat." || about.ServerInfo.Title != "A robot" || len(about.ServerInfo.Icons) != 1 {
			t.Errorf("got %+v", about)
		}
		list, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		tools := make(map[string]*mcp.Tool)
		for _, tool := range list.Tools {
			tools[tool.Name] = tool
		}
		if len(tools) != 6 || tools["reboot"] != nil {
			t.Errorf("%d tools", len(tools))
		}
		if where := tools["where"]; where.Title != "Where it is" || !where.Annotations.ReadOnlyHint || where.OutputSchema == nil || tools["name"].OutputSchema != nil {
			t.Errorf("got %+v", where)
		}
		for _, test := range []struct{ tool, args, want string }{
			{"move", `{"steps":0}`, `"structuredContent":{"position":`},
			{"where", `{}`, `"text":"{\"position\":`},
			{"look", `{}`, `{"type":"image","mimeType":"image/png","data":"UE5H"}`},
			{"name", `{}`, `"text":"Robbie"`},
			{"fail", `{}`, `"out of oil"}],"isError":true`},
			{"panic", `{}`, `"panic panicked: short circuit"}],"isError":true`},
		} {
			if got := call(t, session, test.tool, json.RawMessage(test.args)); !strings.Contains(got, test.want) {
				t.Errorf("%s: got %s", test.tool, got)
			}
		}
	})
}

// TestArguments: all wrong arguments are named at once, in the error of the request.
func TestArguments(t *testing.T) {
	d := thing.New("d", "1")
	thing.Tool(d, "mix", "Mix", func(context.Context, struct {
		Hot  int    `json:"hot"`
		Cold int    `json:"cold"`
		Name string `json:"name"`
	}) (bool, error) {
		return true, nil
	})
	url := serve(t, mcpserver.New(d, mcpserver.Config{}))
	inVersions(t, func(t *testing.T, version string) {
		_, err := dial(t, url, version, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "mix", Arguments: json.RawMessage(`{"hot":"x","name":5,"up":1}`)})
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams ||
			e.Message != "Bad params: cold is missing; hot must be an integer, got a string; name must be a string, got a number; up is unknown; nothing was done" ||
			string(e.Data) != `{"arguments":["cold is missing","hot must be an integer, got a string","name must be a string, got a number","up is unknown"]}` {
			t.Errorf("got %v", err)
		}
	})
}

// TestRunLogs: a program that logs says where its device is served.
func TestRunLogs(t *testing.T) {
	logged := make(chan string, 10)
	d := mcpserver.New(robot(), mcpserver.Config{Listen: ":0", Log: slog.New(slog.NewTextHandler(writer(logged), nil))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	line := <-logged
	at := regexp.MustCompile(`http://[0-9.]+:[1-9][0-9]*/mcp`).FindAllString(line, -1)
	if len(at) == 0 || !strings.HasPrefix(at[0], "http://127.0.0.1:") {
		t.Fatalf("logged %s", line)
	}
	for _, url := range at {
		if got := call(t, dial(t, url, versions[1], nil), "name", nil); !strings.Contains(got, "Robbie") {
			t.Errorf("%s: %s", url, got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// writer is an io.Writer that sends each write to a channel.
type writer chan<- string

func (w writer) Write(data []byte) (int, error) {
	w <- string(data)
	return len(data), nil
}

// TestUntried: a caller knows that nothing moved, and a model can read what was wrong.
func TestUntried(t *testing.T) {
	url := serve(t, mcpserver.New(robot(), mcpserver.Config{}))
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		for args, want := range map[string]string{
			`{"steps":11}`: "steps must be at most 10, got 11; nothing was done", `{"steps":"one"}`: "steps must be an integer, got a string", `{}`: "steps is missing",
		} {
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "move", Arguments: json.RawMessage(args)})
			if code(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", args, err)
			}
		}
		if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "fail"}); err != nil || !result.IsError || result.Meta[mcpserver.Untried] != nil {
			t.Errorf("fail: %+v, %v", result, err)
		}
		for _, name := range []string{"fly", "reboot"} {
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name}); code(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := call(t, session, "where", nil); !strings.Contains(got, `"position":0`) {
			t.Errorf("got %s", got)
		}
	})
}

// TestOneCallAtATime: calls wait for each other, a waiting call whose caller leaves is
// not made, and the running call ends with serving.
func TestOneCallAtATime(t *testing.T) {
	board := thing.New("d", "1")
	began, ended := make(chan struct{}), make(chan error, 1)
	thing.Tool(board, "work", "Work until cancelled", func(ctx context.Context, _ struct{}) (int, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	})
	moved := false
	thing.Tool(board, "move", "Move", func(context.Context, struct{}) (int, error) { moved = true; return 0, nil })
	d := mcpserver.New(board, mcpserver.Config{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, ln) }()
	session := dial(t, "http://"+ln.Addr().String()+"/mcp", versions[0], nil)
	go session.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
	<-began
	impatient, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	if _, err := session.CallTool(impatient, &mcp.CallToolParams{Name: "move"}); err == nil {
		t.Error("a waiting call was made while another ran")
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	select {
	case <-ended:
	default:
		t.Error("a tool runs after serving has ended")
	}
	if moved {
		t.Error("a call was made whose caller has left")
	}
}

// TestGuard: a page of another site is refused, by host name and by origin.
func TestGuard(t *testing.T) {
	url := serve(t, mcpserver.New(robot(), mcpserver.Config{Hosts: []string{"robot.example.com"}}))
	for _, test := range []struct {
		host, origin string
		want         int
	}{
		{"", "", http.StatusBadRequest}, // an empty request
		{"localhost:8080", "http://localhost:8080", http.StatusBadRequest},
		{"[::1]:8080", "", http.StatusBadRequest},
		{"robot.example.com", "", http.StatusBadRequest},
		// Names that a neighbor can make resolve to 127.0.0.1.
		{"robot.local:8080", "http://robot.local:8080", http.StatusForbidden},
		{"robot", "", http.StatusForbidden},
		{"192.168.1.20:8080", "", http.StatusForbidden},
		{"evil.example.com", "", http.StatusForbidden},
		{"", "http://evil.example.com", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = test.host
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
		if test.origin != "" {
			req.Header.Set("Origin", test.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("host %q, origin %q: %s", test.host, test.origin, resp.Status)
		}
	}
}

// TestGuardNetwork: names of local networks are those of a device that the network can reach.
func TestGuardNetwork(t *testing.T) {
	handler := mcpserver.New(robot(), mcpserver.Config{}).Handler()
	for host, refused := range map[string]bool{"robot.local:8080": false, "Robot.LOCAL.": false, "robot": false, "192.168.1.20:8080": false, "evil.example.com": true} {
		at := &net.TCPAddr{IP: net.IPv4(192, 168, 1, 20), Port: 8080}
		req := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, at), http.MethodPost, "/mcp", strings.NewReader(""))
		req.Host = host
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		if (answer.Code == http.StatusForbidden) != refused {
			t.Errorf("host %q: %d %s", host, answer.Code, answer.Body)
		}
	}
}

// TestSessions: the number of sessions is limited.
func TestSessions(t *testing.T) {
	url := serve(t, mcpserver.New(robot(), mcpserver.Config{Sessions: 2}))
	dial(t, url, versions[0], nil)
	second := dial(t, url, versions[0], nil)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	third := &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}
	if _, err := client.Connect(t.Context(), third, &mcp.ClientSessionOptions{ProtocolVersion: versions[0]}); err == nil {
		t.Error("a third client is connected")
	}
	second.Close()
	dial(t, url, versions[0], nil)
}
