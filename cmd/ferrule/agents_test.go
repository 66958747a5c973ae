package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// The versions of MCP: with sessions, and without.
const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

var mcpVersions = []string{legacy, modern}

// url returns an address of the gateway's web server.
func (g *testGateway) url(path string) string { return "http://" + g.Addr() + path }

func simConfig() sim.Config { return sim.Config{} }

// testAgent is a connected agent that uses the official client.
type testAgent struct {
	*mcp.ClientSession
	t    testing.TB
	name string
	// The notifications: of changed lists, of progress, and of changed resources.
	tools, resources chan time.Time
	progress         chan *mcp.ProgressNotificationParams
	updates          chan string
}

// dialAgent connects an agent over HTTP until the test ends.
func dialAgent(t testing.TB, g *testGateway, mcpVersion, path string) *testAgent {
	t.Helper()
	return connectAgent(t, mcpVersion, path, &mcp.StreamableClientTransport{Endpoint: g.url(path)})
}

// pipeAgent connects an agent over stdio.
func pipeAgent(t testing.TB, g *testGateway, mcpVersion string) *testAgent {
	t.Helper()
	return pipeTo(t, mcpVersion, g.Agents.Stdio)
}

// serveStdio serves an agent on a pair of streams.
type serveStdio func(context.Context, io.ReadCloser, io.WriteCloser) error

// pipeTo connects an agent to a stdio server through pipes.
func pipeTo(t testing.TB, mcpVersion string, serve serveStdio) *testAgent {
	t.Helper()
	return connectAgent(t, mcpVersion, "stdio", pipeTransport(t, serve))
}

// pipeTransport leads to a stdio server until the test ends.
func pipeTransport(t testing.TB, serve serveStdio) mcp.Transport {
	t.Helper()
	ours, theirs := newPipe(), newPipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, theirs.Reader, ours.Writer) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("standard input and output: %v", err)
		}
	})
	return &mcp.IOTransport{Reader: ours.Reader, Writer: theirs.Writer}
}

type pipe struct {
	Reader *io.PipeReader
	Writer *io.PipeWriter
}

func newPipe() pipe {
	r, w := io.Pipe()
	return pipe{r, w}
}

func connectAgent(t testing.TB, mcpVersion, where string, transport mcp.Transport) *testAgent {
	t.Helper()
	return connectAgentWith(t, mcpVersion, where, transport, func(*mcp.ClientOptions) {})
}

