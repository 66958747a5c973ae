package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// whisperer is a device whose every text has invisible characters, at each X.
var whisperer = map[string]string{
	"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"whisperX","title":"tX","version":"1X"},"instructions":"iX"}`,
	"tools/list": `{"tools":[
		{"name":"open","title":"tX","description":"dX","inputSchema":{"type":"object","title":"X","description":"X","x-note":"X","properties":{
			"a":{"type":"string","description":"X","title":"X","default":"X","examples":["X"]},"b":{"$ref":"#/$defs/X","description":"X"}},"$defs":{"X":{"type":"integer","description":"X"}}}},
		{"name":"enum","inputSchema":{"type":"object","properties":{"a":{"enum":["X"]}}}},
		{"name":"const","inputSchema":{"type":"object","properties":{"a":{"const":"X"}}}},
		{"name":"member","inputSchema":{"type":"object","properties":{"aX":{}}}},
		{"name":"required","inputSchema":{"type":"object","required":["X"]}},
		{"name":"format","inputSchema":{"type":"object","properties":{"a":{"format":"X"}}}},
		{"name":"output","outputSchema":{"type":"object","properties":{"a":{"enum":["X"]}}}},
		{"name":"type","inputSchema":{"type":"X"}},
		{"name":"nameX","description":"X","annotations":{"title":"X"}}]}`,
	"resources/list":           `{"resources":[{"uri":"w:1","name":"nX","title":"tX","description":"dX","mimeType":"mX","annotations":{"lastModified":"X","audience":["X"]}},{"uri":"w:X"}]}`,
	"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"w:{a}","name":"nX","title":"tX","description":"dX"},{"uriTemplate":"w:X{a}"}]}`,
	"prompts/list":             `{"prompts":[{"name":"p","title":"tX","description":"dX","arguments":[{"name":"aX","title":"tX","description":"dX"}]},{"name":"X"}]}`,
	"tools/call":               `{"content":[{"type":"text","text":"doneX"}],"structuredContent":{"aX":"X"}}`,
}

// TestInvisible checks that nothing that a device says about itself reaches an agent with
// characters that people do not see, and that its results do not either if the owner
// wants that.
func TestInvisible(t *testing.T) {
	const hidden = "\u200b\u034f\u115f\u2800\u3164\ufe0f\uffa0\u202e\U000e0041\U000e0fff\u00ad\ue000"
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage
			Method string
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&request) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if request.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result, ok := whisperer[request.Method]
		if !ok {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, request.ID)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, strings.ReplaceAll(result, "X", hidden))
	}))
	defer device.Close()
	g := startGateway(t, nil, unmeasured, func(c *config.Config) {
		c.Devices.HTTP = []config.HTTPDevice{{URL: device.URL, Name: "w"}}
		c.Calls.CleanResults = true
	})
	g.online("w")
	for _, mcpVersion := range mcpVersions {
		for path, prefix := range map[string]string{"/mcp": "w__", "/mcp/devices/w": ""} {
			a := dialAgent(t, g, mcpVersion, path)
			seen := map[string]any{"initialize": a.InitializeResult()}
			var err error
			add := func(name string, v any, e error) {
				if e != nil {
					err = fmt.Errorf("%s: %w", name, e)
				}
				seen[name] = v
			}
			tools, e := a.ListTools(t.Context(), nil)
			add("tools", tools, e)
			resources, e := a.ListResources(t.Context(), nil)
			add("resources", resources, e)
			templates, e := a.ListResourceTemplates(t.Context(), nil)
			add("templates", templates, e)
			prompts, e := a.ListPrompts(t.Context(), nil)
			add("prompts", prompts, e)
			result, e := a.CallTool(t.Context(), &mcp.CallToolParams{Name: prefix + "open", Arguments: map[string]any{"a": "x"}})
			add("result", result, e)
			if path == "/mcp" {
				described, e := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "gateway__describe_device", Arguments: map[string]any{"device": "w"}})
				add("description", described, e)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(tools.Tools) == 0 || len(prompts.Prompts) == 0 || len(templates.ResourceTemplates) == 0 || result.IsError {
				t.Errorf("%s sees too little: %d tools, %d prompts, %d templates, %+v", a.name, len(tools.Tools), len(prompts.Prompts), len(templates.ResourceTemplates), result)
			}
			for _, tool := range tools.Tools {
				if name := strings.TrimPrefix(tool.Name, prefix); name != "open" && strings.Contains(whisperer["tools/list"], `"name":"`+name+`"`) {
					t.Errorf("%s sees the tool %s", a.name, name)
				}
			}
			for name, v := range seen {
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(ferrule.CleanJSON(text), text) {
					t.Errorf("%s: %s has invisible characters: %q", a.name, name, text)
				}
			}
		}
	}
}
