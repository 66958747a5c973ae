package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/thing"
)

// webRequest is a message of a client.
type webRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
}

// answer answers a message or a batch. It returns "" if none is needed: an ID of null counts as
// a notification.
func (w *Web) answer(ctx context.Context, body []byte) string {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		var batch []json.RawMessage
		if json.Unmarshal(body, &batch) != nil {
			return webFailure("null", -32700, "Parse error")
		}
		var all []string
		for _, m := range batch {
			if a := w.answer(ctx, m); a != "" {
				all = append(all, a)
			}
		}
		if all == nil {
			return ""
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	var r webRequest
	if json.Unmarshal(body, &r) != nil {
		return webFailure("null", -32700, "Parse error")
	}
	switch id := string(r.ID); {
	case id == "" || id == "null" || r.Method == "" && r.Result != nil:
		return ""
	case r.Method == "": // also the error of a client
		return webFailure(id, -32600, "Invalid Request: missing method")
	default:
		result, failure := w.run(ctx, r)
		if failure != nil {
			return webFailure(id, failure.code, failure.message)
		}
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	}
}

type webRPCError struct {
	code    int
	message string
}

// run runs a method.
func (w *Web) run(ctx context.Context, r webRequest) (result string, failure *webRPCError) {
	switch r.Method {
	case "initialize":
		w.newSession()
		// Sampling, elicitation and roots belong to clients, and completion has a wrong name.
		return `{"protocolVersion":"` + webVersion + `","capabilities":{"tools":{"listChanged":true},"logging":{},"sampling":{},"elicitation":{},"roots":{},"completion":{}},` +
			`"serverInfo":{"name":"sim-web","version":"0.49.0"}}`, nil
	case "ping", "logging/setLevel":
		return "{}", nil
	case "tools/list":
		return w.list(), nil
	case "tools/call":
		return w.call(ctx, r.Params)
	}
	return "", &webRPCError{-32601, "Method not found: " + r.Method}
}

// list returns all tools on one page.
func (w *Web) list() string {
	type listed struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	tools := []listed{}
	for _, t := range w.Board.Tools() {
		tools = append(tools, listed{t.Name, t.Text, t.Schema})
	}
	data, err := json.Marshal(map[string]any{"tools": tools})
	if err != nil { // cannot happen: the schemas are valid JSON
		panic(err)
	}
	return string(data)
}

// call calls a tool. Its result is a text.
func (w *Web) call(ctx context.Context, params json.RawMessage) (string, *webRPCError) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(params, &p) != nil || p.Name == "" {
		return "", &webRPCError{-32602, "Missing tool name"}
	}
	result, err := w.Board.Call(ctx, p.Name, p.Arguments)
	var refused *thing.RefusedError
	switch {
	case errors.As(err, &refused) && strings.HasPrefix(refused.Reason, "Unknown tool: "):
		return "", &webRPCError{-32602, "Tool not found: " + p.Name}
	case errors.As(err, &refused):
		return "", &webRPCError{-32602, refused.Reason}
	}
	text, failed := "", err != nil
	if failed {
		text = err.Error()
	} else if data, err := json.Marshal(result); err == nil {
		text = string(data)
	}
	data, err := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": failed})
	if err != nil { // cannot happen: it has strings
		panic(err)
	}
	return string(data), nil
}
