// Package jsonrpc holds the JSON-RPC 2.0 parts that the protocols share: messages,
// ids, requests that wait for their answers, and what an outcome means for a call.
//
//	IDs.Take -> Pending.Add -> Message.Append -> link
//	link -> Decode -> Pending.Answer -> Request.Wait -> Result or *ferrule.Error
//
// The package does not read or write a link. Each protocol keeps its own rules:
// which ids its devices accept, how messages are framed, and which errors mean
// that nothing was tried.
package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// The error codes of JSON-RPC.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
)

// Message is a request, a notification or an answer. Empty members are absent.
type Message struct {
	ID     json.RawMessage // as received; nil if absent or null
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *Error
}

// Decode reads one message, and reports whether it is a JSON object. Duplicate members
// would leave open which one is meant: if the message itself has them, it is not
// accepted; if something in an answer has, the answer is an error. Otherwise Decode is
// lenient: a method that is not a string is absent, and an error may have any type.
func Decode(data []byte) (Message, bool) {
	var duplicate *strictjson.DuplicateError
	err := strictjson.Check(data)
	if err != nil && (!errors.As(err, &duplicate) || duplicate.Depth == 1) {
		return Message{}, false
	}
	m, ok := decode(data)
	if duplicate == nil {
		return m, ok
	}
	return Message{ID: m.ID, Error: &Error{Message: "the answer is not usable: " + err.Error()}}, ok && m.Method == "" && m.ID != nil
}

func decode(data []byte) (Message, bool) {
	var p struct {
		ID     json.RawMessage `json:"id"`
		Method any             `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return Message{}, false
	}
	m := Message{ID: p.ID, Params: p.Params, Result: p.Result}
	m.Method, _ = p.Method.(string)
	if string(p.ID) == "null" {
		m.ID = nil
	}
	if len(p.Error) > 0 && string(p.Error) != "null" {
		m.Error, m.Result = parseError(p.Error), nil
	}
	return m, true
}

// IntID returns the id if it is a decimal integer that fits the given number of bits.
func (m Message) IntID(bits int) (id int, ok bool) {
	n, err := strconv.ParseInt(string(m.ID), 10, bits)
	return int(n), err == nil
}

// Append appends the message as compact JSON. ID, Params and Result must be valid
// JSON, and are written as they are.
func (m Message) Append(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if len(m.ID) > 0 {
		b = append(append(b, `,"id":`...), m.ID...)
	}
	if m.Method != "" {
		b = ferrule.AppendString(append(b, `,"method":`...), m.Method)
	}
	if len(m.Params) > 0 {
		b = append(append(b, `,"params":`...), m.Params...)
	}
	if len(m.Result) > 0 {
		b = append(append(b, `,"result":`...), m.Result...)
	}
	if m.Error != nil {
		b = append(append(b, `,"error":`...), Marshal(m.Error)...)
	}
	return append(b, '}')
}

// AppendRequest appends a request with an integer id. Without params, it has none.
func AppendRequest(b []byte, id int, method string, params []byte) []byte {
	return Message{ID: strconv.AppendInt(nil, int64(id), 10), Method: method, Params: params}.Append(b)
}

// Marshal returns a value as JSON. The value must be one that can be marshaled.
func Marshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Error is the error of an answer.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// parseError reads an error. Devices also send a bare string, or no code.
func parseError(data []byte) *Error {
	e := &Error{}
	if err := json.Unmarshal(data, e); err != nil && e.Message == "" {
		e.Message = strings.Trim(string(data), `"`)
	}
	return e
}

// maxErrorText is how many characters of a device's error message are shown.
const maxErrorText = 256

// Error returns the message, safe to show, and the code if there is one.
func (e *Error) Error() string {
	text := ferrule.Clean(e.Message, maxErrorText)
	if e.Code == 0 {
		return text
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}

// Rejected reports whether the code means, in every protocol, that the device did not
// try what was asked.
func (e *Error) Rejected() bool {
	switch e.Code {
	case CodeInvalidRequest, CodeMethodNotFound, CodeInvalidParams:
		return true
	}
	return false
}

// Reason returns what is wrong with JSON that json.Unmarshal did not accept.
func Reason(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		want = "an integer"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	case reflect.Slice:
		want = "an array"
	}
	text := fmt.Sprintf("must be %s, got %s", want, withArticle(wrong.Value))
	if wrong.Field == "" {
		return text
	}
	return wrong.Field + " " + text
}

// withArticle returns the name of a JSON value as json.UnmarshalTypeError has it, with
// its article. A number may come with its value.
func withArticle(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "a boolean"
	case "number", "string":
		return "a " + value
	}
	return value
}
