package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// stepUp refuses a request before the SDK gets it, if it calls a tool that needs more scopes
// than an OAuth token has. The answer says which, so that the program can ask a person for
// them. The pipeline refuses what gets past it, such as a call within a call.
func (s *Server) stepUp(h http.Header, r *http.Request, body []byte) (status int, reason string) {
	who, _ := r.Context().Value(callerKey{}).(ferrule.Principal)
	if !who.CanStepUp() || who.Scopes.Has(ferrule.ScopeEndanger) {
		return 0, ""
	}
	v := s.viewAt(r.PathValue("device"))
	if v == nil {
		return 0, ""
	}
	see := s.parts.Catalog.As(who)
	var lacks ferrule.Scopes
	var tools []string
	for _, c := range toolCalls(body) {
		if more := v.lacks(see, c); more != 0 {
			lacks |= more
			tools = append(tools, ferrule.Clean(c.Name, ferrule.MaxToolName))
		}
	}
	if lacks == 0 {
		return 0, ""
	}
	needs := strings.Join(tools[:min(len(tools), 3)], ", ") + " needs the scope " + lacks.String()
	s.recordRefused(r, who, needs)
	why := &refusal{http.StatusForbidden, "insufficient_scope", ferrule.LimitTo(lacks | who.Scopes), needs + "; nothing was called. Log in again and permit it"}
	s.challenge(h, r, why)
	return why.status, why.text
}

// lacks returns the scopes that a caller does not have and needs for a call, as far as it
// is shown the tool.
func (v *view) lacks(see catalog.View, c toolCall) ferrule.Scopes {
	call := &ferrule.Call{Args: c.Arguments}
	if c.Name == catalog.Name("call_tool") || v.address(call, c.Name) != nil {
		return 0
	}
	dev, tool := see.Tool(call.Device, call.Tool)
	if tool == nil {
		return 0
	}
	return see.Caller().Lacks(dev, ferrule.CallTool, tool)
}

// toolCall is a call in a request.
type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// toolCalls returns the calls in a request, which may be a batch. Whether it is valid is
// left to the SDK.
func toolCalls(body []byte) (calls []toolCall) {
	all := []json.RawMessage{body}
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '[' {
		if json.Unmarshal(body, &all) != nil {
			return nil
		}
	}
	for _, one := range all {
		var message struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		var c toolCall
		if json.Unmarshal(one, &message) == nil && message.Method == "tools/call" && json.Unmarshal(message.Params, &c) == nil {
			calls = append(calls, c)
		}
	}
	return calls
}
