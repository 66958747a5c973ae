package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// request returns the text of a request. Params are the members of an object.
func request(mcpVersion string, id int, method, params string) string {
	if mcpVersion == modern {
		params = fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}},%s`, mcpVersion, params)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, strings.TrimSuffix(params, ","))
}

// The first messages of an agent of the older version of MCP.
var (
	initialize  = request(legacy, 0, "initialize", fmt.Sprintf(`"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"plain","version":"1"}`, legacy))
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// plainAgent is a minimal agent over HTTP.
type plainAgent struct {
	url        string
	mcpVersion string
	client     *http.Client
	session    string // of the older version
	id         int
}

// newPlainAgent starts a session, if the version of MCP has sessions.
func newPlainAgent(ctx context.Context, client *http.Client, url string, mcpVersion string) (*plainAgent, error) {
	a := &plainAgent{url: url, mcpVersion: mcpVersion, client: client}
	if mcpVersion == modern {
		return a, nil
	}
	resp, err := a.send(ctx, http.MethodPost, "initialize", "", initialize)
	if err != nil {
		return nil, err
	}
	a.session = resp.Header.Get("Mcp-Session-Id")
	if _, err := wholeBody(resp); err != nil {
		return nil, err
	}
	resp, err = a.send(ctx, http.MethodPost, "notifications/initialized", "", initialized)
	if err != nil {
		return nil, err
	}
	_, err = wholeBody(resp)
	return a, err
}

// errStatus is an HTTP status that is not a success.
type errStatus int

func (s errStatus) Error() string { return http.StatusText(int(s)) }

// send sends a request. Method and name go into its headers.
func (a *plainAgent) send(ctx context.Context, verb, method, name, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, verb, a.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", a.mcpVersion)
	if a.mcpVersion == modern {
		req.Header.Set("Mcp-Method", method)
		req.Header.Set("Mcp-Name", name)
	}
	if a.session != "" {
		req.Header.Set("Mcp-Session-Id", a.session)
	}
	resp, err := a.client.Do(req)
	if err == nil && resp.StatusCode >= 300 {
		resp.Body.Close()
		return nil, errStatus(resp.StatusCode)
	}
	return resp, err
}

func wholeBody(resp *http.Response) (string, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// call calls a tool and returns the response.
func (a *plainAgent) call(ctx context.Context, tool, args string) (string, error) {
	a.id++
	resp, err := a.send(ctx, http.MethodPost, "tools/call", tool, request(a.mcpVersion, a.id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, tool, args)))
	if err != nil {
		return "", err
	}
	body, err := wholeBody(resp)
	if err == nil && (!strings.Contains(body, `"result"`) || strings.Contains(body, `"isError":true`)) {
		return "", fmt.Errorf("%s", body)
	}
	return body, err
}

// listen opens the stream for notifications.
func (a *plainAgent) listen(ctx context.Context) (*http.Response, error) {
	if a.mcpVersion == legacy {
		return a.send(ctx, http.MethodGet, "", "", "")
	}
	return a.send(ctx, http.MethodPost, "subscriptions/listen", "", request(a.mcpVersion, 1, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
}

// bearer sends a token with each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// withToken returns a client that sends a token.
func withToken(token string) *http.Client {
	return &http.Client{Transport: bearer{token, http.DefaultTransport}}
}

// startProcess starts a process that ends with the test.
func startProcess(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return in, bufio.NewReader(pipe)
}

// upProcess runs `ferrule up`, or a similar command, with a board called robot, and
// returns when the board is online.
func upProcess(t testing.TB, command, board, settings string) (p process) {
	t.Helper()
	p.data = t.TempDir()
	file := filepath.Join(p.data, "ferrule.yaml")
	if err := os.WriteFile(file, []byte(cmp.Or(settings, openLoopback)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command, "up", "--listen", "127.0.0.1:0", "--data", p.data, "--config", file, "--tcp", "robot="+board)
	log, said := io.Pipe()
	cmd.Stderr = said
	p.in, p.out = startProcess(t, cmd)
	p.pid = cmd.Process.Pid
	lines := bufio.NewScanner(log)
	for p.url == "" && lines.Scan() {
		if found := regexp.MustCompile(`http://[0-9.:]+/mcp`).FindString(lines.Text()); found != "" {
			p.url = found
		}
	}
	go io.Copy(io.Discard, log)
	wait.For(t, "the board is online", func() bool {
		resp, err := http.Get(strings.TrimSuffix(p.url, "/mcp") + "/healthz")
		if err != nil {
			return false
		}
		body, _ := wholeBody(resp)
		return strings.Contains(body, `"online":1`)
	})
	return p
}

// bareProcess runs bare.
func bareProcess(t testing.TB, board string) (p process) {
	t.Helper()
	p.in, p.out = startProcess(t, exec.Command("bare", board))
	url, err := p.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "http") {
		t.Fatalf("bare says %q, %v", url, err)
	}
	p.url = strings.TrimSpace(url)
	return p
}

// process is a server in its own process.
type process struct {
	url, data string
	pid       int
	in        io.Writer
	out       *bufio.Reader
}

// memory returns the resident set after a garbage collection.
func (p process) memory(t testing.TB) (bytes int) {
	t.Helper()
	fmt.Fprintln(p.in)
	if _, err := fmt.Fscanln(p.out, &bytes); err != nil || bytes == 0 {
		t.Fatalf("%d bytes, %v", bytes, err)
	}
	return bytes
}
