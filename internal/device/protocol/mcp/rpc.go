package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The codes of errors that mean that something was not tried, and some that are told
// to devices.
const (
	codeParse       = -32700
	codeInvalid     = -32600
	codeNoMethod    = -32601
	codeBadParams   = -32602
	codeNoResource  = -32002 // in the older era
	codeHeader      = -32020
	codeCapability  = -32021
	codeVersion     = -32022
	codeNeedsURL    = -32042 // the user is to open a page first
	codeUserRefused = -1     // of sampling
)

// request is a request as it is sent.
type request struct {
	id     string
	method string
	name   string // of the tool, prompt or resource; empty of others
	body   []byte
	// harmless tells that it may be sent again if it comes to nothing.
	harmless bool
}

// rpc is a message as it is written.
type rpc struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// encode writes a message. What it is made of can be written.
func encode(m rpc) []byte {
	m.Version = "2.0"
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

func notification(method string, params map[string]any) []byte {
	if params == nil {
		return encode(rpc{Method: method})
	}
	return encode(rpc{Method: method, Params: params})
}

// message is a message of a device, taken apart.
type message struct {
	id     string // a number, or a text without its quotes; empty if there is none
	rawID  json.RawMessage
	method string // empty of an answer
	params json.RawMessage
	result json.RawMessage
	err    *rpcError
}

func (m message) isRequest() bool { return m.method != "" && m.id != "" }
func (m message) isAnswer() bool  { return m.method == "" }

// answers tells whether m is the answer to a request. An error without an id answers
// whatever there is.
func (m message) answers(id string) bool {
	return m.isAnswer() && (m.id == id || m.id == "" && m.err != nil)
}

// maxBatch is how many messages one batch may have. Boards send none.
const maxBatch = 64

// decode reads what a device sent: a message, or a batch of them. What is none is left
// out.
func decode(data []byte) (all []message) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '[' {
		if m, ok := decodeOne(data); ok {
			return []message{m}
		}
		return nil
	}
	var batch []json.RawMessage
	if json.Unmarshal(data, &batch) != nil {
		return nil
	}
	for _, raw := range batch[:min(len(batch), maxBatch)] {
		if m, ok := decodeOne(raw); ok {
			all = append(all, m)
		}
	}
	return all
}

func decodeOne(data []byte) (message, bool) {
	var p struct {
		ID     json.RawMessage `json:"id"`
		Method any             `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return message{}, false
	}
	m := message{params: p.Params, result: p.Result}
	if len(p.ID) <= ferrule.MaxWord && string(p.ID) != "null" {
		m.id, m.rawID = strings.Trim(string(p.ID), `"`), p.ID
	}
	if method, ok := p.Method.(string); ok {
		m.method, m.result = method, nil
		return m, method != "" && len(method) <= ferrule.MaxMethod
	}
	if len(p.Error) > 0 && string(p.Error) != "null" {
		m.err, m.result = parseError(p.Error), nil
	}
	return m, m.err != nil || m.result != nil
}

// rpcError is the error of an answer.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func parseError(data []byte) *rpcError {
	e := &rpcError{}
	if err := json.Unmarshal(data, e); err != nil && e.Message == "" {
		e.Message = strings.Trim(string(data), `"`)
	}
	return e
}

func (e *rpcError) Error() string {
	text := ferrule.Clean(e.Message, 256)
	if e.Code == 0 {
		return text
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}

// refused tells that what was asked for was not tried.
func (e *rpcError) refused() bool {
	switch e.Code {
	case codeParse, codeInvalid, codeNoMethod, codeBadParams, codeNoResource, codeHeader, codeCapability, codeVersion, codeNeedsURL:
		return true
	}
	return false
}

// reason says in plain words what is wrong with JSON of the wrong shape.
func reason(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "text"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int64, reflect.Float64:
		want = "a number"
	case reflect.Slice:
		want = "a list"
	}
	if wrong.Field == "" {
		return fmt.Sprintf("%s came where %s belongs", wrong.Value, want)
	}
	return fmt.Sprintf("%s came where %s belongs: %s", wrong.Value, want, wrong.Field)
}
