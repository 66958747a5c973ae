package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// verdictTable is a policy and its verdicts: p permits, a asks, f forbids. Who is a row
// with each device, and what is a column.
type verdictTable struct {
	name   string
	policy config.Policy
	rules  string // in a file
	rows   string
}

// The agents of the table. Each has a token, a name that it gives itself over stdio, and an
// endpoint, so groups and presets name it three times.
var verdictAgents = []string{"guest", "worker", "night", "boss"}

// everywhere returns the names of agents on every path.
func everywhere(agents ...string) (names []string) {
	for _, a := range agents {
		names = append(names, a, "local/"+a, "endpoint:"+a)
	}
	return names
}

func presetsOf(presets map[string]string) map[string]string {
	all := make(map[string]string)
	for agent, preset := range presets {
		for _, name := range everywhere(agent) {
			all[name] = preset
		}
	}
	return all
}

var verdictTables = []verdictTable{
	{
		name:   "presets",
		policy: config.Policy{Preset: "open", Agents: presetsOf(map[string]string{"guest": "read-only", "worker": "careful", "night": "careful"})},
		rows: `
			#             look low high unlock log key greet watch
			guest  door1  p    f   f    f      p   p   p     p
			guest  door2  p    f   f    f      p   p   p     p
			guest  lamp   p    f   f    f      p   p   p     p
			worker door1  p    p   p    a      p   p   p     p
			worker door2  p    p   p    a      p   p   p     p
			worker lamp   p    p   p    a      p   p   p     p
			night  door1  p    p   p    a      p   p   p     p
			night  door2  p    p   p    a      p   p   p     p
			night  lamp   p    p   p    a      p   p   p     p
			boss   door1  p    p   p    p      p   p   p     p
			boss   door2  p    p   p    p      p   p   p     p
			boss   lamp   p    p   p    p      p   p   p     p
			person door1  p    p   p    p      p   p   p     p
			person door2  p    p   p    p      p   p   p     p
			person lamp   p    p   p    p      p   p   p     p`,
	},
	{
		name: "rules",
		policy: config.Policy{
			Preset: "careful", Agents: presetsOf(map[string]string{"guest": "read-only"}),
			Groups: map[string][]string{"guests": everywhere("guest"), "nights": everywhere("night")},
		},
		rules: `
			forbid (principal in Group::"nights", action, resource in Device::"door1");
			forbid (principal in Group::"nights", action == Action::"call", resource)
			when { resource.name == "set" && context.args.level > 50 && !context.approved };
			permit (principal in Group::"guests", action == Action::"call", resource in Label::"room=hall")
			when { resource.name == "set" && context.args.level <= 50 };
			forbid (principal, action == Action::"read", resource) when { resource.name == "file:///key" };
			forbid (principal is Person, action == Action::"call", resource == Tool::"lamp/unlock")
			unless { context.approved };`,
		rows: `
			#             look low high unlock log key greet watch
			guest  door1  p    f   f    f      p   f   p     p
			guest  door2  p    p   f    f      p   f   p     p
			guest  lamp   p    f   f    f      p   f   p     p
			worker door1  p    p   p    a      p   f   p     p
			worker door2  p    p   p    a      p   f   p     p
			worker lamp   p    p   p    a      p   f   p     p
			night  door1  f    f   f    f      f   f   f     f
			night  door2  p    p   a    a      p   f   p     p
			night  lamp   p    p   a    a      p   f   p     p
			boss   door1  p    p   p    a      p   f   p     p
			boss   door2  p    p   p    a      p   f   p     p
			boss   lamp   p    p   p    a      p   f   p     p
			person door1  p    p   p    p      p   f   p     p
			person door2  p    p   p    p      p   f   p     p
			person lamp   p    p   p    a      p   f   p     p`,
	},
	{
		name: "read-only",
		policy: config.Policy{
			Preset: "read-only",
			Groups: map[string][]string{"staff": everywhere("boss"), "workers": everywhere("worker")},
		},
		rules: `
			permit (principal in Group::"staff", action == Action::"call", resource in Device::"lamp");
			permit (principal in Group::"workers", action == Action::"call", resource) when { resource.effect == "changes" };
			forbid (principal in Group::"workers", action, resource in Device::"lamp") unless { context.approved };`,
		rows: `
			#             look low high unlock log key greet watch
			guest  door1  p    f   f    f      p   p   p     p
			guest  door2  p    f   f    f      p   p   p     p
			guest  lamp   p    f   f    f      p   p   p     p
			worker door1  p    p   p    f      p   p   p     p
			worker door2  p    p   p    f      p   p   p     p
			worker lamp   a    a   a    f      a   a   a     a
			night  door1  p    f   f    f      p   p   p     p
			night  door2  p    f   f    f      p   p   p     p
			night  lamp   p    f   f    f      p   p   p     p
			boss   door1  p    f   f    f      p   p   p     p
			boss   door2  p    f   f    f      p   p   p     p
			boss   lamp   p    p   p    p      p   p   p     p
			person door1  p    p   p    p      p   p   p     p
			person door2  p    p   p    p      p   p   p     p
			person lamp   p    p   p    p      p   p   p     p`,
	},
}

