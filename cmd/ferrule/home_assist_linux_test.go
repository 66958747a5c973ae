package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
	"github.com/ferrulehq/ferrule/internal/testenv/uno"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// configure goes through a config flow of Home Assistant, whose only step has these fields. It
// returns the ID and the title of the new entry.
func configure(t *testing.T, home *homeassistant.Home, handler string, fields map[string]any) (entry, title string) {
	t.Helper()
	var flow struct {
		ID string `json:"flow_id"`
	}
	home.Ask(t, http.MethodPost, "/api/config/config_entries/flow", map[string]any{"handler": handler}, &flow)
	var made struct {
		Type, Title string
		Errors      map[string]string
		Reason      string
		Result      struct {
			Entry string `json:"entry_id"`
			State string
		}
	}
	home.Ask(t, http.MethodPost, "/api/config/config_entries/flow/"+flow.ID, fields, &made)
	if made.Type != "create_entry" || made.Result.State != "loaded" {
		t.Fatalf("%s: %+v", handler, made)
	}
	return made.Result.Entry, made.Title
}

// assist connects to the MCP server of Home Assistant: what a model of Assist sees and calls.
func assist(t *testing.T, home *homeassistant.Home) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "model", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.SSEClientTransport{
		Endpoint: home.URL + "/mcp_server/sse", HTTPClient: withToken(home.Token),
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2024-11-05"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// TestHomeAssist: Assist of a real Home Assistant lists and calls the tools of an emulated
// board through Ferrule, by its MCP client, which speaks HTTP+SSE. Its MCP server stands for
// the model.
func TestHomeAssist(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{Bare: true})
	board := uno.Start(t, uno.Options{})
	g := startGateway(t, nil, onSerial("uno", board, 0), unmeasured)
	g.online("uno")
	entry, title := configure(t, home, "mcp", map[string]any{"url": g.url("/mcp?profile=home-assistant")})
	if title != "ferrule" {
		t.Errorf("the entry is called %q", title)
	}
	configure(t, home, "mcp_server", map[string]any{"llm_hass_api": "mcp-" + entry})
	session := assist(t, home)
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Contains(names, "uno__gpio_write") || !slices.Contains(names, "gateway__status") {
		t.Fatalf("Assist lists %q", names)
	}
	call := func(tool string, args map[string]any) string {
		t.Helper()
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return result.Content[0].(*mcp.TextContent).Text
	}
	t.Run("call", func(t *testing.T) {
		before := len(board.Edges("B5"))
		start := time.Now()
		if got := call("uno__gpio_write", map[string]any{"pin": 13, "value": true}); !strings.Contains(got, `"content"`) || strings.Contains(got, `"isError": true`) {
			t.Error(got)
		}
		wait.For(t, "the LED is on", func() bool { return len(board.Edges("B5")) == before+1 })
		t.Logf("a call by Assist took %v", time.Since(start).Round(time.Millisecond))
		if n := intended(t, g, "uno", "gpio_write"); n != 1 {
			t.Errorf("the journal has %d calls", n)
		}
	})
	t.Run("number as text", func(t *testing.T) {
		if got := call("uno__gpio_write", map[string]any{"pin": "13", "value": "false"}); strings.Contains(got, `"isError": true`) {
			t.Error(got)
		}
	})
	t.Run("error", func(t *testing.T) {
		if got := call("uno__gpio_write", map[string]any{"pin": 99, "value": true}); !strings.Contains(got, `"isError": true`) || !strings.Contains(got, "pin must be") {
			t.Error(got)
		}
	})
	t.Run("slow", func(t *testing.T) {
		before := intended(t, g, "uno", "gpio_write")
		board.Pause(wait.Ample)
		start := time.Now()
		got := call("uno__gpio_write", map[string]any{"pin": 13, "value": true})
		figure.AtMost(t, "time until Assist has an answer about a slow call", time.Since(start), 10*time.Second)
		if !strings.Contains(got, "still running") || strings.Contains(got, "imeout") {
			t.Error(got)
		}
		board.Pause(0)
		wait.For(t, "the same call has the outcome", func() bool {
			got = call("uno__gpio_write", map[string]any{"value": true, "pin": 13})
			return !strings.Contains(got, "still running")
		})
		if !strings.Contains(got, "Nothing was called now") || strings.Contains(got, `"isError": true`) {
			t.Error(got)
		}
		if n := intended(t, g, "uno", "gpio_write"); n != before+1 {
			t.Errorf("the board was called %d times", n-before)
		}
	})
}

