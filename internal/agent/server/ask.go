//lint:file-ignore SA1019 sampling and roots are to go, and some agents have nothing else

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPrompt is how large a question to a model may be.
const maxPrompt = 256 << 10

// askable is who can be asked by way of a client. One that names no mode of asking its
// user has forms.
func askable(can *mcp.ClientCapabilities) (who []ferrule.AskTarget) {
	if can == nil {
		return nil
	}
	if e := can.Elicitation; e != nil {
		if e.Form != nil || e.URL == nil {
			who = append(who, ferrule.User)
		}
		if e.URL != nil {
			who = append(who, ferrule.Page)
		}
	}
	if can.Sampling != nil {
		who = append(who, ferrule.Model)
	}
	if can.RootsV2 != nil || can.Roots.ListChanged {
		who = append(who, ferrule.Roots)
	}
	return who
}

// capabilities are what a client has to have for somebody to be asked.
var capabilities = map[ferrule.AskTarget]string{
	ferrule.User:  `{"elicitation":{"form":{}}}`,
	ferrule.Page:  `{"elicitation":{"url":{}}}`,
	ferrule.Model: `{"sampling":{}}`,
	ferrule.Roots: `{"roots":{}}`,
}

// nobody says that somebody cannot be asked.
func nobody(who ferrule.AskTarget) error {
	names := map[ferrule.AskTarget]string{ferrule.User: "its user", ferrule.Page: "its user to open a page", ferrule.Model: "its model", ferrule.Roots: "for its folders"}
	e := ferrule.Errorf(ferrule.Refused, "the program that calls cannot ask %s", names[who])
	e.Needs = []ferrule.AskTarget{who}
	return e
}

// lacks tells whether a call failed because the client cannot ask somebody whom MCP knows.
func lacks(e *ferrule.Error) bool { return len(e.Needs) > 0 && capabilities[e.Needs[0]] != "" }

// lacking is the answer to such a request, as the newer era wants it.
func lacking(e *ferrule.Error) error {
	data := fmt.Sprintf(`{"requiredCapabilities":%s}`, capabilities[e.Needs[0]])
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: words(e), Data: json.RawMessage(data)}
}

// anyText is the form of a question to which any text is an answer.
const anyText = `{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`

// inputRequest is a question of a device in the words of MCP. A user who sees several
// devices is told which one asks.
func (v *view) inputRequest(device string, q ferrule.Question) (mcp.InputRequest, error) {
	message := ferrule.Clean(q.Text, ferrule.MaxText)
	if v.device == "" {
		message = device + ": " + message
	}
	switch q.Needs() {
	case ferrule.User:
		schema := q.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(anyText)
		}
		var root map[string]any
		if len(schema) > ferrule.MaxSchema || depth(schema) > maxDepth || json.Unmarshal(schema, &root) != nil || root == nil {
			return nil, errors.New("the form that the device asks with is no object, too large, or too deep")
		}
		if err := checkForm(schema); err != nil {
			return nil, err
		}
		return &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema}, nil
	case ferrule.Page:
		web := strings.HasPrefix(q.URL, "https://") || strings.HasPrefix(q.URL, "http://")
		if !web || len(q.URL) > ferrule.MaxText || ferrule.Clean(q.URL, ferrule.MaxText) != q.URL {
			return nil, errors.New("what the device asks to open is no page of the web")
		}
		return &mcp.ElicitParams{Mode: "url", Message: message, URL: q.URL}, nil
	case ferrule.Model:
		p := &mcp.CreateMessageWithToolsParams{}
		if len(q.Prompt) > maxPrompt {
			return nil, fmt.Errorf("what the device asks a model has %d bytes; at most %d are possible", len(q.Prompt), maxPrompt)
		}
		if depth(q.Prompt) > maxDepth {
			return nil, fmt.Errorf("what the device asks a model is more than %d levels deep", maxDepth)
		}
		if err := json.Unmarshal(q.Prompt, p); err != nil {
			return nil, fmt.Errorf("what the device asks a model cannot be read: %w", err)
		}
		p.Meta, p.IncludeContext = nil, "" // what others have told the model is not for a device
		return p, nil
	case ferrule.Roots:
		return &mcp.ListRootsParams{}, nil
	}
	return nil, fmt.Errorf("nobody is called %q", ferrule.Clean(string(q.Target), ferrule.MaxWord))
}

// checkForm looks at every word of a form, as of members that are there twice it is not
// known which one counts. None may be hidden from who reads it, and none may refer to a
// schema: the SDK would check an answer against one that refers to itself without end, until
// the whole process has no stack left. No form needs that: in MCP they are flat.
func checkForm(form json.RawMessage) error {
	words := json.NewDecoder(bytes.NewReader(form))
	for {
		token, err := words.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the form that the device asks with cannot be read: %w", err)
		}
		switch word, _ := token.(string); {
		case ferrule.Clean(word, ferrule.MaxText) != word:
			return errors.New("the form that the device asks with has a text that cannot be shown: it is too long, or has characters that are not seen")
		case slices.Contains(references, strings.ToLower(word)):
			return errors.New("the form that the device asks with refers to a schema; that is not possible in a form")
		}
	}
}

// references are the words by which one schema refers to another. Some take them in any
// case.
var references = []string{"$ref", "$dynamicref", "$recursiveref"}

// answerTo is what was said to a question; it is not ok if it is no answer to that.
func answerTo(q ferrule.Question, response any) (a ferrule.Answer, ok bool) {
	switch r := response.(type) {
	case *mcp.ElicitResult:
		a.Given, a.Dismissed = r.Action == "accept", r.Action == "cancel"
		ok = (q.Needs() == ferrule.User || q.Needs() == ferrule.Page) && (a.Given || a.Dismissed || r.Action == "decline")
		if !ok || !a.Given || q.Needs() == ferrule.Page {
			return a, ok
		}
		var value any = r.Content
		if r.Content == nil {
			value = map[string]any{}
		}
		if len(q.Schema) == 0 {
			value, ok = r.Content["answer"].(string)
		}
		a.Value, ok = encoded(value, ok)
	case *mcp.CreateMessageWithToolsResult:
		a.Given = true
		a.Value, ok = encoded(r, q.Target == ferrule.Model)
	case *mcp.ListRootsResult:
		a.Given = true
		a.Value, ok = encoded(r, q.Target == ferrule.Roots)
	}
	return a, ok
}

// encoded is a value as JSON, if it is ok.
func encoded(value any, ok bool) (json.RawMessage, bool) {
	data, err := json.Marshal(value)
	return data, ok && err == nil
}

// askNow asks by way of a client of the older era, while its request is under way. The
// context of that is how the SDK knows which one it is.
func askNow(ctx, request context.Context, session *mcp.ServerSession, q ferrule.Question, p mcp.InputRequest) (ferrule.Answer, error) {
	request, cancel := context.WithCancelCause(request)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	var response any
	var err error
	switch p := p.(type) {
	case *mcp.ElicitParams:
		if p.Mode == "url" {
			p.ElicitationID = newState()
		}
		response, err = session.Elicit(request, p)
	case *mcp.CreateMessageWithToolsParams:
		response, err = session.CreateMessageWithTools(request, p)
	case *mcp.ListRootsParams:
		response, err = session.ListRoots(request, p)
	}
	if err != nil {
		return ferrule.Answer{}, fmt.Errorf("asking: %w", err)
	}
	answer, ok := answerTo(q, response)
	if !ok {
		return ferrule.Answer{}, errors.New("what was said is no answer")
	}
	return answer, nil
}
