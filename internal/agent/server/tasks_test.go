package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/agent/tasks"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// taskServer serves one device with tasks, over HTTP without tokens.
func taskServer(t *testing.T, handle ferrule.Handler, tools ...ferrule.Tool) (*Server, *taskClient) {
	t.Helper()
	return taskServerOn(t, tasks.NewMemory(), handle, tools...)
}

func taskServerOn(t *testing.T, store tasks.Store, handle ferrule.Handler, tools ...ferrule.Tool) (*Server, *taskClient) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := catalog.New(catalog.DefaultConfig())
	c.Put(&ferrule.Device{ID: "robot", Kind: "k", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, &ferrule.Manifest{Model: "board", Tools: tools})
	all := tasks.New(tasks.Parts{Store: store, Node: "a", Boot: "1", Log: log})
	s := New(Parts{Config: DefaultConfig(), Catalog: c, Handle: handle, Tasks: all, Version: "1", Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- all.Run(ctx) }()
	go func() { ended <- s.Run(ctx) }()
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return s, &taskClient{t: t, url: web.URL + "/mcp", name: "agent", declares: true}
}

// taskClient sends requests of 2026-07-28 over HTTP.
type taskClient struct {
	t        *testing.T
	url      string
	name     string
	declares bool // that it knows tasks
}

// reply is a response. Result has what its JSON has.
type reply struct {
	status int
	Result map[string]any `json:"result"`
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	} `json:"error"`
}

// meta returns the _meta of a request.
func (c *taskClient) meta() map[string]any {
	can := map[string]any{"elicitation": map[string]any{}}
	if c.declares {
		can["extensions"] = map[string]any{tasksExtension: map[string]any{}}
	}
	return map[string]any{
		"io.modelcontextprotocol/protocolVersion":    mcphttp.StatelessVersion,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": c.name, "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": can,
	}
}

// request returns an HTTP request.
func (c *taskClient) request(ctx context.Context, method string, params map[string]any, header map[string]string) *http.Request {
	c.t.Helper()
	params["_meta"] = c.meta()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set(mcphttp.VersionHeader, mcphttp.StatelessVersion)
	r.Header.Set(mcphttp.MethodHeader, method)
	for _, key := range []string{"name", "taskId"} {
		if name, ok := params[key].(string); ok {
			r.Header.Set(nameHeader, name)
		}
	}
	for key, value := range header {
		r.Header.Set(key, value)
	}
	return r
}

// do sends a request, and returns its response.
func (c *taskClient) do(method string, params map[string]any, header ...map[string]string) (out reply) {
	c.t.Helper()
	var more map[string]string
	if len(header) > 0 {
		more = header[0]
	}
	resp, err := http.DefaultClient.Do(c.request(c.t.Context(), method, params, more))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	text := string(body)
	if i := strings.LastIndex(text, "data: "); i >= 0 {
		text = text[i+len("data: "):]
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		c.t.Fatalf("%s: %v: %s", method, err, body)
	}
	out.status = resp.StatusCode
	return out
}

func (c *taskClient) call(tool string) reply {
	c.t.Helper()
	return c.do("tools/call", map[string]any{"name": "robot__" + tool, "arguments": map[string]any{}})
}

// begin makes a call that must become a task, and returns its ID.
func (c *taskClient) begin(tool string) string {
	c.t.Helper()
	r := c.call(tool)
	id, _ := r.Result["taskId"].(string)
	if r.Result["resultType"] != "task" || id == "" || r.Result["status"] != "working" && r.Result["status"] != "input_required" {
		c.t.Fatalf("got %+v", r)
	}
	for _, absent := range []string{"result", "error", "inputRequests", "requestState", "task"} {
		if _, ok := r.Result[absent]; ok {
			c.t.Errorf("a new task has %s", absent)
		}
	}
	return id
}

func (c *taskClient) task(method, id string) reply {
	c.t.Helper()
	return c.do(method, map[string]any{"taskId": id})
}

