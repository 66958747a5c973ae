package xiaozhi

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/protocol/jsonrpc"
	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// The envelope of a JSON-RPC message.
const (
	envelope    = `{"type":"mcp","payload":`
	envelopeEnd = `}`
)

// initialized ends the greeting. Firmware silently drops it, so that it also keeps a
// WebSocket alive.
var initialized = append(jsonrpc.Message{Method: "notifications/initialized"}.Append([]byte(envelope)), envelopeEnd...)

// request returns one request in its envelope. Params are an object, or empty for none:
// the device drops a request whose params are null.
func request(id int, method string, params []byte) []byte {
	b := append(make([]byte, 0, 96+len(method)+len(params)), envelope...)
	return append(jsonrpc.AppendRequest(b, id, method, params), envelopeEnd...)
}

// initializeParams returns the params of initialize. If url is not empty, it tells the
// device where to upload pictures.
func initializeParams(version, url, token string) []byte {
	b := []byte(`{"protocolVersion":"2024-11-05","capabilities":{`)
	if url != "" {
		b = append(b, `"vision":{"url":`...)
		b = ferrule.AppendString(b, url)
		if token != "" {
			b = append(b, `,"token":`...)
			b = ferrule.AppendString(b, token)
		}
		b = append(b, '}')
	}
	b = append(b, `},"clientInfo":{"name":"ferrule","version":`...)
	b = ferrule.AppendString(b, version)
	return append(b, `}}`...)
}

// kind is the kind of a message.
type kind byte

const (
	kindNoise        kind = iota // cannot be decoded
	kindAnswer                   // of MCP
	kindNotification             // of MCP
	kindRequest                  // of MCP; devices have no reason to send one
	kindHello
	kindPing
	kindOther // some other message of a voice device
	kindSound
)

// message is one decoded message of a device.
type message struct {
	kind   kind
	name   string // the type of kindOther, the method of a notification or request
	params json.RawMessage
	answer answer
	hello  hello
}

// answer is a device's answer to one request.
type answer struct {
	id     int
	result json.RawMessage
	err    *jsonrpc.Error
	broken bool // there was a result, but it cannot be decoded
}

// decode decodes a message. Some boards send JSON-RPC without the envelope. The
// session_id is ignored: it may be from a previous connection.
func decode(m transport.Message) message {
	if m.Channel == "binary" {
		return message{kind: kindSound}
	}
	var e struct {
		Type      any             `json:"type"`
		Payload   json.RawMessage `json:"payload"`
		Version   any             `json:"jsonrpc"`
		Transport any             `json:"transport"`
		Features  any             `json:"features"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return recoverAnswer(m.Data)
	}
	switch name, _ := e.Type.(string); name {
	case "mcp":
		return decodeRPC(e.Payload)
	case "hello":
		features, _ := e.Features.(map[string]any)
		return message{kind: kindHello, hello: hello{mcp: features["mcp"] == true, udp: e.Transport == "udp"}}
	case "ping":
		return message{kind: kindPing}
	case "":
		if e.Version == "2.0" {
			return decodeRPC(m.Data)
		}
		return message{}
	default:
		return message{kind: kindOther, name: name}
	}
}

// decodeRPC decodes a JSON-RPC message.
func decodeRPC(data []byte) message {
	m, ok := jsonrpc.Decode(data)
	switch {
	case !ok:
		return message{}
	case strings.HasPrefix(m.Method, "notifications/"):
		return message{kind: kindNotification, name: m.Method, params: m.Params}
	case m.Method != "":
		return message{kind: kindRequest, name: m.Method}
	}
	id, ok := m.IntID(32)
	if !ok || m.Result == nil && m.Error == nil {
		return message{}
	}
	return message{kind: kindAnswer, answer: answer{id: id, result: m.Result, err: m.Error}}
}

// brokenAnswer finds an answer that is not JSON because firmware does not escape the
// texts of its errors.
var brokenAnswer = regexp.MustCompile(`"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,10})\s*,\s*"(error|result)"\s*:`)

// recoverAnswer decodes what it can of an answer that is not JSON. The first id counts:
// others may be part of a text, which comes later.
func recoverAnswer(data []byte) message {
	at := brokenAnswer.FindSubmatchIndex(data)
	if at == nil {
		return message{}
	}
	id, err := strconv.ParseInt(string(data[at[2]:at[3]]), 10, 32)
	if err != nil {
		return message{}
	}
	a := answer{id: int(id)}
	if string(data[at[4]:at[5]]) == "result" {
		a.broken = true
	} else {
		a.err = &jsonrpc.Error{Message: brokenText(data[at[1]:])}
	}
	return message{kind: kindAnswer, answer: a}
}

// brokenText returns the message of an error that is not JSON.
func brokenText(data []byte) string {
	if _, text, ok := bytes.Cut(data, []byte(`"message":`)); ok {
		data = bytes.TrimRight(text, "} \r\n")
	}
	return strings.Trim(string(data), `"`)
}

// refusals are the prefixes of all errors that firmware sends before it tries a tool.
// The list must have no others: a tool may report that something is missing after it
// has moved.
var refusals = []string{
	"Missing params", "Missing name", "Missing valid argument: ", "Missing required argument: ", "Invalid arguments",
	"Invalid stackSize", "Unknown tool: ", "Method not implemented: ", "Value is below minimum allowed: ", "Value exceeds maximum allowed: ",
}

// refused reports whether an error means that the tool was not tried. Firmware gives no
// code, so that the text decides.
func refused(e *jsonrpc.Error) bool {
	if e.Rejected() {
		return true
	}
	for _, prefix := range refusals {
		if strings.HasPrefix(e.Message, prefix) {
			return true
		}
	}
	return false
}

// callParams returns the params of tools/call. It rejects arguments that firmware would
// silently change.
func callParams(tool string, args json.RawMessage) ([]byte, error) {
	b := append([]byte(`{"name":`), ferrule.AppendString(nil, tool)...)
	if len(args) > 0 {
		var values map[string]json.RawMessage
		if err := json.Unmarshal(args, &values); err != nil || values == nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "arguments are not a JSON object")
		}
		for name, value := range values {
			if n, err := strconv.ParseFloat(string(value), 64); err == nil && (n > math.MaxInt32 || n < math.MinInt32) {
				return nil, ferrule.Errorf(ferrule.Invalid, "%s must be from %d to %d, got %s", name, math.MinInt32, math.MaxInt32, ferrule.Clean(string(value), 64))
			}
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, args); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "arguments are not JSON: %w", err)
		}
		b = append(b, `,"arguments":`...)
		b = append(b, compact.Bytes()...)
	}
	return append(b, '}'), nil
}