// cell is one combination of the table.
type cell struct {
	who, device, what string
	want              ferrule.Ruling
}

func (v verdictTable) cells(t *testing.T) (all []cell) {
	t.Helper()
	var columns []string
	for line := range strings.Lines(v.rows) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "#":
			columns = words[1:]
		case len(words) != len(columns)+2:
			t.Fatalf("%s: %q", v.name, line)
		default:
			for i, letter := range words[2:] {
				ruling := map[string]ferrule.Ruling{"p": ferrule.Permit, "a": ferrule.Ask, "f": ferrule.Forbid}[letter]
				all = append(all, cell{words[0], words[1], columns[i], ruling})
			}
		}
	}
	return all
}

// trial is one cell on one path. The call has all that identifies it.
type trial struct {
	path string
	cell
}

// call returns the operation, the name and the arguments of a trial.
func (a trial) call() (op ferrule.Operation, name string, args map[string]any) {
	note := fmt.Sprint(a)
	switch a.what {
	case "look", "unlock":
		return ferrule.CallTool, a.what, map[string]any{"note": note}
	case "low":
		return ferrule.CallTool, "set", map[string]any{"note": note, "level": 10}
	case "high":
		return ferrule.CallTool, "set", map[string]any{"note": note, "level": 90}
	case "greet":
		return ferrule.GetPrompt, "greet", map[string]any{}
	case "watch":
		return ferrule.Subscribe, watchedURI + strings.ReplaceAll(a.path, " ", "_"), nil
	}
	return ferrule.ReadResource, "file:///" + a.what, nil
}

// watchedURI is the beginning of the URI of a subscription. Its end is the path: a device
// is called once for the same caller.
const watchedURI = "file:///watched/"

// guardedHouse is three devices, two of one Kind. It counts the calls of their tools by note.
type guardedHouse struct {
	urls map[string]string

	mu   sync.Mutex
	runs map[string]int
}

func newGuardedHouse(t *testing.T) *guardedHouse {
	h := &guardedHouse{urls: make(map[string]string), runs: make(map[string]int)}
	for device, model := range map[string]string{"door1": "door", "door2": "door", "lamp": "lamp"} {
		accept := func(context.Context, *mcp.SubscribeRequest) error { return nil }
		s := mcp.NewServer(&mcp.Implementation{Name: model, Version: "1"}, &mcp.ServerOptions{
			SubscribeHandler: accept, UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		})
		no := false
		for name, hints := range map[string]*mcp.ToolAnnotations{"look": {ReadOnlyHint: true}, "set": {DestructiveHint: &no}, "unlock": {}} {
			if name == "unlock" {
				yes := true
				hints.DestructiveHint = &yes
			}
			s.AddTool(&mcp.Tool{
				Name: name, Description: name + " it", Annotations: hints,
				InputSchema: json.RawMessage(`{"type":"object","properties":{"note":{"type":"string"},"level":{"type":"integer"}}}`),
			}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ Note string }
				if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
					return nil, err
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				h.runs[in.Note]++
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			})
		}
		for _, uri := range []string{"file:///log", "file:///key"} {
			s.AddResource(&mcp.Resource{URI: uri, Name: uri}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "text"}}}, nil
			})
		}
		s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
		})
		server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
		t.Cleanup(server.Close)
		h.urls[device] = server.URL
	}
	return h
}

// ran returns how often the tool of a trial ran.
func (h *guardedHouse) ran(a trial) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[fmt.Sprint(a)]
}

