package main

import (
	"bytes"
	"context"
	"image/png"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestDoorbell: an agent is notified that somebody rang, looks, and opens the door only
// after the person at home has agreed.
func TestDoorbell(t *testing.T) {
	d, bell := newDevice(mcpserver.Config{})
	server := httptest.NewServer(d.Handler())
	defer server.Close()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			rang := make(chan struct{}, 100)
			agrees := false
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { rang <- struct{}{} },
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"open": agrees}}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: lastVisitor}); err != nil {
				t.Fatal(err)
			}
			for notified := false; !notified; {
				bell.press()
				select {
				case <-rang:
					notified = true
				case <-time.After(100 * time.Millisecond): // its stream may not be open yet
				case <-t.Context().Done():
					t.Fatal("no notification")
				}
			}
			read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: lastVisitor})
			if err != nil || len(read.Contents) != 2 || !strings.Contains(read.Contents[0].Text, "somebody rang") {
				t.Errorf("got %+v, %v", read, err)
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "snapshot"})
			if err != nil {
				t.Fatal(err)
			}
			if view, err := png.Decode(bytes.NewReader(result.Content[0].(*mcp.ImageContent).Data)); err != nil {
				t.Errorf("the picture: %v", err)
			} else if light, _, _, _ := view.At(32, 24).RGBA(); light == 0 {
				t.Error("the picture shows nobody")
			}
			before := bell.opened
			if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "open_door"}); err != nil || !result.IsError || bell.opened != before {
				t.Errorf("got %+v, %v, opened %d times", result, err, bell.opened-before)
			}
			agrees = true
			if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "open_door"}); err != nil || result.IsError || bell.opened != before+1 {
				t.Errorf("got %+v, %v, opened %d times", result, err, bell.opened-before)
			}
		})
	}
}
