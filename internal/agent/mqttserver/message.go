package mqttserver

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// Methods that need attention.
const (
	methodInitialize = "initialize"
	methodPing       = "ping"
)

// decode decodes a message of a client. It refuses what is not one message, and IDs that
// are not a text or a whole number.
func decode(data []byte) (m rpc.Message, ok bool) {
	if len(data) > maxMessage || strictjson.Check(data) != nil || json.Unmarshal(data, &m) != nil {
		return rpc.Message{}, false
	}
	if bytes.Equal(m.ID, []byte("null")) {
		m.ID = nil
	}
	if m.ID != nil && !isID(m.ID) {
		return rpc.Message{}, false
	}
	m.Version = "2.0"
	return m, m.Method != "" || m.ID != nil && (m.Result != nil || m.Error != nil)
}

// isID reports whether a value is a text or a whole number.
func isID(id json.RawMessage) bool {
	_, err := strconv.ParseInt(string(id), 10, 64)
	return len(id) <= rpc.MaxID && (err == nil || id[0] == '"')
}

// clientID returns the ID of the client in the params, for clients that send no user
// properties.
func clientID(m rpc.Message) string {
	var params struct {
		ClientID string `json:"mcpClientId"`
	}
	json.Unmarshal(m.Params, &params) // it stays empty
	return params.ClientID
}

// failure returns an error response.
func failure(id json.RawMessage, code int, text string) []byte {
	said, _ := json.Marshal(map[string]any{"code": code, "message": text}) // never fails
	return rpc.Encode(rpc.Message{Version: "2.0", ID: id, Error: said})
}
