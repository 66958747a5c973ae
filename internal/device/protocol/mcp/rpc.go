package mcp

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The error codes of MCP besides those of JSON-RPC.
const (
	codeNoResource  = -32002 // of legacy devices
	codeHeader      = -32020
	codeCapability  = -32021
	codeVersion     = -32022
	codeNeedsURL    = -32042 // the user has to open a page first
	codeUserRefused = -1     // of sampling
)

// request is a request to be sent.
type request struct {
	id     string
	method string
	name   string // of the tool, prompt or resource; else empty
	body   []byte
	// harmless says that the request may be sent again.
	harmless bool
	// own says that the request does not belong to a call. Only the dock repeats calls.
	own bool
	// lasts says that the answer is a stream that may stay open.
	lasts bool
}

// notification returns the body of a notification. Params may be nil.
func notification(method string, params map[string]any) []byte {
	m := jsonrpc.Message{Method: method}
	if params != nil {
		m.Params = jsonrpc.Marshal(params)
	}
	return m.Append(nil)
}

// message is one decoded message of a device.
type message struct {
	jsonrpc.Message
	id    string // a number, or a string without its quotes; "" if absent
	aside bool   // it came in a stream that belongs to no request
}

func (m message) isRequest() bool { return m.Method != "" && m.id != "" }
func (m message) isAnswer() bool  { return m.Method == "" }

// answers reports whether m is the answer to a request. An error without an id answers
// any.
func (m message) answers(id string) bool {
	return m.isAnswer() && (m.id == id || m.id == "" && m.Error != nil)
}

// maxBatch is how many messages of a batch are decoded. Boards do not send batches.
const maxBatch = 64

// decode decodes a message, or a batch of messages. Invalid ones are left out.
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
	decoded, ok := jsonrpc.Decode(data)
	if !ok {
		return message{}, false
	}
	m := message{Message: decoded}
	if len(m.ID) <= ferrule.MaxWord {
		m.id = strings.Trim(string(m.ID), `"`)
	} else {
		m.ID = nil
	}
	if m.Method != "" {
		m.Result, m.Error = nil, nil
		return m, len(m.Method) <= ferrule.MaxMethod
	}
	return m, m.Error != nil || m.Result != nil
}

// refused reports whether an error means that the device did not try what was asked.
func refused(e *jsonrpc.Error) bool {
	switch e.Code {
	case jsonrpc.CodeParseError, codeNoResource, codeHeader, codeCapability, codeVersion, codeNeedsURL:
		return true
	}
	return e.Rejected()
}
