package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestFirstMinutes goes the way of a new user, in a home of their own, and compares
// what they see with docs/tutorial/first-minutes.txt, which it writes with -update. The
// agent is the official SDK's client, started by what `ferrule setup` printed.
func TestFirstMinutes(t *testing.T) {
	const file = "../../docs/tutorial/first-minutes.txt"
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Setenv("FERRULE_LISTEN", "127.0.0.1:0")
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{t: t, addr: addr}
	r.begin("sim", "mcpu", "--tcp", addr)
	r.begin("up", "--tcp", "robot="+addr)
	wait.For(t, "the board is online", func() bool {
		out, _ := exec.Command("ferrule", "devices").Output()
		return bytes.Contains(out, []byte("online"))
	})
	r.run("devices")
	r.run("tools", "robot")
	r.run("call", "robot", "gpio_write", "pin=2", "value=true")
	r.run("call", "robot", "gpio_read", "pin=2")
	printed := r.run("setup", "claude-code", "--print", "--", "--tcp", "robot="+addr)
	r.run("setup", "claude-code", "--", "--tcp", "robot="+addr)
	if _, err := os.Stat(filepath.Join(home, ".claude.json")); err != nil {
		t.Error(err)
	}
	r.note("The agent runs this command and blinks the LED:")
	if !strings.Contains(printed, `"mcp"`) {
		t.Errorf("setup prints %s", printed)
	}
	session := r.agent("mcp", "--tcp", "robot="+addr)
	for _, value := range []bool{true, false} {
		r.ask(session, "robot__gpio_write", map[string]any{"pin": 2, "value": value})
	}
	r.run("audit", "--last", "4")
	r.run("call", "robot", "gpio_read", "pin=2")

	got := r.text.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("a new user sees\n%s\nand %s has\n%s", got, file, want)
	}
}

// recording is the output of a terminal.
type recording struct {
	t    *testing.T
	addr string
	text strings.Builder
}

// plainly replaces what differs between runs.
func (r *recording) plainly(text string) string {
	text = strings.ReplaceAll(text, r.addr, "127.0.0.1:4242")
	text = strings.ReplaceAll(text, os.Getenv("HOME"), "~")
	if self, err := exec.LookPath("ferrule"); err == nil {
		text = strings.ReplaceAll(text, self, "/usr/local/bin/ferrule")
	}
	for pattern, with := range map[string]string{
		`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?`: "2026-11-15 12:00:00",
		`\b\d+(\.\d+)?(µs|ms)\b`:                    "1ms",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, with)
	}
	record := 8 // earlier records
	return regexp.MustCompile(`(?m)^ +\d+  `).ReplaceAllStringFunc(text, func(string) string {
		record++
		return fmt.Sprintf("%6d  ", record)
	})
}

func (r *recording) note(text string) { fmt.Fprintf(&r.text, "\n%s\n", text) }

func (r *recording) command(args []string, end string) {
	r.text.WriteString(r.plainly("\n$ ferrule " + strings.Join(args, " ") + end + "\n"))
}

// begin starts a command in the background.
func (r *recording) begin(args ...string) {
	r.t.Helper()
	r.command(args, " &")
	cmd := exec.Command("ferrule", args...)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
}

// run runs a command and returns its output.
func (r *recording) run(args ...string) string {
	r.t.Helper()
	r.command(args, "")
	out, err := exec.Command("ferrule", args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("ferrule %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	r.text.WriteString(r.plainly(string(out)))
	return string(out)
}

// agent returns an agent that starts its server.
func (r *recording) agent(args ...string) *mcp.ClientSession {
	r.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(r.t.Context(), &mcp.CommandTransport{Command: exec.Command("ferrule", args...)}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { session.Close() })
	return session
}

// ask calls a tool as the agent.
func (r *recording) ask(session *mcp.ClientSession, tool string, args map[string]any) {
	r.t.Helper()
	result, err := session.CallTool(r.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil || result.IsError {
		r.t.Fatalf("%s: %v, %v", tool, result, err)
	}
	text, err := json.Marshal(args)
	if err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintf(&r.text, "\nagent: %s %s\nboard: %s\n", tool, text, result.Content[0].(*mcp.TextContent).Text)
}
