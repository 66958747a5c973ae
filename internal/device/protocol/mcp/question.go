package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The limits of a device's requests.
const (
	maxReplies   = 4  // answered at a time
	maxQuestions = 32 // per call
	maxPrompt    = 256 << 10
)

// reply answers a request of the device in the background.
func (s *session) reply(ctx context.Context, m message) {
	select {
	case s.replies <- struct{}{}:
	default:
		s.note("dropped: request %s, limit is %d at a time", ferrule.Clean(m.Method, 64), maxReplies)
		return
	}
	s.inBackground(func() {
		defer func() { <-s.replies }()
		reply := jsonrpc.Message{ID: jsonrpc.Marshal(m.ID)}
		result, failure := s.answer(m)
		if failure == nil {
			reply.Result = jsonrpc.Marshal(result)
		}
		reply.Error = failure
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyTime)
		defer cancel()
		if err := s.conn.send(ctx, reply.Append(nil)); err != nil {
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

// questionMethod returns the method of a question.
func questionMethod(q ferrule.Question) string {
	switch q.Target {
	case ferrule.Model:
		return askModel
	case ferrule.Roots:
		return askRoots
	}
	return askUser
}

// answer returns the answer to a request of the device.
func (s *session) answer(m message) (any, *jsonrpc.Error) {
	switch {
	case m.Method == "ping":
		return map[string]any{}, nil
	case slices.Contains(questions, m.Method):
		if m.aside {
			s.settle()
		}
		return s.question(m.Method, m.Params)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "ferrule does not know " + ferrule.Clean(m.Method, 64)}
}

// question asks the caller. If that is not possible, it returns the MCP answer for that.
func (s *session) question(method string, params []byte) (any, *jsonrpc.Error) {
	q, wrong := parseQuestion(method, params)
	if wrong != nil {
		return nil, wrong
	}
	ask := s.asker()
	if ask == nil {
		return declined(method)
	}
	a, err := ask(q)
	if err != nil {
		s.note("%s was not answered: %v", method, err)
		return declined(method)
	}
	return answerResult(method, a)
}

// Some devices, such as those with mcpd, cannot ask during a call: they answer it, and
// then ask.
const (
	// lateTime is how long after a call its caller can be asked.
	lateTime = time.Minute
	// lateAnswerTime limits how long the answer may take then.
	lateAnswerTime = 2 * time.Minute
	// settleTime is how long a question waits for the end of the active call. A device that
	// asks after its answer sends the two on different connections.
	settleTime = 200 * time.Millisecond
)

// settle waits for the end of the active call, for a moment.
func (s *session) settle() {
	s.mu.Lock()
	c := s.call
	s.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case <-c.over:
	case <-time.After(settleTime):
	}
}

// asker returns the function that asks the caller of the active call, or else that of the
// last one, if it has just ended. It is nil if there is none, and after too many questions.
func (s *session) asker() func(ferrule.Question) (ferrule.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.call
	late := c == nil || c.call.Principal.Role == ferrule.Gateway
	if late && time.Since(s.lastEnded) <= lateTime {
		c = s.last
	}
	if c == nil || c.call.Ask == nil || c.questions == maxQuestions {
		return nil
	}
	c.questions++
	if !late {
		return c.ask
	}
	running := s.running
	if running == nil {
		running = context.Background()
	}
	return func(q ferrule.Question) (ferrule.Answer, error) {
		ctx, cancel := context.WithTimeout(running, lateAnswerTime)
		defer cancel()
		q.Late = true
		return c.call.Ask(ctx, q)
	}
}

// parseQuestion returns the question in a request of a device.
func parseQuestion(method string, params []byte) (ferrule.Question, *jsonrpc.Error) {
	invalid := func(text string) (ferrule.Question, *jsonrpc.Error) {
		return ferrule.Question{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
	}
	switch method {
	case askRoots:
		return ferrule.Question{Target: ferrule.Roots}, nil
	case askModel:
		if len(params) == 0 || len(params) > maxPrompt {
			return invalid("what a model is asked is missing, or too long")
		}
		return ferrule.Question{Target: ferrule.Model, Prompt: ferrule.CleanJSON(params)}, nil
	}
	var p struct {
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return invalid(jsonrpc.Reason(err))
	}
	q := ferrule.Question{Text: ferrule.Clean(p.Message, ferrule.MaxText), Schema: p.Schema, URL: p.URL}
	if p.URL != "" {
		page, err := url.Parse(p.URL)
		if err != nil || page.Scheme != "https" && page.Scheme != "http" || len(p.URL) > ferrule.MaxURI || ferrule.Clean(p.URL, ferrule.MaxURI) != p.URL {
			return invalid("the url cannot be shown to anybody")
		}
		q.Schema = nil
	}
	if p.URL == "" && len(p.Schema) == 0 {
		q.Schema = json.RawMessage(`{"type":"object"}`) // an answer is always an object
	}
	if len(p.Schema) > ferrule.MaxSchema {
		return invalid("the schema is too long")
	}
	return q, nil
}

// answerResult returns the MCP result for an answer.
func answerResult(method string, a ferrule.Answer) (any, *jsonrpc.Error) {
	switch {
	case a.Dismissed && method == askUser:
		return map[string]any{"action": "cancel"}, nil
	case !a.Given || len(a.Value) > 0 && !json.Valid(a.Value):
		return declined(method)
	case method == askUser && len(a.Value) == 0:
		return map[string]any{"action": "accept"}, nil
	case method == askUser:
		return map[string]any{"action": "accept", "content": a.Value}, nil
	case len(a.Value) == 0:
		return declined(method)
	}
	return a.Value, nil
}

// declined returns the MCP result for a question without an answer.
func declined(method string) (any, *jsonrpc.Error) {
	if method == askUser {
		return map[string]any{"action": "decline"}, nil
	}
	return nil, &jsonrpc.Error{Code: codeUserRefused, Message: "nobody can be asked, or they would not answer"}
}
