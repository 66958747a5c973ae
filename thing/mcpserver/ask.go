//lint:file-ignore SA1019 the newer era is about to drop some of this, and has nothing else yet

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

// Question is something that is asked of the caller's user or model: a Form, a
// Generate or a Roots.
type Question interface{ question() (name string) }

// Form asks the user.
type Form struct {
	// Name tells the questions of a tool apart.
	Name string
	// Text is what the user reads.
	Text string
	// Schema is what is to be filled in: an object whose fields are texts, numbers,
	// choices and yes or no.
	Schema *thing.Schema
}

// Generate asks the model.
type Generate struct {
	Name string
	// System tells the model what it is for; Text is what it answers.
	System, Text string
	// MaxTokens is how long the answer may be.
	MaxTokens int
}

// Roots asks which folders the user works in.
type Roots struct{ Name string }

func (q Form) question() string     { return q.Name }
func (q Generate) question() string { return q.Name }
func (q Roots) question() string    { return q.Name }

// Answer is the answer to a question.
type Answer struct {
	// Action is what the user did with a form: accept, decline or cancel. It is
	// generate for what a model wrote, and roots for folders.
	Action string `json:"action"`
	// Content is the form as it was filled in, if it was accepted.
	Content json.RawMessage `json:"content,omitempty"`
	// Text is what the model wrote.
	Text string `json:"text,omitempty"`
	// Roots are the addresses of folders.
	Roots []string `json:"roots,omitempty"`
}

// errAsked is the error of Ask when there is no answer yet.
var errAsked = errors.New("the caller is asked first")

// Ask asks the caller's user or model, all questions at once. If there is no answer
// yet it returns an error, which the tool returns at once: the tool is called again,
// from its beginning, when the answers are there. So ask before anything moves. A tool
// that endangers is only given answers to what it has asked, and each of them once.
func Ask(ctx context.Context, questions ...Question) ([]Answer, error) {
	c := callOf(ctx)
	if c == nil {
		return nil, &thing.RefusedError{Reason: "Somebody has to be asked first, and nobody can be over this connection: nothing was done"}
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

// AskUser has the user fill in a form that is derived from a Go type. It is used like
// Ask. A user who does not want to is a RefusedError.
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
		return answer, &thing.RefusedError{Reason: "The user was asked and did not agree: nothing was done"}
	}
	return answer, json.Unmarshal(answers[0].Content, &answer)
}

// CanAsk tells whether whoever called can be asked such a thing.
func CanAsk(ctx context.Context, q Question) bool {
	c := callOf(ctx)
	return c != nil && possible(q, c.capabilities())
}

// possible tells whether a caller can be asked. One that names no mode of forms has
// the one that there is.
func possible(q Question, can *mcp.ClientCapabilities) bool {
	switch q.(type) {
	case Form:
		return can != nil && can.Elicitation != nil && (can.Elicitation.Form != nil || can.Elicitation.URL == nil)
	case Generate:
		return can != nil && can.Sampling != nil
	}
	return can != nil && (can.RootsV2 != nil || can.Roots.ListChanged)
}

// cannot is the error of a question that the caller cannot be asked.
func (c *call) cannot(q Question) error {
	text, needed := "The program that calls cannot ask its user, which this needs: nothing was done", `{"elicitation":{"form":{}}}`
	switch q.(type) {
	case Generate:
		text, needed = "The program that calls cannot ask its model, which this needs: nothing was done", `{"sampling":{}}`
	case Roots:
		text, needed = "The program that calls does not tell its folders, which this needs: nothing was done", `{"roots":{}}`
	}
	if !c.modern {
		return &thing.RefusedError{Reason: text}
	}
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: text, Data: json.RawMessage(`{"requiredCapabilities":` + needed + `}`),
	}
}

// fits tells whether an answer is one to the question. A form that is filled in
// wrongly is asked for again.
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

// requestOf is a question as it is sent.
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

// answerOf is what came back.
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
		err = fmt.Errorf("%T is no answer", response)
	}
	return a, err
}
