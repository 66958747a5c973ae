//lint:file-ignore SA1019 sampling and roots are deprecated, but some agents have nothing else

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// maxPrompt is the limit of a question to a model, in bytes.
const maxPrompt = 256 << 10

// askable returns who can be asked through a client. A client that names no mode of
// elicitation has forms.
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

// capabilities are the client capabilities that a question needs.
var capabilities = map[ferrule.AskTarget]string{
	ferrule.User:  `{"elicitation":{"form":{}}}`,
	ferrule.Page:  `{"elicitation":{"url":{}}}`,
	ferrule.Model: `{"sampling":{}}`,
	ferrule.Roots: `{"roots":{}}`,
}

// cannotAsk is the error for a question that the client cannot ask.
func cannotAsk(who ferrule.AskTarget) error {
	names := map[ferrule.AskTarget]string{ferrule.User: "its user", ferrule.Page: "its user to open a page", ferrule.Model: "its model", ferrule.Roots: "for its folders"}
	e := ferrule.Errorf(ferrule.Refused, "the calling program cannot ask %s", names[who])
	e.Needs = []ferrule.AskTarget{who}
	return e
}

// needsCapability reports whether a call failed because the client lacks a capability.
func needsCapability(e *ferrule.Error) bool {
	return len(e.Needs) > 0 && capabilities[e.Needs[0]] != ""
}

// missingCapability is the error of such a request from 2026-07-28 on.
func missingCapability(e *ferrule.Error) error {
	data := fmt.Sprintf(`{"requiredCapabilities":%s}`, capabilities[e.Needs[0]])
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: e.Explain(), Data: json.RawMessage(data)}
}

// anyText is the form of a question that any text answers.
const anyText = `{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`

// inputRequest converts a question of a device. The pipeline has added which device asks.
func inputRequest(q ferrule.Question) (mcp.InputRequest, error) {
	message := ferrule.Clean(q.Text, ferrule.MaxText)
	switch q.Needs() {
	case ferrule.User:
		schema := q.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(anyText)
		}
		var root map[string]any
		if len(schema) > ferrule.MaxSchema || depth(schema) > maxDepth || json.Unmarshal(schema, &root) != nil || root == nil {
			return nil, errors.New("invalid form from the device: it is not an object, too large, or too deep")
		}
		if err := checkForm(schema); err != nil {
			return nil, err
		}
		return &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema}, nil
	case ferrule.Page:
		if !private(q.URL) || len(q.URL) > ferrule.MaxText || ferrule.Clean(q.URL, ferrule.MaxText) != q.URL {
			return nil, errors.New("invalid page from the device: the URL must begin with https://")
		}
		return &mcp.ElicitParams{Mode: "url", Message: message, URL: q.URL}, nil
	case ferrule.Model:
		p := &mcp.CreateMessageWithToolsParams{}
		if len(q.Prompt) > maxPrompt {
			return nil, fmt.Errorf("question of the device to a model is too large: limit is %d bytes, got %d", maxPrompt, len(q.Prompt))
		}
		if depth(q.Prompt) > maxDepth {
			return nil, fmt.Errorf("question of the device to a model is too deep: limit is %d levels", maxDepth)
		}
		if err := json.Unmarshal(q.Prompt, p); err != nil {
			return nil, fmt.Errorf("invalid question of the device to a model: %w", err)
		}
		p.Meta, p.IncludeContext = nil, "" // a device must not see the rest of the conversation
		return p, nil
	case ferrule.Roots:
		return &mcp.ListRootsParams{}, nil
	}
	return nil, fmt.Errorf("unknown target of a question: %q", ferrule.Clean(string(q.Target), ferrule.MaxWord))
}

// private reports whether others on the network cannot read what is sent to a page. A page of the
// gateway itself may be on this machine; devices can name only those with https://, as the
// pipeline checks.
func private(page string) bool {
	u, err := url.Parse(page)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Host))
}

// checkForm checks every string of a form, including duplicate members, because decoders
// differ in which one they use. No string may have invisible characters. No schema may
// refer to another: the SDK would follow a cycle until the process has no stack left.
// In MCP forms are flat, so none needs a reference.
func checkForm(form json.RawMessage) error {
	tokens := json.NewDecoder(bytes.NewReader(form))
	for {
		token, err := tokens.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("invalid form from the device: %w", err)
		}
		switch word, _ := token.(string); {
		case ferrule.Clean(word, ferrule.MaxText) != word:
			return errors.New("invalid form from the device: a text is too long, or has invisible characters")
		case slices.Contains(references, strings.ToLower(word)):
			return errors.New("invalid form from the device: a schema must not have references")
		}
	}
}

// references are the keywords of schema references. Some decoders ignore their case.
var references = []string{"$ref", "$dynamicref", "$recursiveref"}

// answerTo converts a response. Ok is false if it does not answer the question.
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

// decodeResponse decodes the response to a question; nil if it is none.
func decodeResponse(q ferrule.Question, data json.RawMessage) (response any) {
	switch q.Needs() {
	case ferrule.Model:
		response = new(mcp.CreateMessageWithToolsResult)
	case ferrule.Roots:
		response = new(mcp.ListRootsResult)
	default:
		response = new(mcp.ElicitResult)
	}
	if len(data) == 0 || json.Unmarshal(data, response) != nil {
		return nil
	}
	return response
}

// encoded returns a value as JSON, if ok.
func encoded(value any, ok bool) (json.RawMessage, bool) {
	data, err := json.Marshal(value)
	return data, ok && err == nil
}

// askNow asks a client of a version with sessions. The SDK finds the stream of a request
// by its context. Another context leads to the stream of notifications.
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
		return ferrule.Answer{}, errors.New("the response does not answer the question")
	}
	return answer, nil
}
