package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// operation is how to perform a call in MCP.
type operation struct {
	method, name string
	params       map[string]any
	// read returns the result in an answer.
	read func(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error)
	// subscribe is set for an operation without a result. It replaces the others.
	subscribe func(ctx context.Context, c *activeCall) error
}

// operationFor returns the operation of a call.
func (s *session) operationFor(call *ferrule.Call) (operation, error) {
	args := call.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(args, " \t\r\n"), []byte("{")) || !json.Valid(args) {
		return operation{}, ferrule.Errorf(ferrule.Invalid, "arguments are not a JSON object")
	}
	switch call.Operation {
	case ferrule.CallTool:
		return operation{method: "tools/call", name: call.Tool, params: s.taskParams(call, args), read: readTool}, nil
	case ferrule.ReadResource:
		return operation{method: "resources/read", name: call.Tool, params: map[string]any{"uri": call.Tool}, read: readResource}, nil
	case ferrule.GetPrompt:
		return operation{method: "prompts/get", name: call.Tool, params: map[string]any{"name": call.Tool, "arguments": args}, read: readPrompt}, nil
	case ferrule.Complete:
		params, err := completionParams(call.Tool, args)
		return operation{method: "completion/complete", params: params, read: readCompletion}, err
	case ferrule.Subscribe, ferrule.Unsubscribe:
		return operation{subscribe: func(ctx context.Context, c *activeCall) error {
			return s.subscribe(ctx, c, call.Operation == ferrule.Subscribe)
		}}, nil
	}
	return operation{}, ferrule.Errorf(ferrule.Invalid, "MCP has no operation %s", ferrule.Clean(string(call.Operation), 32))
}

// completionParams returns the params of completion/complete.
func completionParams(name string, args []byte) (map[string]any, error) {
	var c ferrule.Completion
	if err := json.Unmarshal(args, &c); err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "invalid completion: %s", jsonrpc.Reason(err))
	}
	ref := map[string]any{"type": "ref/prompt", "name": name}
	if c.Template {
		ref = map[string]any{"type": "ref/resource", "uri": name}
	}
	params := map[string]any{"ref": ref, "argument": map[string]any{"name": c.Argument, "value": c.Value}}
	if len(c.Context) > 0 {
		params["context"] = map[string]any{"arguments": c.Context}
	}
	return params, nil
}

// perform sends the request of an operation. A modern device may answer with questions;
// the call is then repeated with the answers as its Inputs.
func (s *session) perform(ctx context.Context, c *activeCall, op operation) (*ferrule.Result, error) {
	params := op.params
	if in := c.call.Inputs; in != nil {
		responses, err := inputResponses(c.call)
		if err != nil {
			return nil, err
		}
		params = maps.Clone(params)
		params["inputResponses"] = responses
		if in.State != nil {
			params["requestState"] = *in.State
		}
	}
	answer, err := s.ask(ctx, c, op.method, op.name, params)
	if err != nil {
		return nil, err
	}
	in, err := parseInputRequest(c.call, answer.Result)
	if err != nil {
		return nil, err
	}
	if in != nil {
		return &ferrule.Result{InputRequest: in}, nil
	}
	if style := s.taskStyle(); c.call.Operation == ferrule.CallTool && style != noTasks {
		if task := createdTask(style, answer.Result); task != nil {
			return beginTask(c.call, task)
		}
	}
	result, err := op.read(c.call, answer.Result)
	if err == nil && c.call.Operation == ferrule.CallTool && s.isUnaskedTask(c.call.Tool, answer.Result, result) {
		e := ferrule.Errorf(ferrule.Unanswered, "%s accepted %s and works on it, but has not confirmed that it is done", c.call.Device, c.call.Tool).
			WithHint("read the state of the device to see whether it is done; do not repeat the call")
		return nil, e.Once()
	}
	return result, err
}

// inputResponses returns the answers of a call to the questions of the device.
func inputResponses(call *ferrule.Call) (map[string]any, error) {
	responses := make(map[string]any)
	for i, q := range call.Inputs.Questions {
		result, failure := answerResult(questionMethod(q), call.Inputs.Answers[i])
		if failure != nil {
			return nil, ferrule.Errorf(ferrule.Failed, "%s needs input for %s: %w", call.Device, call.Tool, failure)
		}
		responses[q.Name] = result
	}
	return responses, nil
}

// inputRequired is the type of a result that has questions.
const inputRequired = "input_required"

// mayContain reports whether a word may occur in JSON. It is faster than decoding.
func mayContain(data []byte, word string) bool {
	return bytes.Contains(data, []byte(word)) || bytes.Contains(data, []byte(`\u`)) // the word may be escaped
}

// parseInputRequest returns the questions in a result; nil if it has none.
func parseInputRequest(call *ferrule.Call, result []byte) (*ferrule.InputRequest, error) {
	var in struct {
		Type     string `json:"resultType"`
		Requests map[string]struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		} `json:"inputRequests"`
		State *string `json:"requestState"`
	}
	if !mayContain(result, inputRequired) || json.Unmarshal(result, &in) != nil || in.Type != inputRequired {
		return nil, nil
	}
	if n := len(in.Requests); n == 0 || n > maxQuestions {
		return nil, ferrule.Errorf(ferrule.Failed, "%s needs input for %s, but sent %d questions, want 1 to %d", call.Device, call.Tool, n, maxQuestions)
	}
	request := &ferrule.InputRequest{State: in.State}
	for _, name := range slices.Sorted(maps.Keys(in.Requests)) {
		r := in.Requests[name]
		if !slices.Contains(questions, r.Method) {
			return nil, ferrule.Errorf(ferrule.Failed, "%s needs input for %s by %s, which is not supported", call.Device, call.Tool, ferrule.Clean(r.Method, 64))
		}
		q, wrong := parseQuestion(r.Method, r.Params)
		if wrong != nil {
			return nil, ferrule.Errorf(ferrule.Failed, "%s needs input for %s, but its question is invalid: %w", call.Device, call.Tool, wrong)
		}
		q.Name = name
		request.Questions = append(request.Questions, q)
	}
	return request, nil
}
