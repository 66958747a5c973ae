package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestGuardGuide follows docs/how-to/guard.md in a home of its own: it writes the files,
// runs the commands and compares what they print. The agent is the official SDK's client.
func TestGuardGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Setenv("FERRULE_LISTEN", "127.0.0.1:0")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	lamp, door := startBoards(t)
	text := strings.NewReplacer("127.0.0.1:4242", lamp, "127.0.0.1:4243", door, "~/", home+"/").Replace(string(page))

	for _, file := range regexp.MustCompile("(?s)`("+regexp.QuoteMeta(home)+"/[^`]+)`[^`]*(?:`context.approved`[^`]*)?```(?:yaml|cedar)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if err := os.MkdirAll(filepath.Dir(file[1]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file[1], []byte(file[2]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	blocks := regexp.MustCompile("(?s)```sh\n([^`]*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) != 4 {
		t.Fatalf("the page has %d blocks of commands with their output", len(blocks))
	}
	show := func(script, want string) {
		t.Helper()
		cmd := exec.Command("sh", "-e")
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		if got := plain(string(out)); err != nil || got != plain(want) {
			t.Fatalf("the page shows\n%sand its commands print (%v)\n%s", plain(want), err, got)
		}
	}

	show(blocks[0][1], blocks[0][2]) // the tests of the rules
	up := exec.Command("ferrule", "up")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		up.Process.Signal(os.Interrupt)
		up.Wait()
	})
	wait.For(t, "both boards are online", func() bool {
		out, _ := exec.Command("ferrule", "devices", "--json").Output()
		return strings.Count(string(out), `"state":"online"`) == 2
	})
	show(strings.Replace(blocks[1][1], "ferrule up &\nsleep 2\n", "", 1), blocks[1][2])

	client := mcp.NewClient(&mcp.Implementation{Name: "claude-code", Version: "2.1.0"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command("ferrule", "mcp")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	write := func(tool string) error {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"pin": 2, "value": true}})
		if err == nil && result.IsError {
			err = result.GetError()
		}
		return err
	}
	if err := write("lamp__gpio_write"); err != nil {
		t.Errorf("the lamp: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- write("door__gpio_write") }()
	var id string
	wait.For(t, "the call waits for approval", func() bool {
		out, _ := exec.Command("ferrule", "approvals").Output()
		if found := regexp.MustCompile(`(?m)^Request +(\S+)$`).FindStringSubmatch(string(out)); found != nil {
			id = found[1]
		}
		return id != ""
	})
	select {
	case err := <-ended:
		t.Fatalf("the call did not wait: %v", err)
	default:
	}
	if out, err := exec.Command("ferrule", "call", "door", "gpio_read", "pin=2").Output(); err != nil || !strings.Contains(string(out), "false") {
		t.Errorf("before the approval the door has %s, %v", out, err)
	}
	show(strings.ReplaceAll(blocks[2][1], "k7f2x", id), blocks[2][2])
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the door: %v", err)
		}
	case <-time.After(wait.Ample):
		t.Fatal("the approved call did not end")
	}
	if out, err := exec.Command("ferrule", "call", "door", "gpio_read", "pin=2").Output(); err != nil || !strings.Contains(string(out), "true") {
		t.Errorf("after the approval the door has %s, %v", out, err)
	}
	show(blocks[3][1], blocks[3][2])
}

// startBoards starts the two boards of the page, and returns their addresses.
func startBoards(t *testing.T) (string, string) {
	var addresses []string
	for range 2 {
		addr, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		sim := exec.Command("ferrule", "sim", "mcpu", "--tcp", addr)
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			sim.Process.Kill()
			sim.Wait()
		})
		addresses = append(addresses, addr)
	}
	return addresses[0], addresses[1]
}

// plain replaces what differs from run to run: IDs, times, and the user.
func plain(text string) string {
	for _, change := range [][2]string{
		{`(?m)^(Request +)\S+$`, "${1}ID"},
		{`(?m)^\S+ is allowed once`, "ID is allowed once"},
		{`run by [^,]+`, "run by somebody"},
		{`\d\d:\d\d:\d\d`, "TIME"},
		{`\d:\d\d left`, "TIME left"},
	} {
		text = regexp.MustCompile(change[0]).ReplaceAllString(text, change[1])
	}
	return text
}
