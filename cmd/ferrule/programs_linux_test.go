package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/testenv/model"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// agentProgram is an agent program, used without an account.
type agentProgram struct {
	name    string
	offered string // name of the board's tool for the model
	// command returns the command line for a prompt, with a model and an MCP server. It
	// may write files into home.
	command func(t *testing.T, home, model string, server mcpServer, ask string) (args, env []string)
}

// mcpServer is an address, or a command.
type mcpServer struct {
	url     string
	command []string
}

var programs = []agentProgram{
	{"claude", "mcp__ferrule__uno__gpio_write", claude},
	{"codex", "mcp__ferrule__uno__gpio_write", codex},
	{"opencode", "ferrule_uno__gpio_write", opencode},
}

// claude configures Claude Code.
func claude(t *testing.T, _, model string, server mcpServer, ask string) (args, env []string) {
	entry := map[string]any{"type": "http", "url": server.url}
	if server.url == "" {
		entry = map[string]any{"type": "stdio", "command": server.command[0], "args": server.command[1:]}
	}
	args = []string{
		"-p", ask, "--mcp-config", toJSON(t, map[string]any{"mcpServers": map[string]any{"ferrule": entry}}),
		"--strict-mcp-config", "--allowedTools", "mcp__ferrule",
	}
	return args, []string{
		"ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=none",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
	}
}

// codex configures Codex.
func codex(t *testing.T, home, model string, server mcpServer, ask string) (args, env []string) {
	entry := "url = " + toJSON(t, server.url)
	if server.url == "" {
		entry = fmt.Sprintf("command = %s\nargs = %s", toJSON(t, server.command[0]), toJSON(t, server.command[1:]))
	}
	writeFile(t, filepath.Join(home, "config.toml"), fmt.Sprintf(`model = "stand-in"
model_provider = "stand-in"
check_for_update_on_startup = false
[features]
plugins = false
apps = false
[analytics]
enabled = false
[model_providers.stand-in]
name = "Stand-in"
base_url = "%s/v1"
wire_api = "responses"
[mcp_servers.ferrule]
%s
`, model, entry))
	return []string{"exec", "--skip-git-repo-check", ask}, []string{"CODEX_HOME=" + home}
}