// connectAgentWith connects an agent with more client options.
func connectAgentWith(t testing.TB, mcpVersion, where string, transport mcp.Transport, more func(*mcp.ClientOptions)) *testAgent {
	t.Helper()
	a := &testAgent{
		t: t, name: mcpVersion + " at " + where,
		tools: make(chan time.Time, 1000), resources: make(chan time.Time, 1000),
		progress: make(chan *mcp.ProgressNotificationParams, 1000), updates: make(chan string, 1000),
	}
	options := &mcp.ClientOptions{
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { a.tools <- time.Now() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { a.resources <- time.Now() },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			a.progress <- r.Params
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { a.updates <- r.Params.URI },
	}
	more(options)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: mcpVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != mcpVersion {
		t.Fatalf("%s speaks %s", a.name, got)
	}
	a.ClientSession = session
	return a
}

// list returns the names of all tools that the agent sees.
func (a *testAgent) list() []string {
	a.t.Helper()
	names, err := a.tryList()
	if err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
	return names
}

func (a *testAgent) tryList() (names []string, err error) {
	for tool, err := range a.Tools(context.Background(), nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

// lists reports whether a tool with a prefix is in the list.
func (a *testAgent) lists(prefix string) bool {
	a.t.Helper()
	return slices.ContainsFunc(a.list(), func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// uris returns the URIs of all resources that the agent sees.
func (a *testAgent) uris() []string {
	a.t.Helper()
	var uris []string
	for resource, err := range a.Resources(context.Background(), nil) {
		if err != nil {
			a.t.Fatalf("%s: %v", a.name, err)
		}
		uris = append(uris, resource.URI)
	}
	return uris
}

// use calls a tool with a progress token and returns the outcome.
func (a *testAgent) use(ctx context.Context, tool, args string) (*agentOutcome, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)}
	params.SetProgressToken("about " + tool)
	return a.told(ctx, params)
}

// told calls a tool and returns the outcome.
func (a *testAgent) told(ctx context.Context, params *mcp.CallToolParams) (*agentOutcome, error) {
	result, err := a.CallTool(ctx, params)
	if err != nil {
		return nil, err
	}
	told := &agentOutcome{result: result, isError: result.IsError}
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			told.text += text.Text
		}
	}
	if about, ok := result.Meta["ferrule/error"].(map[string]any); ok {
		code, _ := about["code"].(string)
		told.code = ferrule.Code(code)
		told.mayHaveRun, _ = about["may_have_run"].(bool)
	}
	return told, nil
}

// agentOutcome is the outcome of a call as an agent sees it.
type agentOutcome struct {
	result     *mcp.CallToolResult
	isError    bool
	text       string
	code       ferrule.Code
	mayHaveRun bool
}

// mustUse calls a tool that must succeed, and decodes its answer.
func (a *testAgent) mustUse(tool, args string, out any) {
	a.t.Helper()
	told, err := a.use(context.Background(), tool, args)
	if err != nil || told.isError {
		a.t.Fatalf("%s: %s %s: %+v, %v", a.name, tool, args, told, err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal([]byte(told.text), out); err != nil {
		a.t.Fatalf("%s: %s %s: %s", a.name, tool, args, told.text)
	}
}

// outcomes returns the journal's outcomes of the calls of a tool.
func (g *testGateway) outcomes(device, tool string) []ferrule.Entry {
	g.t.Helper()
	var all []ferrule.Entry
	err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Outcome && e.Device == device && e.Tool == tool {
			all = append(all, e)
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}

// accept accepts what a device has changed, as a person does.
func (g *testGateway) accept(device string) error {
	_, err := g.Pipeline.Handle(context.Background(), &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna"}, Device: ferrule.GatewayID, Tool: "accept_device",
		Args: fmt.Appendf(nil, `{"device":%q,"kind":%q}`, device, g.device(device).Offered),
	})
	return err
}

// acceptAll accepts each change of a device, until the test ends.
func (g *testGateway) acceptAll(t *testing.T, device string) {
	for ctx := t.Context(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if g.device(device).Waiting > 0 {
			g.accept(device) // it may have changed again
		}
	}
}

// rawAgent is an agent over bare HTTP.
type rawAgent struct {
	t          testing.TB
	url        string
	mcpVersion string
	token      string
	session    string // of the legacy version of MCP
}

// hello is the first request of an agent of the legacy version of MCP.
var hello = map[string]any{
	"protocolVersion": legacy, "clientInfo": map[string]any{"name": "raw", "version": "1"}, "capabilities": map[string]any{},
}

// newRawAgent connects with a version of MCP.
func newRawAgent(t testing.TB, url, mcpVersion, token string) *rawAgent {
	t.Helper()
	a := &rawAgent{t: t, url: url, mcpVersion: mcpVersion, token: token}
	if mcpVersion == modern {
		return a
	}
	resp, _ := a.ask("initialize", hello)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("initialize: %s", resp.Status)
	}
	a.session = resp.Header.Get("Mcp-Session-Id")
	return a
}

// request returns a POST with the headers of its version of MCP.
func (a *rawAgent) request(method string, body io.Reader) *http.Request {
	a.t.Helper()
	req, err := http.NewRequest(http.MethodPost, a.url, body)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	if a.session != "" {
		req.Header.Set("Mcp-Session-Id", a.session)
		req.Header.Set("Mcp-Protocol-Version", legacy)
	}
	if a.mcpVersion == modern {
		req.Header.Set("Mcp-Protocol-Version", modern)
		req.Header.Set("Mcp-Method", method)
	}
	return req
}

// message returns a request as JSON-RPC.
func (a *rawAgent) message(method string, params map[string]any) []byte {
	a.t.Helper()
	if a.mcpVersion == modern {
		if params == nil {
			params = make(map[string]any)
		}
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "raw", "version": "1"},
		}
	}
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		a.t.Fatal(err)
	}
	return data
}

// ask makes a request and returns the response.
func (a *rawAgent) ask(method string, params map[string]any) (*http.Response, []byte) {
	a.t.Helper()
	req := a.request(method, bytes.NewReader(a.message(method, params)))
	if name, ok := params["name"].(string); ok {
		req.Header.Set("Mcp-Name", name)
	}
	return a.do(req)
}

// do sends a request and returns the last message of the response.
func (a *rawAgent) do(req *http.Request) (*http.Response, []byte) {
	a.t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		lines := bufio.NewScanner(bytes.NewReader(body))
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				body = bytes.Clone(data)
			}
		}
	}
	return resp, body
}

// result returns the result in a message.
func (a *rawAgent) result(method string, params map[string]any) json.RawMessage {
	a.t.Helper()
	resp, body := a.ask(method, params)
	var message struct{ Result json.RawMessage }
	if err := json.Unmarshal(body, &message); err != nil || message.Result == nil {
		a.t.Fatalf("%s: %s: %s %s", a.mcpVersion, method, resp.Status, body)
	}
	return message.Result
}