// guarded adds the devices and a policy to a config.
func (h *guardedHouse) guarded(t *testing.T, v verdictTable) func(*config.Config) {
	t.Helper()
	dir := t.TempDir()
	if v.rules != "" {
		if err := os.WriteFile(filepath.Join(dir, "house.cedar"), []byte(v.rules), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(c *config.Config) {
		for device, url := range h.urls {
			c.Devices.HTTP = append(c.Devices.HTTP, config.HTTPDevice{URL: url, Name: device})
		}
		c.Policy, c.Policy.Dir = v.policy, dir
		c.Polling.Enabled, c.History.Enabled, c.Calls.Refused = false, false, 0
		c.Approvals.Wait = config.Interval(wait.Ample)
	}
}

// verdictTokens adds the tokens of the agents.
func verdictTokens(c *config.Config) {
	c.Listen, c.Calls.Refused, c.Agents.OpenLoopback = "127.0.0.1:0", 0, false
	for _, name := range verdictAgents {
		c.Auth.Tokens = append(c.Auth.Tokens, config.Token{Name: name, Token: ferrule.Secret(tokenOf(name))})
	}
}

func tokenOf(agent string) string { return "token-of-the-agent-" + agent }

// label puts one device into the hall.
func (g *testGateway) label() {
	g.t.Helper()
	for _, device := range []string{"door1", "door2", "lamp"} {
		g.online(device)
	}
	if _, err := g.Dock.Label("door2", map[string]string{"room": "hall"}, nil); err != nil {
		g.t.Fatal(err)
	}
}

// fits reports whether the outcome of a trial is what its cell wants. A call that asks waits
// until denyAll denies it.
func (a trial) fits(outcome error) bool {
	return (outcome == nil) == (a.want == ferrule.Permit) &&
		(outcome != nil && strings.Contains(outcome.Error(), " was denied by person:")) == (a.want == ferrule.Ask)
}

// denyAll denies every call that waits for approval at a gateway, until ctx ends.
func denyAll(ctx context.Context, t *testing.T, data string) {
	socket, err := control.SocketPath(data)
	if err != nil {
		t.Error(err)
		return
	}
	client := control.NewClient(socket)
	defer client.Close()
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		var waiting builtin.ListApprovalsOutput
		result, err := client.Builtin(ctx, "list_approvals", builtin.ListApprovalsInput{})
		if err == nil {
			err = json.Unmarshal(result.Value, &waiting)
		}
		for _, a := range waiting.Approvals {
			if _, failed := client.Builtin(ctx, "answer_approval", builtin.AnswerApprovalInput{ID: a.ID}); failed != nil {
				err = failed
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("denying: %v", err)
		}
	}
}

// try makes a trial, and returns an error unless the call succeeded.
type try func(ctx context.Context, a trial) error

// agentOn connects the official client under a name. Its version says which path it
// takes, so that the journal shows it.
func agentOn(t *testing.T, name, path, mcpVersion string, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: path}, nil)
	session, err := client.Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: mcpVersion})
	if err != nil {
		t.Fatalf("%s over %s: %v", name, path, err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// overMCP makes trials over a session. If the view is of one device, names and URIs are
// the device's own.
func overMCP(session *mcp.ClientSession, oneDevice bool) try {
	return func(ctx context.Context, a trial) error {
		op, name, args := a.call()
		tool, uri := a.device+"__"+name, "ferrule://devices/"+a.device+"/resources/"+name
		if oneDevice {
			tool, uri = name, name
		}
		switch op {
		case ferrule.GetPrompt:
			_, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: tool})
			return err
		case ferrule.ReadResource:
			_, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
			return err
		case ferrule.Subscribe:
			return session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
		}
		return callOver(ctx, session, tool, args)
	}
}

// callOver calls a tool over a session.
func callOver(ctx context.Context, session *mcp.ClientSession, tool string, args map[string]any) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err
	}
	if result.IsError {
		return errors.New(result.Content[0].(*mcp.TextContent).Text)
	}
	return nil
}

// toolsOnly limits trials to tools.
func toolsOnly(try func(ctx context.Context, a trial, tool string, args map[string]any) error) try {
	return func(ctx context.Context, a trial) error {
		op, tool, args := a.call()
		if op != ferrule.CallTool {
			return errNoSuchPath
		}
		return try(ctx, a, tool, args)
	}
}

// errNoSuchPath is returned for a cell that a path does not have.
var errNoSuchPath = errors.New("no such path")

// foldedNames calls tools by the names that devices of a Kind share.
func foldedNames(g *testGateway, session *mcp.ClientSession) try {
	return toolsOnly(func(ctx context.Context, a trial, tool string, args map[string]any) error {
		dev := g.device(a.device)
		args["device"] = a.device
		return callOver(ctx, session, dev.Model+"--"+string(dev.Kind[:6])+"__"+tool, args)
	})
}

