package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// taskAgent is an agent that knows tasks, which no client of the SDK does.
type taskAgent struct {
	t   *testing.T
	url string
	ask map[string]any // modes of elicitation; nil for none
}

// request sends a request of 2026-07-28, and returns its result.
func (a taskAgent) request(method, name string, params map[string]any) map[string]any {
	a.t.Helper()
	result, err := requestTask(a.t.Context(), strings.TrimSuffix(strings.TrimPrefix(a.url, "http://"), "/mcp"), method, name, params, a.ask)
	if err != nil {
		a.t.Fatalf("%s: %v", method, err)
	}
	return result
}

// requestTask sends a request of 2026-07-28 to a gateway as an agent that knows tasks, over a
// connection of its own. The agent can ask its user as described by ask, unless that is nil.
func requestTask(ctx context.Context, listen, method, name string, params, ask map[string]any) (map[string]any, error) {
	can := map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}
	if ask != nil {
		can["elicitation"] = ask
	}
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    modern,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "tasks", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": can,
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listen+"/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for key, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": modern, "Mcp-Method": method, "Mcp-Name": name,
	} {
		req.Header.Set(key, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wait.Ample}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		var message struct {
			Result map[string]any
			Error  *struct{ Message string }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "data: ")), &message) != nil {
			continue
		}
		if message.Error != nil {
			return nil, errors.New(message.Error.Message)
		}
		if message.Result != nil {
			return message.Result, nil
		}
	}
	return nil, fmt.Errorf("%s: %s", resp.Status, data)
}

// tasker is a command that is an agent. It makes a call, and prints the ID of its task, or has
// the ID as its last argument. It prints what the task does, and at last its outcome as JSON.
func tasker() {
	fail := func(values ...any) {
		fmt.Fprintln(os.Stderr, values...)
		os.Exit(1)
	}
	listen, tool, args, id := os.Args[1], os.Args[2], os.Args[3], strings.Join(os.Args[4:], "")
	for end := time.Now().Add(wait.Ample); id == ""; time.Sleep(100 * time.Millisecond) {
		result, err := requestTask(context.Background(), listen, "tools/call", tool, map[string]any{"name": tool, "arguments": json.RawMessage(args)}, nil)
		failed, _ := result["isError"].(bool)
		switch {
		case time.Now().After(end):
			fail("no task:", result, err)
		case err != nil: // the node or the board is not there yet
		case !failed:
			if id, _ = result["taskId"].(string); id == "" {
				fail("no task:", result)
			}
			fmt.Println(id)
		case !strings.Contains(fmt.Sprint(result), "Nothing was sent"):
			fail("it may have run:", result)
		}
	}
	for ; ; time.Sleep(100 * time.Millisecond) {
		got, err := requestTask(context.Background(), listen, "tasks/get", id, map[string]any{"taskId": id}, nil)
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
		case got["status"] == "working":
			fmt.Println(got["statusMessage"])
		default:
			json.NewEncoder(os.Stdout).Encode(got)
			return
		}
	}
}

// begin makes a call that becomes a task.
func (a taskAgent) begin(tool string, args map[string]any) (id string) {
	a.t.Helper()
	task := a.request("tools/call", tool, map[string]any{"name": tool, "arguments": args})
	if task["resultType"] != "task" {
		a.t.Fatalf("got %v", task)
	}
	return task["taskId"].(string)
}

// until waits until a task has a status, and returns it with its JSON.
func (a taskAgent) until(id, status string) (task map[string]any, text string) {
	a.t.Helper()
	wait.For(a.t, "the task to be "+status, func() bool {
		task = a.request("tasks/get", id, map[string]any{"taskId": id})
		return task["status"] == status
	})
	data, err := json.Marshal(task)
	if err != nil {
		a.t.Fatal(err)
	}
	return task, string(data)
}