// crowd adds many devices to the fleet. They answer at once.
func (g *testGateway) crowd(devices, kinds int) {
	manifests := make([]*ferrule.Manifest, kinds)
	ids := make([]ferrule.Kind, kinds)
	for k := range manifests {
		m := &ferrule.Manifest{Model: fmt.Sprintf("sensor-%d", k), Pins: []ferrule.Pin{{Number: 34, Abilities: []string{"summary"}}}}
		for n := range 5 {
			m.Tools = append(m.Tools, ferrule.Tool{
				Name: fmt.Sprintf("read_%d", n), Text: "Tell what channel it measures", Effect: ferrule.Reads,
				Input: json.RawMessage(`{"properties":{"channel":{"type":"integer"}},"type":"object"}`),
			})
		}
		kind, err := m.Kind()
		if err != nil {
			g.t.Fatal(err)
		}
		manifests[k], ids[k] = m, kind
	}
	answer := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Value: json.RawMessage(fmt.Sprintf(`{"device":%q}`, call.Device))}, nil
	}
	for i := range devices {
		k := i % kinds
		g.Fleet.Put(&ferrule.Device{
			ID: fmt.Sprintf("sensor-%05d", i), Kind: ids[k], Model: manifests[k].Model, Transport: "test", Address: fmt.Sprint(i),
			State: ferrule.StateOnline, Since: time.Now(), Trust: ferrule.TrustAdopted,
		}, manifests[k], answer)
	}
}

// TestListSizes checks that a tool list grows with Kinds and not with devices, stays
// within a few kilobytes, and that each of ten thousand devices can be found and called.
func TestListSizes(t *testing.T) {
	few, many, kinds := startGateway(t, nil), startGateway(t, nil), startGateway(t, nil)
	few.crowd(50, 1)
	many.crowd(10_000, 1)
	kinds.crowd(10_000, 100)
	for _, mcpVersion := range mcpVersions {
		size := func(g *testGateway) int {
			return len(newRawAgent(t, g.url("/mcp"), mcpVersion, "").result("tools/list", nil))
		}
		atFew, atMany, atKinds := size(few), size(many), size(kinds)
		t.Logf("%s: tools/list has %d bytes for 50 devices, %d for 10,000, and %d for 10,000 of 100 Kinds", mcpVersion, atFew, atMany, atKinds)
		if diff := atMany - atFew; diff > 64 || diff < -64 {
			t.Errorf("%s: the list has %d bytes for 50 devices and %d for 10,000", mcpVersion, atFew, atMany)
		}
		if most := max(atFew, atMany, atKinds); most > 8448 { // two tools of it have panels
			t.Errorf("%s: the list has %d bytes", mcpVersion, most)
		}
		findOneOfMany(dialAgent(t, many, mcpVersion, "/mcp"))
		findOneOfMany(dialAgent(t, kinds, mcpVersion, "/mcp"))
	}
}

// findOneOfMany finds a device among ten thousand and calls it in each possible way.
func findOneOfMany(a *testAgent) {
	a.t.Helper()
	const device = "sensor-04711"
	var devices struct {
		Devices []struct{ ID string }
		Total   int
	}
	a.mustUse("gateway__find_devices", `{"query":"sensor-04711"}`, &devices)
	if len(devices.Devices) == 0 || devices.Devices[0].ID != device {
		a.t.Errorf("%s: found %+v", a.name, devices)
	}
	var tools struct{ Tools []struct{ Name string } }
	a.mustUse("gateway__find_tools", `{"query":"read_0","device":"sensor-04711"}`, &tools)
	if len(tools.Tools) == 0 || tools.Tools[0].Name != device+"__read_0" {
		a.t.Fatalf("%s: found %+v", a.name, tools)
	}
	var described struct{ Name string }
	a.mustUse("gateway__describe_tool", `{"name":"sensor-04711__read_0"}`, &described)
	a.mustUse("gateway__find_tools", `{"query":"read_0 sensor-11"}`, &tools)
	folded := tools.Tools[0].Name
	if !strings.Contains(folded, "--") {
		a.t.Fatalf("%s: found %+v", a.name, tools)
	}
	for tool, args := range map[string]string{
		device + "__read_0":  `{"channel":1}`,
		"gateway__call_tool": `{"name":"sensor-04711__read_0","arguments":{"channel":1}}`,
		folded:               `{"device":"sensor-04711","channel":1}`,
	} {
		var got struct{ Device string }
		if a.mustUse(tool, args, &got); got.Device != device {
			a.t.Errorf("%s: %s was answered by %q", a.name, tool, got.Device)
		}
	}
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("sensor-%05d", 4700+i))
	}
	args, err := json.Marshal(map[string]any{"tool": "read_0", "devices": ids})
	if err != nil {
		a.t.Fatal(err)
	}
	var done struct{ Succeeded, Failed int }
	if a.mustUse("gateway__call_many", string(args), &done); done.Succeeded != 100 || done.Failed != 0 {
		a.t.Errorf("%s: call_many: %+v", a.name, done)
	}
	// The client may pass it on after the answer.
	wait.For(a.t, a.name+" is told how it gets on", func() bool { return len(a.progress) > 0 })
}

// intended counts the intents of a tool in the journal.
func intended(t testing.TB, g *testGateway, device, tool string) int {
	t.Helper()
	n := 0
	err := journal.Read(g.data, func(e ferrule.Entry) error {
		if e.Phase == ferrule.Intent && e.Device == device && e.Tool == tool {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