// searched calls tools with call_tool.
func searched(session *mcp.ClientSession) try {
	return toolsOnly(func(ctx context.Context, a trial, tool string, args map[string]any) error {
		return callOver(ctx, session, "gateway__call_tool", map[string]any{"name": a.device + "__" + tool, "arguments": args})
	})
}

// many calls tools with call_many.
func many(session *mcp.ClientSession) try {
	return toolsOnly(func(ctx context.Context, a trial, tool string, args map[string]any) error {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "gateway__call_many", Arguments: map[string]any{"tool": tool, "devices": []string{a.device}, "arguments": args}})
		if err != nil {
			return err
		}
		if text := result.Content[0].(*mcp.TextContent).Text; result.IsError || !strings.Contains(text, `"succeeded":1`) {
			return errors.New(text)
		}
		return nil
	})
}

// overSocket makes trials as a person at the command line.
func overSocket(t *testing.T, g *testGateway, path string) try {
	t.Helper()
	socket, err := control.SocketPath(g.data)
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	t.Cleanup(client.Close)
	return func(ctx context.Context, a trial) error {
		op, name, args := a.call()
		device, many := a.device, strings.HasSuffix(path, "call_many")
		if many {
			if op != ferrule.CallTool {
				return errNoSuchPath
			}
			device, name, args = ferrule.GatewayID, "call_many", map[string]any{"tool": name, "devices": []string{device}, "arguments": args}
		}
		data, err := json.Marshal(args)
		if err != nil {
			return err
		}
		if args == nil {
			data = nil
		}
		result, err := client.Handle(ctx, &ferrule.Call{
			Principal: control.User(), Client: ferrule.Client{Name: "ferrule", Version: path}, Device: device, Operation: op, Tool: name, Args: data, Subscriber: "test",
		})
		if err == nil && many && !strings.Contains(string(result.Value), `"succeeded":1`) {
			return errors.New(string(result.Value))
		}
		return err
	}
}

// voice makes trials as an agent at an endpoint.
type voice struct {
	*voiceAgent
	mu      sync.Mutex
	answers map[string]chan error
}

// newVoice serves the answers to an agent at an endpoint.
func newVoice(a *voiceAgent) *voice {
	v := &voice{voiceAgent: a, answers: make(map[string]chan error)}
	a.conn.SetReadDeadline(time.Time{})
	go func() {
		for {
			frame, err := ws.ReadFrame(a.conn)
			if err != nil {
				return
			}
			var m struct {
				ID     json.RawMessage
				Result struct{ IsError bool }
				Error  json.RawMessage
			}
			payload := ws.UnmaskFrame(frame).Payload
			if json.Unmarshal(payload, &m) != nil {
				continue
			}
			v.mu.Lock()
			answer := v.answers[string(m.ID)]
			v.mu.Unlock()
			switch {
			case answer == nil:
			case m.Error != nil || m.Result.IsError:
				answer <- errors.New(string(payload))
			default:
				answer <- nil
			}
		}
	}()
	return v
}

func (v *voice) try(ctx context.Context, a trial) error {
	op, name, args := a.call()
	uri := "ferrule://devices/" + a.device + "/resources/" + name
	method, params := "tools/call", map[string]any{"name": a.device + "__" + name, "arguments": args}
	switch op {
	case ferrule.GetPrompt:
		method, params = "prompts/get", map[string]any{"name": a.device + "__" + name}
	case ferrule.ReadResource:
		method, params = "resources/read", map[string]any{"uri": uri}
	case ferrule.Subscribe:
		method, params = "resources/subscribe", map[string]any{"uri": uri}
	}
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	v.mu.Lock()
	v.answers[fmt.Sprintf(`"9c1e_n_%d"`, v.last+1)] = answer
	v.mu.Unlock()
	v.begin(method, string(data))
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mcpTransport leads to `ferrule mcp` with a data directory.
func mcpTransport(t *testing.T, cfg config.Config, data string) mcp.Transport {
	t.Helper()
	ours, theirs := newPipe(), newPipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		parts := gateway.Parts{Config: cfg, Data: data, Version: version(), Log: slog.New(slog.DiscardHandler)}
		ended <- gateway.ServeStdio(ctx, parts, theirs.Reader, ours.Writer)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ferrule mcp: %v", err)
		}
	})
	return &mcp.IOTransport{Reader: ours.Reader, Writer: theirs.Writer}
}