// converter converts the schemas of a list of tools as Home Assistant does, and back for a
// model.
const converter = `
import json, sys
from voluptuous_openapi import convert, convert_to_voluptuous
for tool in json.load(sys.stdin):
    try:
        convert(convert_to_voluptuous(tool["inputSchema"]))["properties"]
    except Exception as err:
        print(f"{tool['name']}: {err!r}: {json.dumps(tool['inputSchema'])}")
`

// TestHomeSchemas: the converter of Home Assistant takes the schema of every tool in our lists:
// those of the gateway, of simulated devices of all kinds, and of each device at its address.
func TestHomeSchemas(t *testing.T) {
	dir := os.Getenv("FERRULE_TEST_HOMEASSISTANT")
	if dir == "" {
		t.Skip("FERRULE_TEST_HOMEASSISTANT is not set: see internal/testenv/homeassistant")
	}
	board := uno.Start(t, uno.Options{Large: true})
	fleet := startSim(t, sim.Config{})
	hard := httptest.NewServer(bothMCPVersions(func(*http.Request) *mcp.Server { return hardToConvert() }))
	t.Cleanup(hard.Close)
	g := startGateway(t, map[string]string{"robot": fleet.Addrs()[0]}, onSerial("uno", board, 0), unmeasured, func(c *config.Config) {
		c.Devices.HTTP = []config.HTTPDevice{{URL: hard.URL, Name: "hard"}}
	})
	for _, id := range []string{"uno", "robot", "hard"} {
		g.online(id)
	}
	convert := func(tools []*mcp.Tool) string {
		t.Helper()
		in, err := json.Marshal(tools)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(dir, "bin", "python"), "-c", converter)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, path := range []string{"/mcp", "/mcp/devices/uno", "/mcp/devices/robot", "/mcp/devices/hard"} {
		for _, mcpVersion := range mcpVersions {
			list, err := dialAgent(t, g, mcpVersion, path+"?profile=home-assistant").ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if failed := convert(list.Tools); failed != "" || len(list.Tools) < 3 || list.NextCursor != "" {
				t.Errorf("%s, %s: of %d tools are not converted: %s", path, mcpVersion, len(list.Tools), failed)
			}
			for _, tool := range list.Tools {
				if tool.OutputSchema != nil || len(tool.Name) > 46 {
					t.Errorf("%s: %s has an output schema, or a name that is too long", path, tool.Name)
				}
			}
		}
	}
	all, err := dialAgent(t, g, modern, "/mcp").ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if failed := convert(all.Tools); !strings.Contains(failed, "multipleOf") {
		t.Errorf("without the profile, these are not converted: %s", failed)
	}
}

// hardToConvert is a device whose schemas Home Assistant cannot convert.
func hardToConvert() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "hard", Version: "1"}, nil)
	for name, property := range map[string]string{
		"steps": `{"type":"number","multipleOf":0.5}`, "any": `{}`, "const": `{"const":5}`, "list": `{"type":"array"}`, "pairs": `{"type":"array","items":{"type":"integer"},"minItems":2,"uniqueItems":true}`,
		"all": `{"allOf":[{"type":"integer"},{"minimum":1}]}`, "either": `{"anyOf":[{"type":"integer"},{"type":"null"}]}`, "types": `{"type":["string","null"]}`, "letters": `{"type":"string","pattern":"^\\p{L}+$"}`,
		"map": `{"type":"object","additionalProperties":{}}`, "ref": `{"$ref":"#/$defs/p"}`,
	} {
		input := json.RawMessage(`{"type":"object","properties":{"v":` + property + `},"$defs":{"p":{"type":"integer"}}}`)
		server.AddTool(&mcp.Tool{Name: name, InputSchema: input}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	}
	return server
}
