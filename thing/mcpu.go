package thing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// JSON-RPC error codes.
const (
	parseError     = -32700
	invalidRequest = -32600
	noMethod       = -32601
	badParams      = -32602
	internalError  = -32603
	toolFailed     = -32000
)

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

// Answer answers one MCP/U request, a line. The answer has a line end; it is nil if the request
// is to be ignored. Requests are answered one at a time.
func (d *Device) Answer(ctx context.Context, line []byte) []byte {
	d.turn.Lock()
	defer d.turn.Unlock()
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var req struct {
		Version any             `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  any             `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(line, &req); err != nil {
		return failure(0, &rpcError{parseError, "Parse error"})
	}
	if req.Version != "2.0" {
		return failure(0, &rpcError{invalidRequest, "Invalid request"})
	}
	id, err := strconv.ParseInt(string(req.ID), 10, 32)
	if err != nil {
		return nil // as firmware: only integer IDs get an answer
	}
	method, ok := req.Method.(string)
	if !ok {
		return failure(id, &rpcError{invalidRequest, "Missing method"})
	}
	result, err := d.dispatch(ctx, method, req.Params)
	if err != nil {
		return failure(id, asRPC(err))
	}
	return success(id, result)
}

// dispatch calls a method. A panic becomes an error.
func (d *Device) dispatch(ctx context.Context, method string, params json.RawMessage) (result any, err error) {
	defer func() {
		if r := recover(); r != nil {
			result, err = nil, &rpcError{internalError, fmt.Sprintf("%s panicked: %v", method, r)}
		}
	}()
	if fn := builtins[method]; fn != nil {
		var p arguments
		if len(params) > 0 {
			if err := json.Unmarshal(params, &p); err != nil {
				return nil, &rpcError{badParams, "Bad params"}
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return fn(d, p)
	}
	if t := d.toolNamed(method); t != nil {
		return d.run(ctx, t, params)
	}
	return nil, &rpcError{noMethod, "Method not found"}
}

func (d *Device) toolNamed(name string) *tool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.find(name)
}

// find is toolNamed with mu held.
func (d *Device) find(name string) *tool {
	for _, t := range d.tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func asRPC(err error) *rpcError {
	var e *rpcError
	var refused *RefusedError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &refused):
		return &rpcError{badParams, refused.Reason}
	}
	return &rpcError{toolFailed, err.Error()}
}

// success encodes an answer as firmware does: the result first, CR LF last.
func success(id int64, result any) []byte {
	data, err := json.Marshal(result)
	if err != nil {
		return failure(id, &rpcError{internalError, "encoding the result: " + err.Error()})
	}
	return fmt.Appendf(nil, `{"result":%s,"jsonrpc":"2.0","id":%d}`+"\r\n", data, id)
}

func failure(id int64, e *rpcError) []byte {
	data, err := json.Marshal(e)
	if err != nil { // cannot happen: it has a number and a string
		panic(err)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":%s}`+"\r\n", id, data)
}

// arguments are the parameters of the built-in methods.
type arguments struct {
	Pin   any   `json:"pin"`
	Value *bool `json:"value"`
	Duty  *int  `json:"duty"`
	Limit *int  `json:"limit"`
}

// number returns the pin as a number.
func (p arguments) number() (int, error) {
	n, ok := p.Pin.(float64)
	if !ok || n != math.Trunc(n) {
		return 0, &rpcError{badParams, "Bad params"}
	}
	return int(n), nil
}
