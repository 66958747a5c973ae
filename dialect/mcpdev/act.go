package mcpdev

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/ferrulehq/ferrule"
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
	var values map[string]json.RawMessage
	if err := json.Unmarshal(args, &values); err != nil || values == nil {
		return act{}, ferrule.Errorf(ferrule.Invalid, "the arguments are no JSON object")
	}
	switch call.Act {
	case ferrule.UseTool:
		return act{method: "tools/call", name: call.Tool, params: map[string]any{"name": call.Tool, "arguments": args}, read: readTool}, nil
	case ferrule.Read:
		return act{method: "resources/read", name: call.Tool, params: map[string]any{"uri": call.Tool}, read: readResource}, nil
	case ferrule.Get:
		return act{method: "prompts/get", name: call.Tool, params: map[string]any{"name": call.Tool, "arguments": args}, read: readPrompt}, nil
	case ferrule.Complete:
		params, err := completion(call.Tool, args)
		return act{method: "completion/complete", params: params, read: readCompletion}, err
	case ferrule.Follow, ferrule.Leave:
		return act{follow: func(ctx context.Context, c *underway) error { return s.follow(ctx, c, call.Act == ferrule.Follow) }}, nil
	}
	return act{}, ferrule.Errorf(ferrule.Invalid, "%s is nothing that can be asked of an MCP device", ferrule.Clean(string(call.Act), 32))
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
	if len(c.Others) > 0 {
		params["context"] = map[string]any{"arguments": c.Others}
	}
	return params, nil
}

// maxRounds is how often a device of the newer era may want to know something more
// before it does what it was asked for.
const maxRounds = 10

// converse asks for something, and, while the device wants to know more first, asks
// the caller and asks again: that is how the newer era has it. The device has not
// done it until it says so.
func (s *session) converse(ctx context.Context, c *underway, a act) (json.RawMessage, error) {
	params := a.params
	for range maxRounds {
		answer, err := s.ask(ctx, c, a.method, a.name, params)
		if err != nil {
			return nil, err
		}
		more := inputOf(answer.result)
		if more == nil {
			return answer.result, nil
		}
		if len(more.Requests) == 0 || len(more.Requests) > maxQuestions {
			return nil, ferrule.Errorf(ferrule.Failed, "%s wants to know something before it does %s, and does not say what", c.call.Device, c.call.Tool)
		}
		answers, failure := s.inputs(more)
		if failure != nil {
			return nil, ferrule.Errorf(ferrule.Failed, "%s has not finished %s: it wanted to know something first, and %w", c.call.Device, c.call.Tool, failure)
		}
		params = maps.Clone(a.params)
		params["inputResponses"] = answers
		if more.State != nil {
			params["requestState"] = *more.State
		}
	}
	return nil, ferrule.Errorf(ferrule.Failed, "%s wants to know ever more before it does %s", c.call.Device, c.call.Tool)
}

// input is what a device wants to know first.
type input struct {
	Type     string `json:"resultType"`
	Requests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State *string `json:"requestState"`
}

// inputOf reads what a device wants to know; nil if it wants nothing.
func inputOf(result []byte) *input {
	var in input
	if json.Unmarshal(result, &in) != nil || in.Type != "input_required" {
		return nil
	}
	return &in
}

// inputs are the answers to all of it.
func (s *session) inputs(in *input) (map[string]any, error) {
	answers := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(in.Requests)) {
		r := in.Requests[name]
		result, failure := s.reply(r.Method, r.Params)
		if failure != nil {
			return nil, failure
		}
		answers[name] = result
	}
	return answers, nil
}
