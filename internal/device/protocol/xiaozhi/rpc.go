package xiaozhi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/device/transport"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// ids hands out the ids of one conversation. Firmware reads an id as a C int.
type ids struct{ next int32 }

func (n *ids) take() int32 {
	id := n.next
	n.next++
	if n.next <= 0 {
		n.next = 1
	}
	return id
}

// The parts of an envelope.
const (
	envelope    = `{"type":"mcp","payload":{"jsonrpc":"2.0",`
	envelopeEnd = `}}`
)

// initialized tells the device that the greeting is over. Firmware drops it
// without a word, and it keeps a WebSocket from being taken for dead.
var initialized = []byte(envelope + `"method":"notifications/initialized"` + envelopeEnd)

// request is one message. Params are an object, or empty for none: null would
// have it dropped.
func request(id int32, method string, params []byte) []byte {
	b := make([]byte, 0, 96+len(method)+len(params))
	b = append(b, envelope+`"id":`...)
	b = strconv.AppendInt(b, int64(id), 10)
	b = append(b, `,"method":`...)
	b = ferrule.AppendString(b, method)
	if len(params) > 0 {
		b = append(b, `,"params":`...)
		b = append(b, params...)
	}
	return append(b, envelopeEnd...)
}

// initializeParams tells who is asking, and where pictures go if url is not empty.
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

// sort is what a message is.
type sort byte

const (
	sortNoise        sort = iota // it cannot be read
	sortAnswer                   // to a request of MCP
	sortNotification             // of MCP
	sortRequest                  // of MCP; devices have nothing to ask
	sortHello
	sortPing
	sortOther // something of a voice device
	sortSound
)

// said is one message of a device, taken apart.
type said struct {
	sort   sort
	word   string // the type of sortOther, the method of the MCP ones
	params json.RawMessage
	answer answer
	hello  hello
}

// answer is what a device said to one request.
type answer struct {
	id     int32
	result json.RawMessage
	err    *rpcError
	broken bool // there was a result, and it cannot be read
}

// decode reads a message, in an envelope or, as some boards send it, without. The
// session_id is not looked at: it may be that of a connection before.
func decode(m transport.Message) said {
	if m.Channel == "binary" {
		return said{sort: sortSound}
	}
	var e struct {
		Type      any             `json:"type"`
		Payload   json.RawMessage `json:"payload"`
		Version   any             `json:"jsonrpc"`
		Transport any             `json:"transport"`
		Features  any             `json:"features"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return recovered(m.Data)
	}
	switch word, _ := e.Type.(string); word {
	case "mcp":
		return decodeRPC(e.Payload)
	case "hello":
		features, _ := e.Features.(map[string]any)
		return said{sort: sortHello, hello: hello{mcp: features["mcp"] == true, udp: e.Transport == "udp"}}
	case "ping":
		return said{sort: sortPing}
	case "":
		if e.Version == "2.0" {
			return decodeRPC(m.Data)
		}
		return said{}
	default:
		return said{sort: sortOther, word: word}
	}
}

// decodeRPC reads a message of JSON-RPC.
func decodeRPC(data []byte) said {
	var p struct {
		ID     json.RawMessage `json:"id"`
		Method any             `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return said{}
	}
	if method, ok := p.Method.(string); ok {
		if strings.HasPrefix(method, "notifications/") {
			return said{sort: sortNotification, word: method, params: p.Params}
		}
		return said{sort: sortRequest, word: method}
	}
	if string(p.Error) == "null" {
		p.Error = nil
	}
	id, err := strconv.ParseInt(string(p.ID), 10, 32)
	if err != nil || p.Result == nil && p.Error == nil {
		return said{}
	}
	a := answer{id: int32(id), result: p.Result}
	if p.Error != nil {
		a = answer{id: int32(id), err: parseError(p.Error)}
	}
	return said{sort: sortAnswer, answer: a}
}

// broken finds an answer in what is no JSON, as firmware puts it together: the
// texts of its errors are not escaped.
var broken = regexp.MustCompile(`"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,10})\s*,\s*"(error|result)"\s*:`)

// recovered reads an answer that is no JSON as far as that can be done. The first
// id counts: texts, in which others may stand, come after it.
func recovered(data []byte) said {
	at := broken.FindSubmatchIndex(data)
	if at == nil {
		return said{}
	}
	id, err := strconv.ParseInt(string(data[at[2]:at[3]]), 10, 32)
	if err != nil {
		return said{}
	}
	a := answer{id: int32(id)}
	if string(data[at[4]:at[5]]) == "result" {
		a.broken = true
	} else {
		a.err = &rpcError{Message: brokenText(data[at[1]:])}
	}
	return said{sort: sortAnswer, answer: a}
}

// brokenText is the message in an error that is no JSON.
func brokenText(data []byte) string {
	if _, text, ok := bytes.Cut(data, []byte(`"message":`)); ok {
		data = bytes.TrimRight(text, "} \r\n")
	}
	return strings.Trim(string(data), `"`)
}

// rpcError is the error of an answer. Firmware gives no code.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func parseError(data []byte) *rpcError {
	e := &rpcError{}
	if err := json.Unmarshal(data, e); err != nil && e.Message == "" {
		e.Message = strings.Trim(string(data), `"`)
	}
	return e
}

func (e *rpcError) String() string {
	text := ferrule.Clean(e.Message, 256)
	if e.Code == 0 {
		return text
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}

// refusals begin what firmware says before it tries a tool. They are told apart
// by their words, and no more of these than it has: a tool may say of its own that
// something is missing, after it has moved.
var refusals = []string{
	"Missing params", "Missing name", "Missing valid argument: ", "Missing required argument: ", "Invalid arguments",
	"Invalid stackSize", "Unknown tool: ", "Method not implemented: ", "Value is below minimum allowed: ", "Value exceeds maximum allowed: ",
}

// refused tells that the tool was not tried.
func (e *rpcError) refused() bool {
	switch e.Code {
	case -32600, -32601, -32602:
		return true
	}
	for _, words := range refusals {
		if strings.HasPrefix(e.Message, words) {
			return true
		}
	}
	return false
}

// callParams is what a tool is called with. Arguments that firmware would change
// without a word are refused.
func callParams(tool string, args json.RawMessage) ([]byte, error) {
	b := append([]byte(`{"name":`), ferrule.AppendString(nil, tool)...)
	if len(args) > 0 {
		var values map[string]json.RawMessage
		if err := json.Unmarshal(args, &values); err != nil || values == nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "the arguments are no JSON object")
		}
		for name, value := range values {
			if n, err := strconv.ParseFloat(string(value), 64); err == nil && (n > math.MaxInt32 || n < math.MinInt32) {
				return nil, ferrule.Errorf(ferrule.Invalid, "%s: the device has numbers from %d to %d, got %s", name, math.MinInt32, math.MaxInt32, ferrule.Clean(string(value), 64))
			}
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, args); err != nil {
			return nil, ferrule.Errorf(ferrule.Invalid, "the arguments are no JSON: %w", err)
		}
		b = append(b, `,"arguments":`...)
		b = append(b, compact.Bytes()...)
	}
	return append(b, '}'), nil
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
	case reflect.Slice:
		want = "a list"
	}
	if wrong.Field == "" {
		return fmt.Sprintf("%s came where %s belongs", wrong.Value, want)
	}
	return fmt.Sprintf("%s came where %s belongs: %s", wrong.Value, want, wrong.Field)
}
