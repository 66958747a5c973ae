package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The bounds of what a device may ask.
const (
	maxReplies   = 4 // at once
	maxQuestions = 32
	maxPrompt    = 256 << 10 // bytes of what a model is asked
)

// answer answers a request of the device, beside.
func (s *session) answer(ctx context.Context, m message) {
	select {
	case s.replying <- struct{}{}:
	default:
		s.note("dropped: the device asks for %s while %d other requests are being answered", ferrule.Clean(m.method, 64), maxReplies)
		return
	}
	s.beside(func() {
		defer func() { <-s.replying }()
		reply := rpc{ID: m.rawID}
		if result, failure := s.reply(m.method, m.params); failure != nil {
			reply.Error = failure
		} else {
			reply.Result = result
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyTime)
		defer cancel()
		if err := s.courier.tell(ctx, encode(reply)); err != nil {
			s.note("not answered: %v", err)
		}
	})
}

// The requests of a device that are questions.
const (
	askUser  = "elicitation/create"
	askModel = "sampling/createMessage"
	askRoots = "roots/list"
)

var questions = []string{askUser, askModel, askRoots}

// methodOf is what a question was asked by.
func methodOf(q ferrule.Question) string {
	switch q.Target {
	case ferrule.Model:
		return askModel
	case ferrule.Roots:
		return askRoots
	}
	return askUser
}

// reply is the answer to a request of the device.
func (s *session) reply(method string, params []byte) (any, *rpcError) {
	switch {
	case method == "ping":
		return map[string]any{}, nil
	case slices.Contains(questions, method):
		return s.question(method, params)
	}
	return nil, &rpcError{Code: codeNoMethod, Message: "ferrule does not know " + ferrule.Clean(method, 64)}
}

// question asks whoever made the call that is under way. If nobody can be asked, the
// device is told so in the words of MCP.
func (s *session) question(method string, params []byte) (any, *rpcError) {
	q, wrong := questionOf(method, params)
	if wrong != nil {
		return nil, wrong
	}
	ask := s.asker()
	if ask == nil {
		return unasked(method)
	}
	a, err := ask(q)
	if err != nil {
		s.note("%s was not answered: %v", method, err)
		return unasked(method)
	}
	return said(method, a)
}

// asker is whom a question goes to; nil if there is nobody, or if they were asked
// often enough.
func (s *session) asker() func(ferrule.Question) (ferrule.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call == nil || s.call.asked == maxQuestions {
		return nil
	}
	s.call.asked++
	return s.call.ask
}

// questionOf makes a question of what a device asks.
func questionOf(method string, params []byte) (ferrule.Question, *rpcError) {
	switch method {
	case askRoots:
		return ferrule.Question{Target: ferrule.Roots}, nil
	case askModel:
		if len(params) == 0 || len(params) > maxPrompt {
			return ferrule.Question{}, &rpcError{Code: codeBadParams, Message: "what a model is asked is missing, or too long"}
		}
		return ferrule.Question{Target: ferrule.Model, Prompt: params}, nil
	}
	var p struct {
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return ferrule.Question{}, &rpcError{Code: codeBadParams, Message: reason(err)}
	}
	q := ferrule.Question{Text: ferrule.Clean(p.Message, ferrule.MaxText), Schema: p.Schema, URL: p.URL}
	if p.URL != "" {
		page, err := url.Parse(p.URL)
		if err != nil || page.Scheme != "https" && page.Scheme != "http" || len(p.URL) > ferrule.MaxURI || ferrule.Clean(p.URL, ferrule.MaxURI) != p.URL {
			return ferrule.Question{}, &rpcError{Code: codeBadParams, Message: "the url cannot be shown to anybody"}
		}
		q.Schema = nil
	}
	if p.URL == "" && len(p.Schema) == 0 {
		q.Schema = json.RawMessage(`{"type":"object"}`) // an answer to a device is always an object
	}
	if len(p.Schema) > ferrule.MaxSchema {
		return ferrule.Question{}, &rpcError{Code: codeBadParams, Message: "the schema is too long"}
	}
	return q, nil
}

// said is an answer as MCP has it.
func said(method string, a ferrule.Answer) (any, *rpcError) {
	switch {
	case a.Dismissed && method == askUser:
		return map[string]any{"action": "cancel"}, nil
	case !a.Given || len(a.Value) > 0 && !json.Valid(a.Value):
		return unasked(method)
	case method == askUser && len(a.Value) == 0:
		return map[string]any{"action": "accept"}, nil
	case method == askUser:
		return map[string]any{"action": "accept", "content": a.Value}, nil
	case len(a.Value) == 0:
		return unasked(method)
	}
	return a.Value, nil
}

// unasked says that there is no answer.
func unasked(method string) (any, *rpcError) {
	if method == askUser {
		return map[string]any{"action": "decline"}, nil
	}
	return nil, &rpcError{Code: codeUserRefused, Message: "nobody can be asked, or they would not answer"}
}
