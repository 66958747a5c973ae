package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// plugin is a program that offers tools with the official SDK. It notes in files of DIR what
// it does.
func plugin() {
	dir := os.Getenv("DIR")
	note := func(name, text string) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			os.Exit(4)
		}
		fmt.Fprintln(f, text)
		f.Close()
	}
	note("pids", strconv.Itoa(os.Getpid()))
	note("environment", strings.Join(os.Environ(), " "))
	fmt.Fprintln(os.Stderr, "the plugin has started")
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	type in struct {
		City string `json:"city,omitempty"`
	}
	add := func(name string, reads bool, do func(in in) string) {
		tool := &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: reads, DestructiveHint: new(false)}}
		mcp.AddTool(server, tool, func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			note("calls", name)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: do(in)}}}, nil, nil
		})
	}
	add("forecast", true, func(in in) string { return "rain in " + in.City })
	add("crash", false, func(in) string { os.Exit(3); return "" })
	add("grow", false, func(in) string {
		add("snow", true, func(in) string { return "snow" })
		return "grown"
	})
	server.Run(context.Background(), &mcp.StdioTransport{})
}