// opencode configures opencode.
func opencode(t *testing.T, home, model string, server mcpServer, ask string) (args, env []string) {
	entry := map[string]any{"type": "remote", "url": server.url}
	if server.url == "" {
		entry = map[string]any{"type": "local", "command": server.command}
	}
	file := filepath.Join(home, "opencode.json")
	writeFile(t, file, toJSON(t, map[string]any{
		"model": "stand-in/any", "autoupdate": false, "share": "disabled",
		"provider": map[string]any{"stand-in": map[string]any{
			"npm":     "@ai-sdk/openai-compatible",
			"options": map[string]any{"baseURL": model + "/v1", "apiKey": "none"},
			"models":  map[string]any{"any": map[string]any{"tool_call": true}},
		}},
		"mcp": map[string]any{"ferrule": entry},
	}))
	return []string{"run", ask}, []string{
		"OPENCODE_CONFIG=" + file, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAgents has agent programs that people use switch the LED of a board on and
// off, over both transports, with a stand-in for their model.
func TestAgents(t *testing.T) {
	eachProgram(t, func(p agentProgram, path string) {
		t.Run(p.name+" http", func(t *testing.T) {
			board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
			url, log := upWith(t, board, "--config", openFile(t))
			p.try(t, path, board, mcpServer{url: url}, log, t.TempDir())
		})
		t.Run(p.name+" stdio", func(t *testing.T) {
			ferrule, err := exec.LookPath("ferrule")
			if err != nil {
				t.Fatal(err)
			}
			board := uno.Start(t, uno.Options{Link: filepath.Join(t.TempDir(), "uno")})
			home := t.TempDir()
			data := filepath.Join(home, "data")
			server := mcpServer{command: []string{ferrule, "mcp", "-v", "--data", data, "--serial", "uno=" + board.Path()}}
			p.try(t, path, board, server, filepath.Join(data, datadir.LogFile), home)
		})
	})
}

// eachProgram calls fn for each agent program that is installed.
func eachProgram(t *testing.T, fn func(p agentProgram, path string)) {
	t.Helper()
	dir := os.Getenv("FERRULE_TEST_AGENTS")
	if dir == "" {
		t.Skip("FERRULE_TEST_AGENTS is not set: see internal/testenv/agents")
	}
	tried := 0
	for _, p := range programs {
		path := filepath.Join(dir, "bin", p.name)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		tried++
		fn(p, path)
	}
	if tried == 0 {
		t.Errorf("there is none of them in %s", dir)
	}
}

// upWith runs `ferrule up` with a board and more arguments, and returns its address and its
// log, which is in its data directory.
func upWith(t *testing.T, board *uno.Board, more ...string) (url, log string) {
	t.Helper()
	data := t.TempDir()
	log = filepath.Join(data, "up.log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("ferrule", append([]string{"up", "-v", "--listen", "127.0.0.1:0", "--data", data, "--serial", "uno=" + board.Path()}, more...)...)
	cmd.Stderr = file
	startProcess(t, cmd)
	wait.For(t, "the board is online", func() bool {
		said, _ := os.ReadFile(log)
		url = string(regexp.MustCompile(`http://[0-9.:]+/mcp`).Find(said))
		return url != "" && bytes.Contains(said, []byte("device online"))
	})
	return url, log
}

// try lets the program switch the LED on and off.
func (p agentProgram) try(t *testing.T, path string, board *uno.Board, server mcpServer, log, home string) {
	const limit = 3 * time.Minute // on a busy machine; the programs take seconds
	m := model.Start(t)
	args, env := p.command(t, home, m.URL(), server, "Switch the LED on, and off again.")
	start := time.Now()
	run := p.start(t, path, home, append(env, outward(m.URL())...), args)
	ctx, cancel := context.WithTimeout(run.ended, limit)
	defer cancel()

	tool := m.Offered(ctx, "uno__gpio_write")
	if tool.FullName() != p.offered {
		t.Errorf("the tool is offered as %s, want %s", tool.FullName(), p.offered)
	}
	checkSchema(t, tool.Schema)
	var lit time.Duration
	var result string
	for _, on := range []bool{true, false} {
		args := fmt.Sprintf(`{"pin":13,"value":%t}`, on)
		result = m.Call(ctx, tool, args)
		if on {
			lit = time.Since(start)
		}
		if !strings.Contains(flat(result), fmt.Sprintf(`"value":%t`, on)) {
			t.Errorf("the result of %s is %s", args, result)
		}
		board.WaitPin("B5", on)
	}
	if edges := slices.DeleteFunc(board.Edges("B5"), func(e uno.Edge) bool { return !e.High }); len(edges) != 1 {
		t.Errorf("the LED was switched on %d times, want once", len(edges))
	}
	last := "It is off again. The board says " + flat(result)
	m.Say(ctx, last)
	if out := run.wait(ctx); !strings.Contains(flat(out), flat(last)) {
		t.Errorf("the program says %s, want %s", out, last)
	}
	over, found := "HTTP", "is offered"
	if server.url == "" {
		over = "standard input and output"
	}
	if tool.Searched {
		found = "searches for"
	}
	t.Logf("%s over %s; its model %s %s; the LED was on %.1f s after its start", greeting(t, log), over, found, tool.FullName(), lit.Seconds())
	if hosts := m.Outside(); len(hosts) > 0 {
		fmt.Fprintf(t.Output(), "it asked for %s, and was refused\n", strings.Join(hosts, ", "))
	}
}

// flat returns a text without spaces and escapes: programs format results in different
// ways.
func flat(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, `\`, "")), "")
}

// greeting returns the last line of the log about a new agent.
func greeting(t *testing.T, log string) string {
	t.Helper()
	said, err := os.ReadFile(log)
	all := regexp.MustCompile(`agent: (.+ speaks MCP [0-9-]+)`).FindAllSubmatch(said, -1)
	if len(all) == 0 {
		t.Fatalf("the gateway has seen no agent: %v\n%s", err, said)
	}
	return string(all[len(all)-1][1])
}

// checkSchema checks that the schema that the model gets is that of the board's tool.
func checkSchema(t *testing.T, schema json.RawMessage) {
	t.Helper()
	var got, want struct {
		Type       string
		Properties map[string]any
		Required   []string
	}
	if err := json.Unmarshal(schema, &got); err != nil {
		t.Errorf("%v: %s", err, schema)
	}
	if err := json.Unmarshal([]byte(ledSchema), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the schema is %s, want %s", schema, ledSchema)
	}
}

const ledSchema = `{"type":"object","properties":{
	"pin":{"type":"integer","enum":[13],"description":"pin number (13 is led)"},
	"value":{"type":"boolean","description":"true is high, false is low"}},"required":["pin","value"]}`

// outward returns an environment in which all other machines are behind a proxy.
func outward(proxy string) (env []string) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		env = append(env, name+"="+proxy)
	}
	return append(env, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
}

// running is a running program.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *bytes.Buffer   // to be read when it has ended
	ended context.Context // ends with it
}

// start starts a program with its own home. It ends with the test, with all its
// children.
func (p agentProgram) start(t *testing.T, path, home string, env, args []string) *running {
	t.Helper()
	work := filepath.Join(home, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = work
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}, env...)
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancelCause(context.Background())
	go func() {
		end(fmt.Errorf("%s has ended: %v", p.name, cmd.Wait()))
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended.Done()
		for _, pid := range processesOf(home) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("%s", out)
		}
	})
	return &running{t, cmd, out, ended}
}

// wait waits until the program and its children have ended well, and returns its output.
func (r *running) wait(ctx context.Context) string {
	r.t.Helper()
	<-ctx.Done()
	if r.ended.Err() == nil {
		r.t.Fatal("the program does not end")
	}
	if !r.cmd.ProcessState.Success() {
		r.t.Errorf("%v", r.cmd.ProcessState)
	}
	home := filepath.Dir(r.cmd.Dir)
	wait.For(r.t, "all that the program has started has ended", func() bool { return len(processesOf(home)) == 0 })
	return r.out.String()
}

// processesOf returns the processes that have a home in their environment.
func processesOf(home string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range all {
		env, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && bytes.Contains(env, []byte("HOME="+home+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
