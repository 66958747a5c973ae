package mqttserver

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// message is a JSON-RPC message.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// Methods that need attention.
const (
	methodInitialize = "initialize"
	methodPing       = "ping"
)

// Codes of errors from here.
const (
	codeInternal = -32603
	codeBusy     = -32000
)

// maxIDLength limits the ID of a request.
const maxIDLength = 256

// decode decodes a message of a client. It refuses what is not one message, and IDs that
// are not a text or a whole number.
func decode(data []byte) (m message, ok bool) {
	if len(data) > maxMessage || strictjson.Check(data) != nil || json.Unmarshal(data, &m) != nil {
		return message{}, false
	}
	if bytes.Equal(m.ID, []byte("null")) {
		m.ID = nil
	}
	if m.ID != nil && !isID(m.ID) {
		return message{}, false
	}
	m.Version = "2.0"
	return m, m.Method != "" || m.ID != nil && (m.Result != nil || m.Error != nil)
}

// isID reports whether a value is a text or a whole number.
func isID(id json.RawMessage) bool {
	_, err := strconv.ParseInt(string(id), 10, 64)
	return len(id) <= maxIDLength && (err == nil || id[0] == '"')
}

// clientID returns the ID of the client in the params, for clients that send no user
// properties.
func (m message) clientID() string {
	var params struct {
		ClientID string `json:"mcpClientId"`
	}
	json.Unmarshal(m.Params, &params) // it stays empty
	return params.ClientID
}

// encode returns the message as one line, without its end.
func (m message) encode() []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		panic(err) // all parts were decoded from JSON
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'})
}

// failure returns an error response.
func failure(id json.RawMessage, code int, text string) []byte {
	said, _ := json.Marshal(map[string]any{"code": code, "message": text}) // never fails
	return message{Version: "2.0", ID: id, Error: said}.encode()
}
