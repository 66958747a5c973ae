package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/device/protocol/mcp"
	"github.com/ferrulehq/ferrule/internal/device/protocol/protocoltest"
)

// TestContract runs the suite with a server of the official SDK, for modern and for legacy
// versions.
func TestContract(t *testing.T) {
	for _, versions := range [][]string{{"2026-07-28", "2025-11-25"}, {"2025-11-25", "2024-11-05"}} {
		t.Run(versions[0], func(t *testing.T) {
			protocoltest.Run(t, protocoltest.Subject{
				Protocol: mcp.New(mcp.Parts{Version: "1.0"}),
				Serve:    func(far io.ReadWriteCloser, tools protocoltest.Tools) { serve(far, versions, tools) },
			})
		})
	}
}

// serve serves tools over lines until the link ends.
func serve(far io.ReadWriteCloser, versions []string, tools protocoltest.Tools) {
	server := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, &sdk.ServerOptions{SupportedProtocolVersions: versions})
	for name, do := range tools {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			result, err := do(req.Params.Arguments)
			if err != nil {
				return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: err.Error()}}}, nil
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(result)}}}, nil
		})
	}
	server.Run(context.Background(), &sdk.IOTransport{Reader: far, Writer: far})
}