// verdictsIn returns the verdicts in a journal, by trial. The first one counts: without
// approval.
func verdictsIn(t *testing.T, data string, verdicts map[trial][]ferrule.Ruling) {
	t.Helper()
	err := journal.Read(data, func(e ferrule.Entry) error {
		if e.Device == ferrule.GatewayID || e.Verdict == "" {
			return nil
		}
		a := trial{path: e.Client.Version, cell: cell{device: e.Device}}
		if name, ok := strings.CutPrefix(e.Principal.Name, "endpoint:"); ok {
			a.path, a.who = "endpoint", name
		} else if a.who = strings.TrimPrefix(e.Principal.Name, "local/"); e.Principal.Role == ferrule.Person {
			a.who = "person"
		}
		var args struct{ Level int }
		json.Unmarshal(e.Args, &args)
		switch {
		case e.Operation == ferrule.Subscribe:
			a.what, a.path = "watch", strings.ReplaceAll(strings.TrimPrefix(e.Tool, watchedURI), "_", " ")
		case e.Operation == ferrule.ReadResource:
			a.what = strings.TrimPrefix(e.Tool, "file:///")
		case args.Level == 10:
			a.what = "low"
		case args.Level == 90:
			a.what = "high"
		default:
			a.what = e.Tool
		}
		verdicts[a] = append(verdicts[a], e.Verdict)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerdicts checks that the policy decides the same on every path to a device: for each
// caller, device, tool, effect and arguments, under each preset and with rules.
func TestVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, table := range verdictTables {
		t.Run(table.name, func(t *testing.T) { testVerdicts(t, table) })
	}
}

func testVerdicts(t *testing.T, table verdictTable) {
	start := time.Now()
	h := newGuardedHouse(t)
	cells := table.cells(t)
	if len(cells) != 120 {
		t.Fatalf("the table has %d cells", len(cells))
	}
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	brokers := make(map[string]*testBroker)
	open := startGateway(t, nil, func(c *config.Config) {
		joins(c, "a", servers)
		verdictTokens(c)
		c.Policy.Preset = "open" // the node that holds the devices decides
	})
	g := startGateway(t, nil, func(c *config.Config) { joins(c, "b", servers) }, verdictTokens, h.guarded(t, table), func(c *config.Config) {
		for _, name := range verdictAgents {
			brokers[name] = newBroker(t, false)
			c.Endpoints = append(c.Endpoints, config.Endpoint{Name: name, URL: ferrule.Secret(brokers[name].url())})
		}
	})
	g.label()
	for _, device := range []string{"door1", "door2", "lamp"} {
		open.online(device)
	}
	journals := []string{g.data, open.data}

	tries := make(map[string]map[string]try) // by path and caller
	add := func(path, who string, do try) {
		if tries[path] == nil {
			tries[path] = make(map[string]try)
		}
		tries[path][who] = do
	}
	dial := func(g *testGateway, who, path, mcpVersion, address string) *mcp.ClientSession {
		return agentOn(t, who, path, mcpVersion, &mcp.StreamableClientTransport{Endpoint: g.url(address), HTTPClient: withToken(tokenOf(who))})
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, who := range verdictAgents {
		wg.Go(func() {
			for _, mcpVersion := range mcpVersions {
				http, node, one := "http "+mcpVersion, "node "+mcpVersion, "device "+mcpVersion
				direct := overMCP(dial(g, who, http, mcpVersion, "/mcp"), false)
				remote := overMCP(dial(open, who, node, mcpVersion, "/mcp"), false)
				views := make(map[string]try)
				for device := range h.urls {
					views[device] = overMCP(dial(g, who, one, mcpVersion, "/mcp/devices/"+device), true)
				}
				stdio := "stdio " + mcpVersion
				cfg := testConfig()
				cfg.Listen = ""
				joined := overMCP(agentOn(t, who, stdio, mcpVersion, mcpTransport(t, cfg, g.data)), false)
				mu.Lock()
				add(http, who, direct)
				add(node, who, remote)
				add(one, who, func(ctx context.Context, a trial) error { return views[a.device](ctx, a) })
				add(stdio, who, joined)
				add("folded "+mcpVersion, who, foldedNames(g, dial(g, who, "folded "+mcpVersion, mcpVersion, "/mcp")))
				mu.Unlock()
			}
			cfg := testConfig()
			h.guarded(t, table)(&cfg)
			cfg.Listen = ""
			data := t.TempDir()
			host := agentOn(t, who, "own gateway", modern, mcpTransport(t, cfg, data))
			joinedFolded := foldedNames(g, agentOn(t, who, "folded stdio", legacy, mcpTransport(t, testConfig(), g.data)))
			at := newVoice(brokers[who].connect())
			mu.Lock()
			defer mu.Unlock()
			journals = append(journals, data)
			add("own gateway", who, overMCP(host, false))
			add("folded stdio", who, joinedFolded)
			add("call_tool", who, searched(dial(g, who, "call_tool", modern, "/mcp")))
			add("call_many", who, many(dial(g, who, "call_many", legacy, "/mcp")))
			add("endpoint", who, at.try)
		})
	}
	wg.Wait()
	for path, at := range map[string]*testGateway{"cli": g, "cli call_many": g, "cli node": open, "cli node call_many": open} {
		add(path, "person", overSocket(t, at, path))
	}
	for _, device := range []string{"door2"} { // the gateways of stdio agents have their own labels
		for _, data := range journals[2:] {
			socket, err := control.SocketPath(data)
			if err != nil {
				t.Fatal(err)
			}
			client := control.NewClient(socket)
			wait.For(t, device+" is labeled", func() bool {
				_, err := client.Builtin(t.Context(), "label_device", map[string]any{"device": device, "set": map[string]string{"room": "hall"}})
				return err == nil
			})
			client.Close()
		}
	}

	t.Logf("set up in %v", time.Since(start))

	denying, endDenying := context.WithCancel(t.Context())
	defer endDenying()
	for _, data := range slices.Concat(journals[:1], journals[2:]) { // the second permits everything
		wg.Go(func() { denyAll(denying, t, data) })
	}

	// Every caller tries everything on every path.
	var trials []trial
	var trying sync.WaitGroup
	outcomes := make(map[trial]error)
	slots := make(chan struct{}, 16) // a device has 32 calls waiting at most
	for path, callers := range tries {
		for who, do := range callers {
			trying.Go(func() {
				for _, c := range cells {
					if c.who != who {
						continue
					}
					a := trial{path, c}
					slots <- struct{}{}
					ctx, cancel := context.WithTimeout(t.Context(), wait.Ample)
					err := do(ctx, a)
					cancel()
					<-slots
					if errors.Is(err, errNoSuchPath) {
						continue
					}
					mu.Lock()
					trials, outcomes[a] = append(trials, a), err
					mu.Unlock()
				}
			})
		}
	}
	trying.Wait()
	endDenying()
	wg.Wait()
	t.Logf("%d cells on %d paths: %d trials, after %v", len(cells), len(tries), len(trials), time.Since(start))

	verdicts := make(map[trial][]ferrule.Ruling)
	missing := func() (missing []trial) {
		clear(verdicts)
		for _, data := range journals {
			verdictsIn(t, data, verdicts)
		}
		for _, a := range trials {
			key := a
			key.want = ""
			// A proxy that folds tools knows the Kinds of the devices that are shown. It calls
			// no other device, so there is nothing to decide.
			hidden := a.path == "folded stdio" && a.want == ferrule.Forbid && outcomes[a] != nil && strings.Contains(outcomes[a].Error(), "there is no device")
			if len(verdicts[key]) == 0 && !hidden {
				missing = append(missing, a)
			}
		}
		return missing
	}
	for end := time.Now().Add(wait.Ample); len(missing()) > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	for _, a := range missing() {
		t.Errorf("%v: no verdict is recorded; the outcome was %v", a, outcomes[a])
	}
	slices.SortFunc(trials, func(a, b trial) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, a := range trials {
		key := a
		key.want = ""
		all := verdicts[key]
		if len(all) == 0 {
			continue
		}
		// The node that is asked first permits everything: what the holder decided is the
		// strictest.
		got := ferrule.Permit
		for _, ruling := range all {
			if ruling != ferrule.Permit {
				got = ruling
			}
		}
		if got != a.want {
			t.Errorf("%v: got %v", a, all)
		}
		if modernWatch := a.what == "watch" && (strings.Contains(a.path, modern) || a.path == "own gateway"); !modernWatch && !a.fits(outcomes[a]) {
			t.Errorf("%v: the outcome is %v", a, outcomes[a])
		}
		want := 0
		if op, _, _ := a.call(); op == ferrule.CallTool && a.want == ferrule.Permit {
			want = 1
		}
		if ran := h.ran(a); ran != want {
			t.Errorf("%v: it ran %d times", a, ran)
		}
	}
}
