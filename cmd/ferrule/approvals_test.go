package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// guarded makes tools of boards dangerous, by an overlay in a directory.
func guarded(t *testing.T, dir string, tools ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := "match: {protocol: mcpu}\ntools:\n"
	for _, tool := range tools {
		file += "  " + tool + ": {effect: endangers}\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "guarded.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withGuarded does the same in the configuration of a gateway.
func withGuarded(t *testing.T, tools ...string) func(*config.Config) {
	dir := t.TempDir()
	guarded(t, dir, tools...)
	return func(c *config.Config) { c.Overlays = dir }
}

// answers answers the next request as a person, through the built-in tool.
func (g *testGateway) answers(allow bool) {
	g.t.Helper()
	wait.For(g.t, "a call waits for approval", func() bool {
		all := g.Approvals.List()
		return len(all) == 1 && all[0].State == ferrule.ApprovalWaiting
	})
	args, err := json.Marshal(map[string]any{"id": g.Approvals.List()[0].ID, "allow": allow})
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.Pipeline.Handle(g.t.Context(), &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthSocket}, Device: ferrule.GatewayID, Tool: "answer_approval", Args: args,
	}); err != nil {
		g.t.Fatal(err)
	}
}

// agentPaths are the ways of an agent to the gateway.
var agentPaths = map[string]func(t *testing.T, g *testGateway, more func(*mcp.ClientOptions)) *testAgent{
	"http with sessions": func(t *testing.T, g *testGateway, more func(*mcp.ClientOptions)) *testAgent {
		return connectAgentWith(t, legacy, "/mcp", &mcp.StreamableClientTransport{Endpoint: g.url("/mcp")}, more)
	},
	"http without sessions": func(t *testing.T, g *testGateway, more func(*mcp.ClientOptions)) *testAgent {
		return connectAgentWith(t, modern, "/mcp", &mcp.StreamableClientTransport{Endpoint: g.url("/mcp")}, more)
	},
	"stdio": func(t *testing.T, g *testGateway, more func(*mcp.ClientOptions)) *testAgent {
		ours, theirs := newPipe(), newPipe()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- g.Agents.Stdio(ctx, theirs.Reader, ours.Writer) }()
		t.Cleanup(func() {
			cancel()
			<-ended
		})
		return connectAgentWith(t, legacy, "stdio", &mcp.IOTransport{Reader: ours.Reader, Writer: theirs.Writer}, more)
	},
}

// TestApprovalOfAgents lets agents of every kind call a guarded tool. They get progress
// while they wait, then the result, or that it was denied.
func TestApprovalOfAgents(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	for name, connect := range agentPaths {
		t.Run(name, func(t *testing.T) {
			agent := connect(t, g, func(*mcp.ClientOptions) {})
			for _, allow := range []bool{true, false} {
				token := name + map[bool]string{true: " allowed", false: " denied"}[allow]
				told := make(chan *agentOutcome, 1)
				go func() {
					outcome, err := agent.use(t.Context(), "robot__pulse", `{"token":"`+token+`"}`)
					if err != nil {
						t.Error(err)
					}
					told <- outcome
				}()
				select {
				case p := <-agent.progress:
					if !strings.HasPrefix(p.Message, "waiting for approval by a person, ") {
						t.Errorf("progress %q", p.Message)
					}
				case <-time.After(wait.Ample):
					t.Fatal("no progress")
				}
				if boards.Boards[0].Runs()[token] != 0 {
					t.Error("it ran before the answer")
				}
				g.answers(allow)
				outcome := <-told
				switch runs := boards.Boards[0].Runs()[token]; {
				case outcome == nil:
				case allow && (outcome.isError || runs != 1):
					t.Errorf("allowed: %+v, %d runs", outcome, runs)
				case !allow && (outcome.code != ferrule.Denied || !strings.Contains(outcome.text, "denied by person:anna") || runs != 0):
					t.Errorf("denied: %+v, %d runs", outcome, runs)
				}
			}
		})
	}
}

// TestApprovalByAgentsUser lets the user of an agent answer, whom the owner trusts with
// that.
func TestApprovalByAgentsUser(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"), func(c *config.Config) {
		c.Approvals.AskAgentsUser = []string{"local", "stdio", "local/test"}
	})
	g.online("robot")
	for name, connect := range agentPaths {
		t.Run(name, func(t *testing.T) {
			for _, allow := range []bool{true, false} {
				agent := connect(t, g, func(o *mcp.ClientOptions) {
					o.ElicitationHandler = func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						if !strings.Contains(req.Params.Message, "Ferrule asks for your approval. ") || !strings.Contains(req.Params.Message, " wants to call pulse on robot with ") {
							t.Errorf("question %q", req.Params.Message)
						}
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"allow": allow}}, nil
					}
				})
				token := name + map[bool]string{true: " yes", false: " no"}[allow]
				outcome, err := agent.use(t.Context(), "robot__pulse", `{"token":"`+token+`"}`)
				if err != nil {
					t.Fatal(err)
				}
				runs := boards.Boards[0].Runs()[token]
				if outcome.isError == allow || (runs == 1) != allow || !allow && !strings.Contains(outcome.text, "denied by the user of agent:") {
					t.Errorf("%v: %+v, %d runs", allow, outcome, runs)
				}
			}
		})
	}
}

// TestApprovalLink answers by the link that the webhook got, at the web server of the
// gateway.
func TestApprovalLink(t *testing.T) {
	links := make(chan string, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var in struct{ Link string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		links <- in.Link
	}))
	defer hook.Close()
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"), func(c *config.Config) {
		c.Approvals.Webhook = config.Webhook{URL: ferrule.Secret(hook.URL), Secret: "0123456789abcdef", Link: "http://localhost:1/"}
	})
	g.online("robot")
	done := make(chan error, 1)
	go func() {
		_, err := g.call("robot", "pulse", `{"token":"link"}`, 0)
		done <- err
	}()
	link, err := url.Parse(<-links)
	if err != nil {
		t.Fatal(err)
	}
	get := func(method string, header http.Header, form string) (int, string) {
		req, err := http.NewRequest(method, g.url(link.Path), strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, page := get(http.MethodGet, http.Header{}, ""); code != http.StatusOK || !strings.Contains(page, "pulse") || !strings.Contains(page, "Allow once") {
		t.Errorf("%d %s", code, page)
	}
	// Another site cannot answer, even if it knows the link.
	if code, _ := get(http.MethodPost, http.Header{"Origin": {"https://evil.example.com"}}, "answer=allow"); code != http.StatusForbidden {
		t.Errorf("another site: %d", code)
	}
	if n := boards.Boards[0].Runs()["link"]; n != 0 {
		t.Fatalf("%d runs before the answer", n)
	}
	if code, page := get(http.MethodPost, http.Header{"Origin": {"http://" + g.Addr()}}, "answer=allow"); code != http.StatusOK {
		t.Errorf("%d %s", code, page)
	}
	if err := <-done; err != nil || boards.Boards[0].Runs()["link"] != 1 {
		t.Error(err, boards.Boards[0].Runs())
	}
}
