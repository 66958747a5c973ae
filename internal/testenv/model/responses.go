package model

import "encoding/json"

// responses is the Responses API of OpenAI, as Codex uses it: the tools of one server have
// a namespace.
type responses struct{}

func (responses) read(body []byte) (turn, error) {
	type function struct {
		Type, Name string
		Parameters json.RawMessage
	}
	var request struct {
		Input []struct {
			Type    string
			ID      string `json:"call_id"`
			Content text
			Output  text
		}
		Tools []struct {
			function
			Tools []function
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return turn{}, err
	}
	t := turn{results: make(map[string]string)}
	for _, tool := range request.Tools {
		switch tool.Type {
		case "function":
			t.tools = append(t.tools, Tool{Name: tool.Name, Schema: tool.Parameters})
		case "namespace":
			for _, f := range tool.Tools {
				t.tools = append(t.tools, Tool{Namespace: tool.Name, Name: f.Name, Schema: f.Parameters})
			}
		}
	}
	for _, item := range request.Input {
		t.text += string(item.Content) + "\n"
		if item.Type == "function_call_output" {
			t.results[item.ID] = string(item.Output)
		}
	}
	return t, nil
}

func (responses) write(s stream, a answer) {
	item := object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": a.text}}}
	if a.id != "" {
		item = object{"type": "function_call", "call_id": a.id, "name": a.tool.Name, "arguments": a.args}
		if a.tool.Namespace != "" {
			item["namespace"] = a.tool.Namespace
		}
	}
	response := object{"id": "resp_" + a.id, "usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
	s.event("response.created", object{"response": object{"id": response["id"]}})
	s.event("response.output_item.done", object{"output_index": 0, "item": item})
	s.event("response.completed", object{"response": response})
}
