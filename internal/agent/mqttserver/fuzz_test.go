package mqttserver

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/rpc"
)

// FuzzDecode: what decode accepts becomes one line of JSON.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"mcpClientId":"x"}}`, `{"id":"a","result":{}}`, `{"id":-1,"error":{}}`,
		`{"method":"notifications/disconnected"}`, `{"id":1e9,"method":"x"}`, `{"id":null,"method":"x"}`, `[]`, "{\"id\":1,\n\"method\":\"x\"}",
		`{"id":1,"method":"x","result":1}`, `{"id":1,"result":1,"error":2}`, `{"id":1,"error":null}`, `{"method":"x","params":7}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, ok := decode(data)
		if !ok {
			return
		}
		clientID(m)
		line := rpc.Encode(m)
		if bytes.ContainsAny(line, "\r\n") || !json.Valid(line) {
			t.Errorf("%q is not one line of JSON", line)
		}
	})
}
