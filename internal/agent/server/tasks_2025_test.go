package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// message is a message of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params map[string]any  `json:"params"`
	reply
}

// next returns the next message.
func (c *lineClient) next() (m message) {
	c.t.Helper()
	line := c.read()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		c.t.Fatalf("got %q: %v", line, err)
	}
	return m
}

// send sends a request.
func (c *lineClient) send(id int, method string, params any) {
	c.t.Helper()
	request := map[string]any{"jsonrpc": "2.0", "id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	data, err := json.Marshal(request)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(string(data))
}

// do sends a request, and returns the next message.
func (c *lineClient) do(method string, params any) message {
	c.t.Helper()
	c.send(1, method, params)
	return c.next()
}

// begin calls a tool as a task, and returns its ID.
func (c *lineClient) begin(tool string) string {
	c.t.Helper()
	r := c.do("tools/call", map[string]any{"name": "robot__" + tool, "arguments": map[string]any{}, "task": map[string]any{"ttl": 60000}})
	task, _ := r.Result["task"].(map[string]any)
	id, _ := task["taskId"].(string)
	if id == "" || task["status"] != "working" || task["ttl"].(float64) < 600_000 || task["pollInterval"].(float64) < 500 || task["createdAt"] == nil || task["lastUpdatedAt"] == nil || len(r.Result) != 1 {
		c.t.Fatalf("got %+v", r)
	}
	return id
}

func (c *lineClient) task(method, id string) message {
	c.t.Helper()
	return c.do(method, map[string]any{"taskId": id})
}

// oldTasks serves a client of 2025-11-25 that knows tasks.
func oldTasks(t *testing.T, handle ferrule.Handler) *lineClient {
	t.Helper()
	s, _ := taskServer(t, handle, homeTools...)
	c := onLines(t, s)
	c.initialize(mcphttp.SessionVersion, `{"tasks":{},"elicitation":{}}`)
	return c
}

// TestOldTask: a call of 2025-11-25 that is asked for as a task is one at once, and tasks/result
// waits for the result. The device gets the call once. A call without that has a plain result.
func TestOldTask(t *testing.T) {
	g := newGate()
	c := oldTasks(t, g.handle)
	for _, tool := range []string{"home", "bake", "print"} {
		id := c.begin(tool)
		(<-g.arrived).Report(ferrule.Progress{Message: "homing"})
		wait.For(t, "the message", func() bool { return c.task(getTask, id).Result["statusMessage"] == "homing" })
		c.send(7, resultTask, map[string]any{"taskId": id})
		if got := c.task(getTask, id); got.Result["status"] != "working" { // the other request waits
			t.Errorf("got %+v", got)
		}
		g.open <- nil
		got := c.next()
		want := map[string]any{relatedTask: map[string]any{"taskId": id}}
		if string(got.ID) != "7" || text0(got.Result) != "done" || !reflect.DeepEqual(got.Result["_meta"], want) || got.Result["isError"] != nil {
			t.Errorf("%s: got %+v", tool, got)
		}
		if again := c.task(resultTask, id); text0(again.Result) != "done" {
			t.Errorf("the second time: got %+v", again)
		}
		if got := c.task(cancelTask, id); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("cancelled what had ended: got %+v", got)
		}
	}
	go func() { g.open <- nil }()
	if r := c.do("tools/call", map[string]any{"name": "robot__bake"}); text0(r.Result) != "done" || r.Result["task"] != nil {
		t.Errorf("got %+v", r)
	}
	if n := len(g.arrived); n != 1 {
		t.Errorf("the device got %d calls more", n-1)
	}
	if r := c.do("tools/call", map[string]any{"name": "nothing", "task": map[string]any{}}); r.Error == nil || r.Error.Code != -32602 {
		t.Errorf("got %+v", r)
	}
	if r := c.task(updateTask, "x"); r.Error == nil || r.Error.Code != -32601 {
		t.Errorf("got %+v", r)
	}
}

// TestOldTaskEnds: what failed has the words of the call, and says whether it may have run; what
// was cancelled, too.
func TestOldTaskEnds(t *testing.T) {
	g := newGate()
	c := oldTasks(t, g.handle)
	id := c.begin("bake")
	g.open <- ferrule.Errorf(ferrule.Unanswered, "robot did not answer")
	if got := c.task(resultTask, id); got.Result["isError"] != true || text0(got.Result) != "robot did not answer. The action may have run." {
		t.Errorf("got %+v", got)
	}
	id = c.begin("bake")
	if got := c.task(cancelTask, id); got.Result["status"] != "cancelled" || got.Result["taskId"] != id || got.Result["statusMessage"] != "cancelled. The action may have run." {
		t.Errorf("got %+v", got)
	}
	if got := c.task(resultTask, id); got.Result["isError"] != true || text0(got.Result) != "cancelled. The action may have run." {
		t.Errorf("got %+v", got)
	}
}

// TestOldTaskQuestions: questions are requests in the stream of tasks/result.
func TestOldTaskQuestions(t *testing.T) {
	c := oldTasks(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		a, err := call.Ask(ctx, ferrule.Question{Name: "sure", Text: "Sure?", Schema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}}}`)})
		if err != nil {
			return nil, err
		}
		return &ferrule.Result{Value: a.Value}, nil
	})
	id := c.begin("bake")
	wait.For(t, "the question", func() bool { return c.task(getTask, id).Result["status"] == "input_required" })
	c.send(7, resultTask, map[string]any{"taskId": id})
	asked := c.next()
	meta, _ := asked.Params["_meta"].(map[string]any)
	if asked.Method != "elicitation/create" || asked.Params["message"] != "Sure?" || !reflect.DeepEqual(meta[relatedTask], map[string]any{"taskId": id}) {
		t.Fatalf("got %+v", asked)
	}
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"ok":true}}}`, asked.ID))
	if got := c.next(); string(got.ID) != "7" || text0(got.Result) != `{"ok":true}` {
		t.Errorf("got %+v", got)
	}
}

