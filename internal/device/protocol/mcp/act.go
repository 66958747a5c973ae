package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// act is a call in the words of MCP.
type act struct {
	method, name string
	params       map[string]any
	// read makes a result of what came back.
	read func(call *ferrule.Call, result json.RawMessage) (*ferrule.Result, error)
	// follow does it, where there is no result but that it was done.
	follow func(ctx context.Context, c *underway) error
}

// actOf tells what a call asks for.
func (s *session) actOf(call *ferrule.Call) (act, error) {
	args := call.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(args, " \t\r\n"), []byte("{")) || !json.Valid(args) {
		return act{}, ferrule.Errorf(ferrule.Invalid, "the arguments are no JSON object")
	}
	switch call.Operation {
	case ferrule.CallTool:
		return act{method: "tools/call", name: call.Tool, params: map[string]any{"name": call.Tool, "arguments": args}, read: readTool}, nil
	case ferrule.ReadResource:
		return act{method: "resources/read", name: call.Tool, params: map[string]any{"uri": call.Tool}, read: readResource}, nil
	case ferrule.GetPrompt:
		return act{method: "prompts/get", name: call.Tool, params: map[string]any{"name": call.Tool, "arguments": args}, read: readPrompt}, nil
	case ferrule.Complete:
		params, err := completion(call.Tool, args)
		return act{method: "completion/complete", params: params, read: readCompletion}, err
	case ferrule.Subscribe, ferrule.Unsubscribe:
		return act{follow: func(ctx context.Context, c *underway) error {
			return s.follow(ctx, c, call.Operation == ferrule.Subscribe)
		}}, nil
	}
	return act{}, ferrule.Errorf(ferrule.Invalid, "%s is nothing that can be asked of an MCP device", ferrule.Clean(string(call.Operation), 32))
}

// completion is what is asked about an argument.
func completion(name string, args []byte) (map[string]any, error) {
	var c ferrule.Completion
	if err := json.Unmarshal(args, &c); err != nil {
		return nil, ferrule.Errorf(ferrule.Invalid, "what is to be completed makes no sense: %s", reason(err))
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

// once asks for something. A device of the newer era may want to know something first,
// and is asked again with the answers.
func (s *session) once(ctx context.Context, c *underway, a act) (*ferrule.Result, error) {
	params := a.params
	if knows := c.call.Inputs; knows != nil {
		params = maps.Clone(params)
		answers := make(map[string]any)
		for i, q := range knows.Questions {
			result, failure := said(methodOf(q), knows.Answers[i])
			if failure != nil {
				return nil, ferrule.Errorf(ferrule.Failed, "%s wants to know something before it does %s, and %w", c.call.Device, c.call.Tool, failure)
			}
			answers[q.Name] = result
		}
		params["inputResponses"] = answers
		if knows.State != nil {
			params["requestState"] = *knows.State
		}
	}
	answer, err := s.ask(ctx, c, a.method, a.name, params)
	if err != nil {
		return nil, err
	}
	wants, err := wantsOf(c.call, answer.result)
	if err != nil {
		return nil, err
	}
	if wants != nil {
		return &ferrule.Result{InputRequest: wants}, nil
	}
	return a.read(c.call, answer.result)
}

// inputRequired is the type of a result that asks for something first.
const inputRequired = "input_required"

// says tells whether a word may stand in a JSON text. It is quicker than to read that.
func says(text []byte, word string) bool {
	return bytes.Contains(text, []byte(word)) || bytes.Contains(text, []byte(`\u`)) // where it may be written otherwise
}

// wantsOf reads what a device wants to know first; nil if it wants nothing.
func wantsOf(call *ferrule.Call, result []byte) (*ferrule.InputRequest, error) {
	var in struct {
		Type     string `json:"resultType"`
		Requests map[string]struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		} `json:"inputRequests"`
		State *string `json:"requestState"`
	}
	if !says(result, inputRequired) || json.Unmarshal(result, &in) != nil || in.Type != inputRequired {
		return nil, nil
	}
	if len(in.Requests) == 0 || len(in.Requests) > maxQuestions {
		return nil, ferrule.Errorf(ferrule.Failed, "%s wants to know something before it does %s, and does not say what", call.Device, call.Tool)
	}
	wants := &ferrule.InputRequest{State: in.State}
	for _, name := range slices.Sorted(maps.Keys(in.Requests)) {
		r := in.Requests[name]
		if !slices.Contains(questions, r.Method) {
			return nil, ferrule.Errorf(ferrule.Failed, "%s wants %s before it does %s, which nobody can answer", call.Device, ferrule.Clean(r.Method, 64), call.Tool)
		}
		q, wrong := questionOf(r.Method, r.Params)
		if wrong != nil {
			return nil, ferrule.Errorf(ferrule.Failed, "%s wants to know something before it does %s, and %w", call.Device, call.Tool, wrong)
		}
		q.Name = name
		wants.Questions = append(wants.Questions, q)
	}
	return wants, nil
}
