// Package rpc has what servers of agents share if they do not use HTTP: JSON-RPC messages,
// and the lines in which the MCP server writes them.
package rpc

import (
	"bytes"
	"encoding/json"
)

// Message is a JSON-RPC message.
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// Codes of errors.
const (
	CodeInternal = -32603
	CodeBusy     = -32000
)

// MaxID is the maximum length of an ID.
const MaxID = 256

// Encode returns a value as one line of JSON, without its end. It panics if the value
// cannot be encoded, so its type must be one that always can.
func Encode(v any) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'})
}

// Lines is an io.Writer that passes on each whole line, without its end. It must not be
// used concurrently.
type Lines struct {
	// Pass receives a line, which it may keep.
	Pass func(line []byte) error
	part []byte
}

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		l.part, rest = append(l.part, line...), after
		if !whole {
			break
		}
		err := l.Pass(l.part)
		l.part = nil
		if err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