// until waits until a task has a status.
func (c *taskClient) until(id, status string) map[string]any {
	c.t.Helper()
	var last reply
	wait.For(c.t, "the task to be "+status, func() bool {
		last = c.task(getTask, id)
		return last.Result["status"] == status
	})
	return last.Result
}

// text returns the text of a result of tools/call.
func text0(result any) string {
	content, _ := result.(map[string]any)["content"].([]any)
	if len(content) == 0 {
		return ""
	}
	s, _ := content[0].(map[string]any)["text"].(string)
	return s
}

// gate is a device whose calls wait until they are let through.
type gate struct {
	arrived   chan *ferrule.Call
	open      chan error
	cancelled chan error // why calls were cancelled
}

func newGate() *gate {
	return &gate{make(chan *ferrule.Call, 100), make(chan error), make(chan error, 100)}
}

func (g *gate) handle(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
	call.Target.Tool = &ferrule.Tool{}
	g.arrived <- call
	select {
	case err := <-g.open:
		if err != nil {
			return nil, err
		}
		return &ferrule.Result{Value: json.RawMessage(`"done"`)}, nil
	case <-ctx.Done():
		g.cancelled <- context.Cause(ctx)
		return nil, ferrule.Errorf(ferrule.Cancelled, "%w", context.Cause(ctx)).AfterSend()
	}
}

var homeTools = []ferrule.Tool{{Name: "home", Effect: ferrule.Changes}, {Name: "bake", Effect: ferrule.Changes, Task: ferrule.TaskSlow}, {Name: "print", Effect: ferrule.Changes, Task: ferrule.TaskOnly}}

// TestTask: a call that takes long becomes a task, whose result is the one of the call. The
// device gets the call once. A call that is quick has a plain result.
func TestTask(t *testing.T) {
	g := newGate()
	_, c := taskServer(t, g.handle, homeTools...)
	for _, tool := range []string{"home", "bake", "print"} {
		id := c.begin(tool)
		call := <-g.arrived
		call.Report(ferrule.Progress{Message: "homing", Done: 1, Total: 4})
		wait.For(t, "the message", func() bool { return c.task(getTask, id).Result["statusMessage"] == "homing (1 of 4)" })
		g.open <- nil
		got := c.until(id, "completed")
		if got["resultType"] != "complete" || text0(got["result"]) != "done" || got["ttlMs"].(float64) < 600_000 || got["pollIntervalMs"].(float64) < 500 {
			t.Errorf("%s: got %v", tool, got)
		}
		if ack := c.task(cancelTask, id); !reflect.DeepEqual(ack.Result, map[string]any{"resultType": "complete"}) {
			t.Errorf("got %+v", ack)
		}
		if again := c.task(getTask, id); again.Result["status"] != "completed" {
			t.Errorf("got %+v after cancelling what had ended", again)
		}
	}
	go func() { g.open <- nil }()
	if r := c.call("home"); r.Result["resultType"] != "complete" || text0(r.Result) != "done" {
		t.Errorf("got %+v", r)
	}
	if n := len(g.arrived); n != 1 {
		t.Errorf("the device got %d calls more", n-1)
	}
}

// TestTaskFails: what the device did not do is a result with an error, which says whether it
// may have run.
func TestTaskFails(t *testing.T) {
	g := newGate()
	_, c := taskServer(t, g.handle, homeTools...)
	id := c.begin("bake")
	g.open <- ferrule.Errorf(ferrule.Unanswered, "robot did not answer")
	got := c.until(id, "completed")
	if result := got["result"].(map[string]any); result["isError"] != true || text0(result) != "robot did not answer. The action may have run." {
		t.Errorf("got %v", got)
	}
	id = c.begin("bake")
	g.open <- &ferrule.Error{Code: ferrule.Refused, Message: "it cannot ask", Needs: []ferrule.AskTarget{ferrule.Roots}}
	got = c.until(id, "failed")
	if fault, _ := got["error"].(map[string]any); fault["code"] != -32021.0 || got["result"] != nil {
		t.Errorf("got %v", got)
	}
}

