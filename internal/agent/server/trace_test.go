package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// heading is a transport that adds a header.
type heading struct{ value string }

func (h heading) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("traceparent", h.value)
	return http.DefaultTransport.RoundTrip(r)
}

// TestParent: a call continues the span that its request names in _meta, or else in its
// header. An invalid span is ignored.
func TestParent(t *testing.T) {
	const (
		header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		inside = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	)
	for _, version := range versions {
		for name, test := range map[string]struct{ header, inside, want string }{
			"none":            {"", "", ""},
			"header":          {header, "", header},
			"inside":          {"", inside, inside},
			"both":            {header, inside, inside},
			"hostile inside":  {header, "00-\x00", header},
			"hostile header":  {"00-x", "", ""},
			"of another sort": {"", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01", ""},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				var got []string
				handle := func(_ context.Context, call *ferrule.Call) (*ferrule.Result, error) {
					got = append(got, call.Parent)
					return &ferrule.Result{Value: json.RawMessage(`{}`), Content: []ferrule.Content{}}, nil
				}
				f := newServerOf(t, handle, &ferrule.Manifest{
					Tools: []ferrule.Tool{{Name: "look"}}, Operations: []ferrule.Operation{ferrule.ReadResource, ferrule.GetPrompt},
					Resources: []ferrule.Resource{{URI: "file:///log"}}, Prompts: []ferrule.Prompt{{Name: "tour"}},
				})
				server := httptest.NewServer(f.Handler())
				defer server.Close()
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
				transport := &mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp", DisableStandaloneSSE: true}
				if test.header != "" {
					transport.HTTPClient = &http.Client{Transport: heading{test.header}}
				}
				session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				meta := mcp.Meta{}
				if test.inside != "" {
					meta["traceparent"] = test.inside
				}
				if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: meta, Name: "robot__look", Arguments: map[string]any{}}); err != nil {
					t.Error(err)
				}
				if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{Meta: meta, URI: "ferrule://devices/robot/resources/file:///log"}); err != nil {
					t.Error(err)
				}
				if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Meta: meta, Name: "robot__tour"}); err != nil {
					t.Error(err)
				}
				if len(got) != 3 || got[0] != test.want || got[1] != test.want || got[2] != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		}
	}
}
