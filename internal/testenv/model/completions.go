package model

import (
	"encoding/json"
	"fmt"
)

// completions is the Chat Completions API. Most self-hosted models serve it, and opencode
// uses it with a custom provider.
type completions struct{}

func (completions) read(body []byte) (turn, error) {
	var request struct {
		Messages []struct {
			Role    string
			ID      string `json:"tool_call_id"`
			Content text
		}
		Tools []struct {
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return turn{}, err
	}
	t := turn{results: make(map[string]string)}
	for _, tool := range request.Tools {
		t.tools = append(t.tools, Tool{Name: tool.Function.Name, Schema: tool.Function.Parameters})
	}
	for _, message := range request.Messages {
		t.text += string(message.Content) + "\n"
		if message.Role == "tool" {
			t.results[message.ID] = string(message.Content)
		}
	}
	return t, nil
}

func (completions) write(s stream, a answer) {
	delta, reason := object{"role": "assistant", "content": a.text}, "stop"
	if a.id != "" {
		delta = object{"role": "assistant", "tool_calls": []any{object{
			"index": 0, "id": a.id, "type": "function", "function": object{"name": a.tool.Name, "arguments": a.args},
		}}}
		reason = "tool_calls"
	}
	for _, choice := range []object{
		{"index": 0, "delta": delta, "finish_reason": nil},
		{"index": 0, "delta": object{}, "finish_reason": reason},
	} {
		s.data(object{"id": "chat_" + a.id, "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": []any{choice}})
	}
	fmt.Fprint(s.w, "data: [DONE]\n\n")
}