// TestApprovalAsTask: a call that waits for a person is a task, which says so. What the person
// allows runs once; what is denied or cancelled does not run.
func TestApprovalAsTask(t *testing.T) {
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	agent := taskAgent{t: t, url: g.url("/mcp")}
	for _, token := range []string{"allowed", "denied", "cancelled"} { // the request of the last one stays open
		want := "completed"
		if token == "cancelled" {
			want = token
		}
		id := agent.begin("robot__pulse", map[string]any{"token": token})
		task, _ := agent.until(id, "working")
		if message, _ := task["statusMessage"].(string); !strings.HasPrefix(message, "waiting for approval by a person, ") {
			t.Errorf("got %q", message)
		}
		if token == "cancelled" {
			agent.request("tasks/cancel", id, map[string]any{"taskId": id})
		} else {
			g.answers(token == "allowed")
		}
		_, text := agent.until(id, want)
		runs := boards.Boards[0].Runs()[token]
		switch {
		case token == "allowed" && (strings.Contains(text, `"isError":true`) || runs != 1),
			token == "denied" && (!strings.Contains(text, `"isError":true`) || !strings.Contains(text, "denied by person:anna") || !strings.Contains(text, "Nothing was sent.") || runs != 0),
			token == "cancelled" && (!strings.Contains(text, "Nothing was sent.") || runs != 0):
			t.Errorf("%s: %d runs, %s", token, runs, text)
		}
	}
	got := slices.DeleteFunc(g.outcomes("robot", "pulse"), func(e ferrule.Entry) bool { return e.Code != "" }) // refusals are written later
	if len(got) != 1 {
		t.Errorf("the journal has %+v", got)
	}
}

// TestApprovalPageAsTask: the agent's own user is asked to open the page, if the agent can do that.
// That the page was opened approves nothing, whatever the agent adds. What is declined, or not answered
// in time, is completed with an error, and does not run.
func TestApprovalPageAsTask(t *testing.T) {
	boards := startSim(t, sim.Config{})
	start := func(limit time.Duration) (*testGateway, taskAgent) {
		g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withOverlay(t, "match: {device: robot}\ntools: {pulse: {effect: endangers, task: slow}}\n"), func(c *config.Config) {
			c.Approvals.AskAgentsUser, c.Approvals.Wait = []string{"local/tasks"}, config.Interval(limit)
		})
		g.online("robot")
		wait.For(t, "the store of tasks", func() bool {
			_, err := g.Tasks.Get(t.Context(), ferrule.Principal{}, rand.Text())
			return err != nil && strings.Contains(err.Error(), "unknown task")
		})
		return g, taskAgent{t, g.url("/mcp"), map[string]any{"form": map[string]any{}, "url": map[string]any{}}}
	}
	for _, c := range []struct {
		token, action string
		allow         bool // by a person, on the page
		want          string
		wait          time.Duration
	}{
		{"page allowed", "accept", true, "", wait.Ample},
		{"page opened", "accept", false, "nobody approved it", 8 * time.Second},
		{"page declined", "decline", false, "denied by the user of agent:local/tasks", wait.Ample},
	} {
		g, agent := start(c.wait)
		id := agent.begin("robot__pulse", map[string]any{"token": c.token})
		task, _ := agent.until(id, "input_required")
		answers := make(map[string]any)
		for key, request := range task["inputRequests"].(map[string]any) {
			params := request.(map[string]any)["params"].(map[string]any)
			if params["mode"] != "url" || params["url"] != g.url("/approvals") || params["requestedSchema"] != nil || !strings.Contains(params["message"].(string), " wants to call pulse on robot with ") {
				t.Errorf("%s: got %v", c.token, params)
			}
			answers[key] = map[string]any{"action": c.action, "content": map[string]any{"allow": true}}
		}
		if len(answers) != 1 {
			t.Fatalf("%s: got %v", c.token, task)
		}
		agent.request("tasks/update", id, map[string]any{"taskId": id, "inputResponses": answers})
		if c.action == "accept" {
			agent.until(id, "working")
		}
		if n := boards.Boards[0].Runs()[c.token]; n != 0 {
			t.Errorf("%s: it ran before the answer", c.token)
		}
		if c.allow {
			g.answers(true)
		}
		_, text := agent.until(id, "completed")
		runs := boards.Boards[0].Runs()[c.token]
		if c.want == "" && (strings.Contains(text, `"isError":true`) || runs != 1) ||
			c.want != "" && (!strings.Contains(text, `"isError":true`) || !strings.Contains(text, c.want) || !strings.Contains(text, "Nothing was sent.") || runs != 0) {
			t.Errorf("%s: %d runs, %s", c.token, runs, text)
		}
		g.stop()
	}
}
