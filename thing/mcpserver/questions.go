//lint:file-ignore SA1019 2026-07-28 deprecates some of this, and has no replacement yet

package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing"
)

// Question is a question to the caller's user or model: a Form, a Generate or a Roots.
type Question interface{ question() (name string) }

// Form asks the user to fill in a form.
type Form struct {
	// Name is unique among the questions of a tool.
	Name string
	// Text is shown to the user.
	Text string
	// Schema is an object whose fields are strings, numbers, enums and booleans.
	Schema *thing.Schema
}

// Generate asks the model to write something.
type Generate struct {
	Name string
	// System is the system prompt, Text the message that the model answers.
	System, Text string
	// MaxTokens is the limit of the answer.
	MaxTokens int
}

// Roots asks for the folders that the user works in.
type Roots struct{ Name string }

func (q Form) question() string     { return q.Name }
func (q Generate) question() string { return q.Name }
func (q Roots) question() string    { return q.Name }

// Answer is the answer to a question.
type Answer struct {
	// Action is what the user did with a form: accept, decline or cancel. It is
	// "generate" for an answer of the model, and "roots" for folders.
	Action string `json:"action"`
	// Content is the filled-in form, if it was accepted.
	Content json.RawMessage `json:"content,omitempty"`
	// Text is the answer of the model.
	Text string `json:"text,omitempty"`
	// Roots are the URIs of folders.
	Roots []string `json:"roots,omitempty"`
}

// errAsked is the error of Ask until the answers are there.
var errAsked = errors.New("waiting for an answer of the caller")

// Ask asks the caller's user or model, all questions at once. Without an
// answer yet it returns an error, which the tool must return at once: the tool is called
// again, from its beginning, with the answers. So ask before anything moves. A tool
// that endangers gets only answers to its own questions, and each of them once.
func Ask(ctx context.Context, questions ...Question) ([]Answer, error) {
	c := callOf(ctx)
	if c == nil {
		return nil, &thing.RefusedError{Reason: "The tool must ask the user first, which is not possible over this connection: nothing was done"}
	}
	c.asks = true
	can := c.capabilities()
	answers := make([]Answer, len(questions))
	var open []Question
	for i, q := range questions {
		if !possible(q, can) {
			return nil, c.cannot(q)
		}
		answer, ok := c.answers[q.question()]
		if !ok || !fits(q, answer) {
			open = append(open, q)
		}
		answers[i] = answer
	}
	if open != nil {
		c.asked = open
		return nil, errAsked
	}
	return answers, nil
}

// AskUser asks the user to fill in a form that is derived from a Go type. It is used
// like Ask. If the user declines, the error is a RefusedError.
func AskUser[T any](ctx context.Context, name, text string) (answer T, err error) {
	schema, err := thing.SchemaOf[T]()
	if err != nil {
		return answer, err
	}
	answers, err := Ask(ctx, Form{Name: name, Text: text, Schema: schema})
	if err != nil {
		return answer, err
	}
	if answers[0].Action != "accept" {
		return answer, &thing.RefusedError{Reason: "The user did not agree: nothing was done"}
	}
	return answer, json.Unmarshal(answers[0].Content, &answer)
}

// CanAsk reports whether the caller can be asked a question.
func CanAsk(ctx context.Context, q Question) bool {
	c := callOf(ctx)
	return c != nil && possible(q, c.capabilities())
}

// possible reports whether a client can be asked a question. A client that names no
// mode of elicitation has forms.
func possible(q Question, can *mcp.ClientCapabilities) bool {
	switch q.(type) {
	case Form:
		return can != nil && can.Elicitation != nil && (can.Elicitation.Form != nil || can.Elicitation.URL == nil)
	case Generate:
		return can != nil && can.Sampling != nil
	}
	return can != nil && (can.RootsV2 != nil || can.Roots.ListChanged)
}

// cannot returns the error for a question that the caller cannot be asked.
func (c *call) cannot(q Question) error {
	text, needed := "The tool must ask the user, which the calling program cannot do: nothing was done", `{"elicitation":{"form":{}}}`
	switch q.(type) {
	case Generate:
		text, needed = "The tool must ask the model, which the calling program cannot do: nothing was done", `{"sampling":{}}`
	case Roots:
		text, needed = "The tool needs the user's folders, which the calling program does not share: nothing was done", `{"roots":{}}`
	}
	if !c.stateless {
		return &thing.RefusedError{Reason: text}
	}
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: text, Data: json.RawMessage(`{"requiredCapabilities":` + needed + `}`),
	}
}

// fits reports whether an answer is valid. An invalid form is asked for again.
func fits(q Question, a Answer) bool {
	switch q := q.(type) {
	case Form:
		return a.Action == "decline" || a.Action == "cancel" ||
			a.Action == "accept" && (q.Schema == nil || q.Schema.Check(a.Content) == nil)
	case Generate:
		return a.Action == "generate"
	}
	return a.Action == "roots"
}

// requestOf converts a question.
func requestOf(q Question) mcp.InputRequest {
	switch q := q.(type) {
	case Form:
		return &mcp.ElicitParams{Mode: "form", Message: q.Text, RequestedSchema: q.Schema}
	case Generate:
		return &mcp.CreateMessageParams{
			SystemPrompt: q.System, MaxTokens: int64(q.MaxTokens),
			Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: q.Text}}},
		}
	}
	return &mcp.ListRootsParams{}
}

// answerOf converts a response.
func answerOf(response any) (a Answer, err error) {
	switch r := response.(type) {
	case *mcp.ElicitResult:
		a.Action = r.Action
		if r.Content != nil {
			a.Content, err = json.Marshal(r.Content)
		}
	case *mcp.CreateMessageWithToolsResult:
		a.Action = "generate"
		for _, part := range r.Content {
			if text, ok := part.(*mcp.TextContent); ok {
				a.Text += text.Text
			}
		}
	case *mcp.CreateMessageResult:
		a.Action = "generate"
		if text, ok := r.Content.(*mcp.TextContent); ok {
			a.Text = text.Text
		}
	case *mcp.ListRootsResult:
		a.Action = "roots"
		for _, root := range r.Roots {
			a.Roots = append(a.Roots, root.URI)
		}
	default:
		err = fmt.Errorf("%T is not an answer", response)
	}
	return a, err
}

// decodeResponse decodes the response to a question of a task.
func decodeResponse(q Question, data json.RawMessage) (response any, err error) {
	switch q.(type) {
	case Form:
		response = new(mcp.ElicitResult)
	case Generate:
		response = new(mcp.CreateMessageWithToolsResult)
	default:
		response = new(mcp.ListRootsResult)
	}
	if len(data) == 0 {
		return nil, errors.New("it has no response")
	}
	return response, json.Unmarshal(data, response)
}
