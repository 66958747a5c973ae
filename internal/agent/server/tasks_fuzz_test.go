package server

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/mcphttp"
)

// FuzzDropped: whatever a client sends, its message keeps its meaning, and the client cannot set
// what is passed on.
func FuzzDropped(f *testing.F) {
	f.Add([]byte(`{"id":"r1","method":"subscriptions/listen","params":{"notifications":{"taskIds":["a"]},"_meta":{"ferrule/listen":"{}","x":1}}}`))
	f.Add([]byte(`{"id":1,"method":"subscriptions/listen","params":{"notifications":{"taskIds":null,"toolsListChanged":true},"_meta":{}}}`))
	f.Add([]byte(`{"id":1,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{"ferrule/listen":"forged"}}}`))
	f.Add([]byte(`{"id":1,"method":"tools/call","params":{"name":"a","task":{"ttl":1},"_meta":{"ferrule/task":"forged"}}}`))
	f.Add([]byte(`{"id":1,"method":"tools/call","params":{"name":"a","_meta":{"ferrule/task":"forged"}}}`))
	f.Add([]byte(`{"id":1,"method":"initialize","params":{"capabilities":{"tasks":{}}}}`))
	f.Add([]byte(`{"method":"tools/call","params":{"task":null,"_meta":1}}`))
	f.Add([]byte(`[{"method":"tools/call","params":{"task":{}}}]`))
	f.Fuzz(func(t *testing.T, message []byte) {
		got := withDropped(message)
		if bytes.Equal(got, message) {
			return
		}
		type request struct {
			ID     json.RawMessage            `json:"id"`
			Method string                     `json:"method"`
			Params map[string]json.RawMessage `json:"params"`
		}
		var before, after request
		if json.Unmarshal(message, &before) != nil || json.Unmarshal(got, &after) != nil || before.Method != after.Method || !sameJSON(before.ID, after.ID) && len(before.ID) > 0 {
			t.Fatalf("%s became %s", message, got)
		}
		for name, value := range before.Params {
			if name != "_meta" && !sameJSON(value, after.Params[name]) {
				t.Errorf("%s of %s became %s", name, message, got)
			}
		}
		var meta map[string]json.RawMessage
		if err := json.Unmarshal(after.Params["_meta"], &meta); err != nil {
			t.Fatalf("%s became %s: %v", message, got, err)
		}
		if passed, ok := meta[taskMeta]; ok && before.Method == callMethod && !sameJSON(passed, before.Params["task"]) {
			t.Errorf("%s became %s", message, got)
		}
		if bytes.Contains(bytes.TrimRight(got, "\n"), []byte("\n")) {
			t.Errorf("%q has more than one line", got)
		}
	})
}

// FuzzTaskName: a request is refused only if it is about a task that its header does not name.
func FuzzTaskName(f *testing.F) {
	f.Add([]byte(`{"method":"tasks/get","params":{"taskId":"a"}}`), "b")
	f.Add([]byte(`{"method":"tools/call","params":{"name":"a","taskId":1}}`), "a")
	f.Add([]byte(`[{}]`), "")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Header[nameHeader] = []string{name}
		r.Header.Set(mcphttp.VersionHeader, mcphttp.StatelessVersion)
		if why := wrongTaskName(r, body); why != "" && (!json.Valid(body) || name == "") {
			t.Errorf("%s with %q: %s", body, name, why)
		}
	})
}

// FuzzResponse: no response to a question of a task is more than an answer to it.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"action":"accept","content":{"ok":true}}`), "")
	f.Add([]byte(`{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`), "model")
	f.Add([]byte(`{"roots":[{"uri":"file:///x"}]}`), "roots")
	f.Add([]byte(`{"ignored":true}`), "page")
	f.Fuzz(func(t *testing.T, data []byte, target string) {
		q := ferrule.Question{Target: ferrule.AskTarget(target), Text: "Sure?"}
		a, ok := answerTo(q, decodeResponse(q, data))
		if ok && len(a.Value) > 0 && !json.Valid(a.Value) {
			t.Errorf("%s became %s", data, a.Value)
		}
	})
}
