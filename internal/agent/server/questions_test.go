//lint:file-ignore SA1019 sampling and roots are deprecated, but some agents have nothing else

package server

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// FuzzQuestion: every question is an error, or can be sent to an agent in all protocol
// versions.
func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":{"type":"text","text":"Hello?"}}],"maxTokens":5}`,
		`{"messages":[{"content":{"type":"tool_result","toolUseId":"a","content":[{"type":"text","text":"b"}]}},{"content":{"type":"tool_use","id":"a","input":{}}}]}`,
		`{"messages":[null,{"content":[]},{"content":{"type":"image","data":"AA==","annotations":{}}}],"tools":[null,{"name":"a","inputSchema":{}}]}`,
		`{"type":"object","properties":{"joint":{"type":"integer"}},"required":["joint"]}`,
		`{"type":"object","allOf":[{"$ref":"#"}]}`, `{"a":1e999}`, "null", "[]", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, q := range []ferrule.Question{{Schema: text}, {Target: ferrule.Model, Prompt: text}} {
			request, err := inputRequest(q)
			if err != nil {
				continue
			}
			if _, err := json.Marshal(request); err != nil {
				t.Errorf("%s cannot be sent in a request: %v", text, err)
			}
			if _, err := json.Marshal(&mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"a": request}}); err != nil {
				t.Errorf("%s cannot be sent in a result: %v", text, err)
			}
		}
	})
}