// TestTaskCancel: a call that is cancelled before it was sent did not run, afterwards it may
// have run.
func TestTaskCancel(t *testing.T) {
	sent := false
	_, c := taskServer(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		<-ctx.Done()
		e := ferrule.Errorf(ferrule.Cancelled, "%w", context.Cause(ctx))
		e.Sent = sent
		return nil, e
	}, homeTools...)
	for _, want := range []string{"cancelled. Nothing was sent.", "cancelled. The action may have run."} {
		id := c.begin("bake")
		if ack := c.task(cancelTask, id); ack.Result["resultType"] != "complete" {
			t.Fatalf("got %+v", ack)
		}
		if got := c.until(id, "cancelled"); got["statusMessage"] != want || got["result"] != nil {
			t.Errorf("got %v, want %s", got, want)
		}
		sent = true
	}
}

// TestTaskOutlivesRequest: a client that leaves after it has the ID does not cancel the call,
// one that leaves before does.
func TestTaskOutlivesRequest(t *testing.T) {
	g := newGate()
	_, c := taskServer(t, g.handle, homeTools...)
	id := c.begin("bake")
	http.DefaultClient.CloseIdleConnections()
	<-g.arrived
	g.open <- nil
	c.until(id, "completed")
	if len(g.cancelled) > 0 {
		t.Errorf("the task was cancelled: %v", <-g.cancelled)
	}

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(c.request(ctx, "tools/call", map[string]any{"name": "robot__home"}, nil))
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	<-g.arrived
	cancel()
	if err := <-left; err == nil {
		t.Error("the request had an answer")
	}
	select {
	case <-g.cancelled:
	case <-time.After(wait.Ample):
		t.Error("the call of a client that left goes on")
	}
}

