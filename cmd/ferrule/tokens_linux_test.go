package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/tokens"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

var tokenOwner = ferrule.Principal{Role: ferrule.Person, Name: "ada"}

// tokenCaller calls a tool with a token, again and again, on one node.
type tokenCaller struct {
	node   *testGateway
	agent  *plainAgent    // with the first secret
	stream chan time.Time // receives when the stream has ended

	mu      sync.Mutex
	good    int
	last    time.Time // when the last call that succeeded began
	failure error     // of the last call
}

// run calls until a call fails or ctx ends.
func (c *tokenCaller) run(ctx context.Context, secret *atomic.Value) {
	agent := *c.agent
	for ctx.Err() == nil {
		agent.client = withToken(secret.Load().(string))
		began := time.Now()
		_, err := agent.call(ctx, "robot__gpio_read", `{"pin":2}`)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		if c.failure = err; err == nil {
			c.good, c.last = c.good+1, began
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *tokenCaller) state() (good int, last time.Time, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.good, c.last, c.failure
}

// TestRevoked rotates and revokes a token that agents use on three nodes. Rotating loses no
// call. After the token is revoked on one node, streams end and calls fail on all, and a node
// that starts later knows it too.
func TestRevoked(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	servers := natscluster.Start(t, natscluster.Options{})
	board := startSim(t, sim.Config{}).Addrs()[0]
	var nodes []*testGateway
	node := func(name string, devices map[string]string) *testGateway {
		g := startGateway(t, devices, unmeasured, func(c *config.Config) {
			joins(c, name, servers)
			c.Listen, c.Agents.OpenLoopback = "127.0.0.1:0", false
			c.Calls.PerMinute = 0
		})
		return g
	}
	nodes = append(nodes, node("a", map[string]string{"robot": board}), node("b", nil), node("c", nil))
	for _, g := range nodes {
		g.online("robot")
		wait.For(t, "nodes see each other", func() bool { return len(g.Cluster.State().Nodes) == 2 })
	}
	knows := func(g *testGateway, secret string) bool {
		agent, err := newPlainAgent(t.Context(), withToken(secret), g.url("/mcp"), modern)
		if err == nil {
			_, err = agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`)
		}
		return err == nil
	}
	made, err := nodes[0].Tokens.Add(tokenOwner, tokens.New{Name: "claude", Scopes: ferrule.LimitTo(ferrule.ScopeRead)})
	if err != nil || made.Note != "" {
		t.Fatal(made.Note, err)
	}
	var secret atomic.Value
	secret.Store(made.Secret.Reveal())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers []*tokenCaller
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, g := range nodes {
		wait.For(t, "the node knows the token", func() bool { return knows(g, made.Secret.Reveal()) })
		for _, version := range mcpVersions {
			agent, err := newPlainAgent(t.Context(), withToken(made.Secret.Reveal()), g.url("/mcp"), version)
			if err != nil {
				t.Fatal(err)
			}
			c := &tokenCaller{node: nodes[i], agent: agent, stream: make(chan time.Time, 1)}
			stream, err := agent.listen(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
			wg.Go(func() {
				io.Copy(io.Discard, stream.Body)
				c.stream <- time.Now()
			})
			wg.Go(func() { c.run(ctx, &secret) })
			callers = append(callers, c)
		}
	}
	defer cancel()
	more := func() {
		t.Helper()
		for _, c := range callers {
			before, _, _ := c.state()
			wait.For(t, "calls go on", func() bool {
				good, _, failure := c.state()
				return good > before+3 || failure != nil
			})
		}
	}

	// Rotating loses no call: the old secret works until every agent has the new one.
	for round := range 3 {
		more()
		rotated, err := nodes[round].Tokens.Rotate(tokenOwner, "claude", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		more()
		for _, g := range nodes {
			wait.For(t, "the node knows the new secret", func() bool { return knows(g, rotated.Secret.Reveal()) })
		}
		secret.Store(rotated.Secret.Reveal())
	}
	more()
	for _, c := range callers {
		if _, _, failure := c.state(); failure != nil {
			t.Fatalf("on %s a call was lost while the token was rotated: %v", c.node.Cluster.State().Node, failure)
		}
	}

	// The streams were opened with the first secret, which has ended. Open others.
	for _, c := range callers {
		select {
		case <-c.stream:
		case <-time.After(wait.Ample):
			t.Fatal("a stream of a secret that was replaced twice is open")
		}
		agent := *c.agent
		agent.client = withToken(secret.Load().(string))
		stream, err := agent.listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		wg.Go(func() {
			io.Copy(io.Discard, stream.Body)
			c.stream <- time.Now()
		})
	}
	more()
	began := time.Now()
	if _, err := nodes[1].Tokens.Revoke(tokenOwner, "claude"); err != nil {
		t.Fatal(err)
	}
	var slowest time.Duration
	for _, c := range callers {
		var ended time.Time
		select {
		case ended = <-c.stream:
		case <-time.After(wait.Ample):
			t.Fatal("a stream of a revoked token is open")
		}
		wait.For(t, "calls are refused", func() bool { _, _, failure := c.state(); return failure != nil })
		_, last, failure := c.state()
		if failure != errStatus(http.StatusUnauthorized) {
			t.Errorf("got %v", failure)
		}
		slowest = max(slowest, ended.Sub(began), last.Sub(began))
	}
	figure.AtMost(t, "time until a revoked token is refused everywhere", slowest, time.Second)
	cancel()

	late := node("d", nil)
	late.online("robot")
	if knows(late, secret.Load().(string)) {
		t.Error("a node that started later accepts the revoked token")
	}
}

// TestTokenCommands makes, lists, rotates and revokes a token by command. The secret is
// nowhere on the disk, and the journal has what happened.
func TestTokenCommands(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, unmeasured, needsToken(config.Token{Name: "configured", Token: "a-token-of-sixteen"}))
	g.online("robot")
	c := commandLine{t}
	run := func(out any, args ...string) string {
		t.Helper()
		code, text := c.run(append(args, "--data", g.data)...)
		if code != 0 {
			t.Fatalf("%q: %d %s", args, code, text)
		}
		if out != nil {
			if err := json.Unmarshal([]byte(text), out); err != nil {
				t.Fatalf("%q: %v: %s", args, err, text)
			}
		}
		return text
	}
	reads := func(secret string) error {
		agent, err := newPlainAgent(t.Context(), withToken(secret), g.url("/mcp"), modern)
		if err == nil {
			_, err = agent.call(t.Context(), "robot__gpio_read", `{"pin":2}`)
		}
		return err
	}
	text := run(nil, "token", "add", "claude", "--scope", "read,change", "--device", "kitchen-*", "--device", "robot", "--expires", "90d")
	secret, _, _ := strings.Cut(text, "\n")
	for _, words := range []string{"cannot be shown again", g.url("/mcp"), "Authorization: Bearer TOKEN", "It permits: read, change, for kitchen-*, robot. It expires on ", "\nNo device matches kitchen-* now.\n"} {
		if !strings.Contains(text, words) {
			t.Errorf("it does not say %q:\n%s", words, text)
		}
	}
	if err := reads(secret); err != nil {
		t.Fatal(err)
	}
	c.want(exitNotRun, "there is already a token claude", "token", "add", "claude", "--data", g.data)
	// A flag without a value, such as that of a variable that is not set, must not permit more.
	for flag, value := range map[string]string{"--scope": "", "--device": "", "--expires": "0"} {
		c.want(exitUsage, flag, "token", "add", "other", flag, value, "--data", g.data)
	}
	c.want(exitUsage, `unknown scope "write"`, "token", "add", "other", "--scope", "write", "--data", g.data)
	c.want(exitNotRun, `there is no token "nobody"`, "token", "revoke", "nobody", "--data", g.data)
	c.want(exitNotRun, "the authorization server is off", "token", "revoke", "grant-abcdefghij", "--data", g.data)

	var list builtin.ListTokensOutput
	run(&list, "token", "list", "--json")
	if len(list.Tokens) != 2 || list.Tokens[0].From != "127.0.0.1" || time.Since(list.Tokens[0].Used) > time.Minute || !list.Tokens[1].Config {
		t.Errorf("got %+v", list.Tokens)
	}
	text = run(nil, "token", "list")
	for _, words := range []string{"TOKEN", "claude", "read,change", "kitchen-*,robot", "127.0.0.1", "configured", "in the config"} {
		if !strings.Contains(text, words) {
			t.Errorf("the list does not have %q:\n%s", words, text)
		}
	}
	var rotated builtin.TokenOutput
	run(&rotated, "token", "rotate", "claude", "--json")
	if err := reads(secret); err != nil || rotated.Secret == secret || reads(rotated.Secret) != nil {
		t.Errorf("after rotating: %v", err)
	}
	if left := time.Until(rotated.Token.Overlap); left > 10*time.Minute || left < 8*time.Minute {
		t.Errorf("the old secret is accepted for %v", left)
	}
	run(&rotated, "token", "rotate", "claude", "--overlap", "0s", "--json")
	if err := reads(secret); err != errStatus(http.StatusUnauthorized) {
		t.Errorf("without an overlap: %v", err)
	}
	if text := run(nil, "token", "revoke", "claude"); !strings.Contains(text, "claude is revoked: its calls are refused") {
		t.Errorf("got %s", text)
	}
	if err := reads(rotated.Secret); err != errStatus(http.StatusUnauthorized) {
		t.Errorf("after revoking: %v", err)
	}

	g.stop()
	lines := ""
	err := filepath.WalkDir(g.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, s := range []string{secret, rotated.Secret} {
			if strings.Contains(string(data), s) || strings.Contains(string(data), s[len(tokens.Prefix):]) {
				t.Errorf("%s has a secret", path)
			}
		}
		if strings.Contains(path, "journal") {
			lines += string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []ferrule.AccessEvent{ferrule.AccessTokenAdded, ferrule.AccessTokenUsed, ferrule.AccessTokenRotated, ferrule.AccessTokenRevoked} {
		if !strings.Contains(lines, `"`+string(event)+`"`) {
			t.Errorf("the journal does not have %s", event)
		}
	}
}

// TestSetupToken: `ferrule setup CLIENT --http` writes a token that works, which only its
// user can read; again, it is rotated.
func TestSetupToken(t *testing.T) {
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, unmeasured, needsToken())
	g.online("robot")
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("FERRULE_DATA", g.data)
	file := filepath.Join(home, ".claude.json")
	writeFile(t, file, `{"theme": "dark"}`)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	c := commandLine{t}
	var before string
	for i, says := range []string{"Made the token claude-code. It permits: read, change, endanger.", "Replaced the token claude-code. It permits: read, change, endanger. The old one works until "} {
		c.want(0, says, [][]string{{"setup", "claude-code", "--http"}, {"setup", "claude-code", "--http=" + g.url("/mcp")}}[i]...)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var settings struct {
			Theme      string
			MCPServers map[string]struct {
				URL     string
				Headers map[string]string
			} `json:"mcpServers"`
		}
		if err := json.Unmarshal(data, &settings); err != nil || settings.Theme != "dark" {
			t.Fatalf("%v: %s", err, data)
		}
		entry := settings.MCPServers["ferrule"]
		secret, ok := strings.CutPrefix(entry.Headers["Authorization"], "Bearer ")
		if !ok || secret == before {
			t.Fatalf("got %s", data)
		}
		agent, err := newPlainAgent(t.Context(), withToken(secret), entry.URL, legacy)
		if err == nil {
			_, err = agent.call(t.Context(), "robot__gpio_write", `{"pin":2,"value":true}`)
		}
		if err != nil {
			t.Error(err)
		}
		if before != "" {
			if _, err := newPlainAgent(t.Context(), withToken(before), entry.URL, legacy); err != nil {
				t.Errorf("a running client lost its token: %v", err)
			}
		}
		before = secret
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v", info.Mode(), err)
		}
	}
	if all := g.Tokens.List(); len(all) != 1 || all[0].Name != "claude-code" || fmt.Sprint(all[0].Scopes) != "[read change endanger]" {
		t.Errorf("got %+v", all)
	}
	// Another entry has a token of its own, and leaves the first one alone.
	c.want(0, `"name":"claude-code-other"`, "setup", "claude-code", "--http", "--name", "other", "--json")
	if _, err := newPlainAgent(t.Context(), withToken(before), g.url("/mcp"), legacy); err != nil {
		t.Errorf("the first entry lost its token: %v", err)
	}
	c.want(0, "Its token is still valid. To end it, run: ferrule token revoke claude-code-other", "setup", "claude-code", "--name", "other", "--remove")
	c.want(0, "claude-code-other is revoked", "token", "revoke", "claude-code-other")
	// What is printed, shared or for another machine or gateway has no token.
	c.want(0, "No token was written, because the gateway that would make it is at "+g.url("/mcp"), "setup", "gemini", "--http=http://127.0.0.1:1/mcp")
	c.want(0, `Bearer TOKEN`, "setup", "claude-code", "--print", "--http")
	c.want(0, "No token was written, because the gateway may be on another machine", "setup", "gemini", "--http=https://gateway.example/mcp")
	t.Chdir(t.TempDir())
	c.want(0, "No token was written, because a project's file is shared", "setup", "claude-code", "--project", "--http="+g.url("/mcp"))
	if data, err := os.ReadFile(".mcp.json"); err != nil || strings.Contains(string(data), tokens.Prefix) {
		t.Errorf("got %s, %v", data, err)
	}
	if g.Tokens.Len() != 1 {
		t.Errorf("got %+v", g.Tokens.List())
	}
	g.stop()
	c.want(exitNoGateway, "", "setup", "claude-code", "--http")
	silent := startGateway(t, nil, unmeasured, func(c *config.Config) { c.Listen = "" })
	c.want(exitNotRun, "the gateway serves no HTTP", "setup", "claude-code", "--http", "--data", silent.data)
}

// TestLoopbackNeedsToken: programs on this machine, of this user and of others, need a
// token, and are told how to get one.
func TestLoopbackNeedsToken(t *testing.T) {
	g := startGateway(t, nil, needsToken())
	for path, command := range map[string]string{"/mcp": "ferrule setup CLIENT --http", "/mcp/devices/robot": "ferrule token add NAME", "/metrics": "ferrule token add prometheus --scope metrics"} {
		status, body := g.fetch(path, nil)
		if status != http.StatusUnauthorized || !strings.Contains(body, command) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _ := g.fetch("/healthz", nil); status != http.StatusOK {
		t.Errorf("got %d", status)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	_, port, _ := strings.Cut(g.Addr(), ":")
	cmd := exec.Command("bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%s; printf 'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' >&3; cat <&3`, port))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "HTTP/1.1 401 ") {
		t.Errorf("another user: %v: %s", err, out)
	}
}