// TestOldTaskList: a caller lists its own tasks, and those of others do not exist for it.
func TestOldTaskList(t *testing.T) {
	g := newGate()
	s, other := taskServer(t, g.handle, homeTools...)
	c := onLines(t, s)
	c.initialize(mcphttp.SessionVersion, `{"tasks":{}}`)
	theirs := other.begin("bake")
	mine := c.begin("bake")
	list := c.do(listTasks, nil)
	all, _ := list.Result["tasks"].([]any)
	if len(all) != 1 || all[0].(map[string]any)["taskId"] != mine || list.Result["nextCursor"] != nil {
		t.Errorf("got %+v, %+v", list, list.Error)
	}
	for _, method := range []string{getTask, resultTask, cancelTask} {
		got, want := c.task(method, theirs), c.task(method, "unknown")
		if got.Error == nil || got.Error.Code != -32602 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", method, got, want)
		}
	}
	g.open <- nil
	g.open <- nil
}

// TestOldTaskNotStored: nothing is sent if there cannot be a task.
func TestOldTaskNotStored(t *testing.T) {
	g := newGate()
	s, _ := taskServerOn(t, fullStore{tasks.NewMemory()}, g.handle, homeTools...)
	c := onLines(t, s)
	c.initialize(mcphttp.SessionVersion, `{}`)
	r := c.do("tools/call", map[string]any{"name": "robot__bake", "task": map[string]any{}})
	if r.Error == nil || !strings.Contains(r.Error.Message, "Nothing was sent.") || len(g.arrived) > 0 {
		t.Errorf("got %+v and %d calls", r, len(g.arrived))
	}
}

// TestOldTaskDeclared: only clients of 2025-11-25 that declare tasks are told about them, over
// HTTP and on lines.
func TestOldTaskDeclared(t *testing.T) {
	g := newGate()
	for _, c := range []struct {
		version, capabilities string
		told                  bool
	}{
		{mcphttp.SessionVersion, `{"tasks":{}}`, true},
		{mcphttp.SessionVersion, `{"tasks":{"requests":{"elicitation":{"create":{}}}}}`, true},
		{mcphttp.SessionVersion, `{}`, false},
		{mcphttp.SessionVersion, `{"tasks":null}`, false},
		{"2025-06-18", `{"tasks":{}}`, false},
	} {
		s, _ := taskServer(t, g.handle, homeTools...)
		client := onLines(t, s)
		first := client.initialize(c.version, c.capabilities)
		list := client.do("tools/list", map[string]any{})
		support := make(map[string]string)
		for _, tool := range list.Result["tools"].([]any) {
			tool := tool.(map[string]any)
			execution, _ := tool["execution"].(map[string]any)
			support[tool["name"].(string)] = fmt.Sprint(execution["taskSupport"])
		}
		want := map[string]string{"robot__home": "<nil>", "robot__bake": "<nil>", "robot__print": "<nil>"}
		if c.told {
			want["robot__bake"], want["robot__print"] = "optional", "required"
		}
		if strings.Contains(first, `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`) != c.told || strings.Contains(first, `"tasks"`) != c.told || !reflect.DeepEqual(support, want) {
			t.Errorf("%+v: got %s and %v", c, first, support)
		}
		if c.version != mcphttp.SessionVersion {
			r := client.do("tools/call", map[string]any{"name": "robot__print", "task": map[string]any{}})
			if r.Result["isError"] != true {
				t.Errorf("%s: got %+v", c.version, r)
			}
			if r := client.task(getTask, "x"); r.Error == nil || r.Error.Code != -32601 {
				t.Errorf("%s: got %+v", c.version, r)
			}
		}
	}
}

// TestOldTaskOverHTTP: the same over HTTP. What passes on the task in _meta cannot be set by a
// client.
func TestOldTaskOverHTTP(t *testing.T) {
	g := newGate()
	_, c := taskServer(t, g.handle, homeTools...)
	session := ""
	do := func(method, params string) (out reply) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set(mcphttp.VersionHeader, mcphttp.SessionVersion)
			r.Header.Set(mcphttp.SessionHeader, session)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		session = cmp.Or(resp.Header.Get(mcphttp.SessionHeader), session)
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if i := strings.LastIndex(text, "data: "); i >= 0 {
			text = text[i+len("data: "):]
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%s: %v: %s", method, err, data)
		}
		return out
	}
	can := do("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}},"clientInfo":{"name":"c","version":"1"}}`).Result["capabilities"].(map[string]any)
	if can["tasks"] == nil || can["tools"] == nil {
		t.Errorf("got %v", can)
	}
	task, _ := do("tools/call", `{"name":"robot__bake","task":{"ttl":1000}}`).Result["task"].(map[string]any)
	go func() { g.open <- nil }()
	if r := do(resultTask, fmt.Sprintf(`{"taskId":%q}`, task["taskId"])); text0(r.Result) != "done" {
		t.Errorf("got %+v", r)
	}
	go func() { g.open <- nil }()
	if r := do("tools/call", `{"name":"robot__bake","_meta":{"ferrule/task":{}}}`); text0(r.Result) != "done" {
		t.Errorf("got %+v", r)
	}
	if n := len(g.arrived); n != 2 {
		t.Errorf("the device got %d calls", n)
	}
}
