package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// taskClient is a client that declares tasks. The SDK has none.
type taskClient struct {
	t          *testing.T
	url, token string
	undeclared bool
}

// post sends a request and returns its result, or its error.
func (c taskClient) post(method, name, params string) string {
	c.t.Helper()
	extensions := `"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}`
	if c.undeclared {
		extensions = ""
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{%s}}}}`, method, params, extensions)
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for header, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		req.Header.Set(header, value)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if i := bytes.IndexByte(data, '{'); i > 0 { // an event
		data = bytes.TrimSpace(data[i:])
	}
	var m struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(data, &m); err != nil {
		c.t.Fatalf("%s: %v", data, err)
	}
	return string(m.Result) + string(m.Error)
}

type shownTask struct {
	ResultType, TaskID, Status, StatusMessage string
	TTLMs                                     int64
	InputRequests                             map[string]json.RawMessage
	Result                                    struct{ StructuredContent json.RawMessage }
}

func (c taskClient) call(tool string) shownTask {
	c.t.Helper()
	return c.decode(c.post("tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":{}`, tool)))
}

func (c taskClient) get(id string) shownTask {
	c.t.Helper()
	return c.decode(c.post("tasks/get", id, fmt.Sprintf(`"taskId":%q`, id)))
}

func (c taskClient) decode(text string) (s shownTask) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return s
}

// ends waits until a task has a status.
func (c taskClient) ends(id, status string) (s shownTask) {
	c.t.Helper()
	wait.For(c.t, "task "+status, func() bool {
		s = c.get(id)
		return s.Status == status
	})
	return s
}

// TestTasks checks what the suite does not: the turn, the status, cancel, who may use a task,
// questions that are asked again, and the limit.
func TestTasks(t *testing.T) {
	board := thing.New("printer", "1")
	proceed := make(chan struct{})
	thing.Tool(board, "print", "Print", func(ctx context.Context, _ struct{}) (moved, error) {
		mcpserver.Progress(ctx, 3, 9, "printing")
		select {
		case <-proceed:
			return moved{9}, nil
		case <-ctx.Done():
			return moved{}, ctx.Err()
		}
	})
	thing.Tool(board, "detach", "Detach itself", func(ctx context.Context, _ struct{}) (moved, error) {
		mcpserver.Detach(ctx)
		<-proceed
		return moved{1}, nil
	})
	thing.Tool(board, "look", "Look", func(context.Context, struct{}) (moved, error) { return moved{4}, nil })
	d := mcpserver.New(board, mcpserver.Config{Tokens: []string{"one", "two"}, TaskAfter: time.Hour})
	d.Slow("print")
	c := taskClient{t: t, url: serve(t, d), token: "one"}

	first := c.call("print")
	if first.ResultType != "task" || first.Status != "working" || first.TTLMs <= 0 {
		t.Fatalf("got %+v", first)
	}
	if got := c.call("look"); got.TaskID != "" || got.ResultType != "complete" {
		t.Errorf("meanwhile: %+v", got)
	}
	if got := c.get(first.TaskID); got.StatusMessage != "printing (3 of 9)" {
		t.Errorf("got %+v", got)
	}
	other, undeclared := c, c
	other.token, undeclared.undeclared = "two", true
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if got := other.post(method, first.TaskID, fmt.Sprintf(`"taskId":%q`, first.TaskID)); !strings.Contains(got, "-32602") {
			t.Errorf("%s of another token: %s", method, got)
		}
		if got := undeclared.post(method, first.TaskID, fmt.Sprintf(`"taskId":%q`, first.TaskID)); !strings.Contains(got, "-32021") {
			t.Errorf("%s without the extension: %s", method, got)
		}
	}
	proceed <- struct{}{}
	if got := c.ends(first.TaskID, "completed"); string(got.Result.StructuredContent) != `{"position":9}` {
		t.Errorf("got %+v", got)
	}
	second := c.call("print")
	if got := c.post("tasks/cancel", second.TaskID, fmt.Sprintf(`"taskId":%q`, second.TaskID)); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("cancel: %s", got)
	}
	c.ends(second.TaskID, "cancelled")
	third := c.call("detach")
	if third.ResultType != "task" || c.call("look").ResultType != "complete" {
		t.Errorf("detached: %+v", third)
	}
	proceed <- struct{}{}
	c.ends(third.TaskID, "completed")
}

// TestTaskAsksAgain checks that a question whose answer is invalid is asked again under another
// key.
func TestTaskAsksAgain(t *testing.T) {
	board := thing.New("printer", "1")
	thing.Tool(board, "ask", "Ask", func(ctx context.Context, _ struct{}) (moved, error) {
		return mcpserver.AskUser[moved](ctx, "how_far", "How far?")
	})
	d := mcpserver.New(board, mcpserver.Config{})
	d.Slow("ask")
	c := taskClient{t: t, url: serve(t, d)}
	update := func(id, key, content string) {
		t.Helper()
		got := c.post("tasks/update", id, fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:{"action":"accept","content":%s},"nobody":{"action":"decline"}}`, id, key, content))
		if !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("update: %s", got)
		}
	}
	id := c.call("ask").TaskID
	if got := c.ends(id, "input_required"); len(got.InputRequests) != 1 || !strings.Contains(string(got.InputRequests["how_far"]), "How far?") {
		t.Fatalf("got %+v", got)
	}
	update(id, "how_far", `{"position":"far"}`)
	for got := c.get(id); got.InputRequests["how_far-2"] == nil; got = c.get(id) {
		if got.InputRequests["how_far"] != nil && got.Status != "input_required" || t.Context().Err() != nil {
			t.Fatalf("got %+v", got)
		}
	}
	update(id, "how_far", `{"position":5}`) // answered before: ignored
	update(id, "how_far-2", `{"position":6}`)
	if got := c.ends(id, "completed"); string(got.Result.StructuredContent) != `{"position":6}` {
		t.Errorf("got %+v", got)
	}
}