// TestTaskQuestions: questions of a slow tool are in its task, and answered one by one; those
// of another one come first by the result of the call.
func TestTaskQuestions(t *testing.T) {
	handle := func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
		var texts []string
		for _, name := range []string{"first", "second"} {
			a, err := call.Ask(ctx, ferrule.Question{Name: name, Text: "Sure?", Schema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}}}`)})
			if err != nil {
				return nil, ferrule.Errorf(ferrule.Refused, "%w", err)
			}
			texts = append(texts, string(a.Value))
			if call.Tool == "home" {
				time.Sleep(taskAfter + 200*time.Millisecond)
			}
		}
		return &ferrule.Result{Content: []ferrule.Content{{Type: ferrule.TextContent, Text: strings.Join(texts, " ")}}}, nil
	}
	_, c := taskServer(t, handle, homeTools...)
	answer := func(value int) map[string]any {
		return map[string]any{"action": "accept", "content": map[string]any{"ok": value}}
	}
	update := func(id string, value int) string {
		t.Helper()
		got := c.until(id, "input_required")
		requests := got["inputRequests"].(map[string]any)
		if len(requests) != 1 {
			t.Fatalf("got %v", got)
		}
		for key, request := range requests {
			if request.(map[string]any)["method"] != "elicitation/create" {
				t.Errorf("got %v", request)
			}
			responses := map[string]any{key: answer(value), "unknown": map[string]any{"any": 1}}
			if ack := c.do(updateTask, map[string]any{"taskId": id, "inputResponses": responses}); ack.Result["resultType"] != "complete" {
				t.Fatalf("got %+v", ack)
			}
			return key
		}
		return ""
	}
	id := c.begin("bake")
	first := update(id, 1)
	wait.For(t, "the second question", func() bool {
		requests, _ := c.task(getTask, id).Result["inputRequests"].(map[string]any)
		return len(requests) == 1 && requests[first] == nil
	})
	if second := update(id, 2); first == second {
		t.Errorf("both have the key %s", first)
	}
	if got := c.until(id, "completed"); text0(got["result"]) != `{"ok":1} {"ok":2}` {
		t.Errorf("got %v", got)
	}

	r := c.call("home")
	if r.Result["resultType"] != "input_required" || r.Result["taskId"] != nil {
		t.Fatalf("got %+v", r)
	}
	r = c.do("tools/call", map[string]any{
		"name": "robot__home", "arguments": map[string]any{}, "requestState": r.Result["requestState"], "inputResponses": map[string]any{"first": answer(3)},
	})
	id, _ = r.Result["taskId"].(string)
	if r.Result["resultType"] != "task" {
		t.Fatalf("got %+v", r)
	}
	update(id, 4)
	if got := c.until(id, "completed"); text0(got["result"]) != `{"ok":3} {"ok":4}` {
		t.Errorf("got %v", got)
	}
}

// TestTaskUndeclared: a client without tasks waits, cannot ask for tasks, and cannot call what
// runs only as a task. Versions before 2026-07-28 do not see the extension.
func TestTaskUndeclared(t *testing.T) {
	g := newGate()
	f, c := taskServer(t, g.handle, homeTools...)
	id := c.begin("bake")
	g.open <- nil
	c.declares = false
	opened := time.AfterFunc(taskAfter+300*time.Millisecond, func() { g.open <- nil })
	defer opened.Stop()
	if r := c.call("bake"); r.Result["resultType"] != "complete" || text0(r.Result) != "done" {
		t.Errorf("got %+v", r)
	}
	for _, r := range []reply{c.task(getTask, id), c.task(updateTask, id), c.task(cancelTask, id), c.call("print")} {
		if r.Error == nil || r.Error.Code != -32021 || r.status != http.StatusBadRequest || !strings.Contains(string(r.Error.Data), tasksExtension) {
			t.Errorf("got %+v", r)
		}
	}
	if len(g.arrived) != 2 {
		t.Errorf("the device got %d calls", len(g.arrived))
	}
	session := connect(t, f, mcphttp.SessionVersion, nil)
	if _, ok := session.InitializeResult().Capabilities.Extensions[tasksExtension]; ok {
		t.Error("2025-11-25 has the extension")
	}
}

// TestTaskStrangers: the task of somebody else and one that does not exist have the same
// answer, and a request whose header names another task is refused.
func TestTaskStrangers(t *testing.T) {
	g := newGate()
	_, c := taskServer(t, g.handle, homeTools...)
	id := c.begin("bake")
	other := *c
	other.name = "another"
	for _, method := range []string{getTask, updateTask, cancelTask} {
		want, got := c.task(method, "unknown"), other.task(method, id)
		if got.Error == nil || got.Error.Code != -32602 || got.status != http.StatusBadRequest || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", method, got, want)
		}
		wrong := c.do(method, map[string]any{"taskId": id}, map[string]string{nameHeader: "wrong"})
		if wrong.Error == nil || wrong.Error.Code != -32020 || wrong.status != http.StatusBadRequest {
			t.Errorf("%s: got %+v", method, wrong)
		}
	}
	for _, method := range []string{"tasks/list", "tasks/result"} {
		if r := c.task(method, id); r.Error == nil || r.Error.Code != -32601 {
			t.Errorf("%s: got %+v", method, r)
		}
	}
	g.open <- nil
	c.until(id, "completed")
}

// full is a store without room.
type fullStore struct{ *tasks.Memory }

func (fullStore) Put(context.Context, *ferrule.Task, uint64) (uint64, error) {
	return 0, fmt.Errorf("no space left")
}

// TestTaskNotStored: a call whose task cannot be stored is answered when it has ended.
func TestTaskNotStored(t *testing.T) {
	g := newGate()
	_, c := taskServerOn(t, fullStore{tasks.NewMemory()}, g.handle, homeTools...)
	opened := time.AfterFunc(taskAfter, func() { g.open <- nil })
	defer opened.Stop()
	if r := c.call("bake"); r.Result["resultType"] != "complete" || text0(r.Result) != "done" || len(g.arrived) != 1 {
		t.Errorf("got %+v and %d calls", r, len(g.arrived))
	}
}

// TestTaskNotifications: a client is told about its tasks, over HTTP and on lines, after what
// it will hear of is acknowledged.
func TestTaskNotifications(t *testing.T) {
	for _, transport := range []string{"http", "lines"} {
		t.Run(transport, func(t *testing.T) {
			g := newGate()
			f, c := taskServer(t, g.handle, homeTools...)
			next, send := c.overHTTP()
			if transport == "lines" {
				next, send = c.onLines(f)
			}
			id := send("tools/call", map[string]any{"name": "robot__bake"}, next)
			send(listenMethod, map[string]any{"notifications": map[string]any{"taskIds": []string{id, "unknown"}}}, nil)
			ack := next()
			params, _ := ack["params"].(map[string]any)
			agreed, _ := params["notifications"].(map[string]any)
			if ack["method"] != ackMethod || fmt.Sprint(agreed["taskIds"]) != "["+id+"]" {
				t.Fatalf("got %v", ack)
			}
			call := <-g.arrived
			reported := false
			for _, want := range []string{"working ", "working baking", "completed "} {
				var got map[string]any
				for got = next(); got["method"] != taskNotification; got = next() {
					t.Logf("got %v", got)
				}
				task := got["params"].(map[string]any)
				meta, _ := task["_meta"].(map[string]any)
				message, _ := task["statusMessage"].(string)
				if fmt.Sprint(task["status"], " ", message) != want || task["taskId"] != id || task["resultType"] != nil || meta["io.modelcontextprotocol/subscriptionId"] == nil {
					t.Errorf("got %v, want %s", got, want)
				}
				switch {
				case !reported:
					reported = true
					call.Report(ferrule.Progress{Message: "baking"})
				case want == "working baking":
					g.open <- nil
				case text0(task["result"]) != "done":
					t.Errorf("got %v", task)
				}
			}
			c.declares = false
			if r := c.do(listenMethod, map[string]any{"notifications": map[string]any{"taskIds": []string{id}}}); r.Error == nil || r.Error.Code != -32021 {
				t.Errorf("without tasks: got %+v", r)
			}
		})
	}
}

// nextOf returns a function that waits for the next message.
func (c *taskClient) nextOf(events <-chan map[string]any) func() map[string]any {
	return func() map[string]any {
		c.t.Helper()
		select {
		case event := <-events:
			return event
		case <-time.After(wait.Ample):
			c.t.Fatal("no message")
			return nil
		}
	}
}

// overHTTP returns functions that read messages of a stream, and send requests.
func (c *taskClient) overHTTP() (next func() map[string]any, send func(string, map[string]any, func() map[string]any) string) {
	events := make(chan map[string]any, 100)
	return c.nextOf(events), func(method string, params map[string]any, _ func() map[string]any) string {
		c.t.Helper()
		if method != listenMethod {
			return c.do(method, params).Result["taskId"].(string)
		}
		resp, err := http.DefaultClient.Do(c.request(c.t.Context(), method, params, nil))
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { resp.Body.Close() })
		go readLines(resp.Body, "data: ", events)
		return ""
	}
}

// onLines does the same for an agent on a pair of streams.
func (c *taskClient) onLines(f *Server) (next func() map[string]any, send func(string, map[string]any, func() map[string]any) string) {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- f.Stdio(context.Background(), in, out) }()
	c.t.Cleanup(func() {
		toServer.Close()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
		fromServer.Close()
	})
	events := make(chan map[string]any, 100)
	go readLines(fromServer, "", events)
	id := 0
	return c.nextOf(events), func(method string, params map[string]any, answer func() map[string]any) string {
		c.t.Helper()
		id++
		params["_meta"] = c.meta()
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": fmt.Sprint("r", id), "method": method, "params": params})
		if err != nil {
			c.t.Fatal(err)
		}
		if _, err := toServer.Write(append(line, '\n')); err != nil {
			c.t.Fatal(err)
		}
		if answer == nil {
			return ""
		}
		result, _ := answer()["result"].(map[string]any)
		return result["taskId"].(string)
	}
}

// readLines decodes messages that begin a line after a prefix.
func readLines(r io.Reader, prefix string, events chan<- map[string]any) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), prefix)
		var message map[string]any
		if ok && json.Unmarshal([]byte(text), &message) == nil {
			events <- message
		}
	}
}
