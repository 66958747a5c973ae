package mcpdev_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/dialect/dialecttest"
	"github.com/ferrulehq/ferrule/dialect/mcpdev"
)

// TestDialect plays the suite of all grammars with a server of the official SDK, once
// for each era.
func TestDialect(t *testing.T) {
	for _, versions := range [][]string{{"2026-07-28", "2025-11-25"}, {"2025-11-25", "2024-11-05"}} {
		t.Run(versions[0], func(t *testing.T) {
			dialecttest.Run(t, dialecttest.Subject{
				Dialect: mcpdev.New(mcpdev.Parts{Version: "1.0"}),
				Serve:   func(far io.ReadWriteCloser, tools dialecttest.Tools) { serve(far, versions, tools) },
			})
		})
	}
}

// serve serves tools over lines until they end.
func serve(far io.ReadWriteCloser, versions []string, tools dialecttest.Tools) {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})
	for name, do := range tools {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, err := do(req.Params.Arguments)
			if err != nil {
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(result)}}}, nil
		})
	}
	server.Run(context.Background(), &mcp.IOTransport{Reader: far, Writer: far})
}
