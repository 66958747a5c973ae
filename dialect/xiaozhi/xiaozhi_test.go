package xiaozhi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/ferrulehq/ferrule/dialect/dialecttest"
	"github.com/ferrulehq/ferrule/dialect/xiaozhi"
)

// TestContract runs the suite with a device as bare as can be.
func TestContract(t *testing.T) {
	dialecttest.Run(t, dialecttest.Subject{
		Dialect: xiaozhi.New(xiaozhi.Parts{}),
		Serve: func(far io.ReadWriteCloser, tools dialecttest.Tools) {
			for in := bufio.NewScanner(far); in.Scan(); {
				if payload := answer(in.Bytes(), tools); payload != "" {
					fmt.Fprintf(far, `{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0",%s}}`+"\n", payload)
				}
			}
		},
	})
}

// answer is what a device says to a request.
func answer(message []byte, tools dialecttest.Tools) string {
	var m struct {
		Payload struct {
			ID     *int
			Method string
			Params struct {
				Name      string
				Arguments json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(message, &m); err != nil || m.Payload.ID == nil {
		return ""
	}
	id, params := *m.Payload.ID, m.Payload.Params
	switch m.Payload.Method {
	case "initialize":
		return fmt.Sprintf(`"id":%d,"result":{"serverInfo":{"name":"suite","version":"1.0.0"}}`, id)
	case "tools/list":
		return fmt.Sprintf(`"id":%d,"result":{"tools":[{"name":"echo"},{"name":"hold"},{"name":"fail"}]}`, id)
	}
	fn := tools[params.Name]
	if fn == nil {
		return fmt.Sprintf(`"id":%d,"error":{"message":"Unknown tool: %s"}`, id, params.Name)
	}
	result, err := fn(params.Arguments)
	if err != nil {
		return fmt.Sprintf(`"id":%d,"error":{"message":"%s"}`, id, err)
	}
	return fmt.Sprintf(`"id":%d,"result":{"content":[{"type":"text","text":%q}],"isError":false}`, id, result)
}
