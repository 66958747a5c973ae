package model

import "encoding/json"

// messages is the Messages API of Anthropic, as Claude Code uses it.
type messages struct{}

func (messages) read(body []byte) (turn, error) {
	var request struct {
		Messages []struct{ Content json.RawMessage }
		Tools    []struct {
			Name   string
			Schema json.RawMessage `json:"input_schema"`
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return turn{}, err
	}
	t := turn{results: make(map[string]string)}
	for _, tool := range request.Tools {
		t.tools = append(t.tools, Tool{Name: tool.Name, Schema: tool.Schema})
	}
	for _, message := range request.Messages {
		var all text
		if err := json.Unmarshal(message.Content, &all); err != nil {
			return turn{}, err
		}
		t.text += string(all) + "\n"
		var blocks []struct {
			Type    string
			ID      string `json:"tool_use_id"`
			Content text
		}
		json.Unmarshal(message.Content, &blocks) // a string has none
		for _, b := range blocks {
			if b.Type == "tool_result" {
				t.results[b.ID] = string(b.Content)
			}
		}
	}
	return t, nil
}

func (messages) write(s stream, a answer) {
	block, delta, reason := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": a.text}, "end_turn"
	if a.id != "" {
		block = object{"type": "tool_use", "id": a.id, "name": a.tool.Name, "input": object{}}
		delta, reason = object{"type": "input_json_delta", "partial_json": a.args}, "tool_use"
	}
	s.event("message_start", object{"message": object{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": "scripted", "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}})
	s.event("content_block_start", object{"index": 0, "content_block": block})
	s.event("content_block_delta", object{"index": 0, "delta": delta})
	s.event("content_block_stop", object{"index": 0})
	s.event("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	s.event("message_stop", object{})
}
