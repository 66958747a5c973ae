package main

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestEqual compares two hundred calls, reads, prompts and completions at a device with
// those through the gateway, in both versions of MCP. A failed call has one more
// content: whether it may have run.
func TestEqual(t *testing.T) {
	server := httptest.NewServer(galleryServer())
	t.Cleanup(server.Close)
	urls := map[string]string{"thing": serveThing(t, galleryThing(false)), "server": server.URL + "/mcp"}
	g := startGateway(t, nil, func(c *config.Config) {
		for name, url := range urls {
			c.Devices.HTTP = append(c.Devices.HTTP, config.HTTPDevice{URL: url, Name: name})
		}
	})
	for _, mcpVersion := range mcpVersions {
		direct, through := make(map[string]*mcp.ClientSession), make(map[string]*mcp.ClientSession)
		for part, url := range urls {
			g.online(part)
			direct[part] = connectAgent(t, mcpVersion, "itself", &mcp.StreamableClientTransport{Endpoint: url}).ClientSession
			through[part] = dialAgent(t, g, mcpVersion, "/mcp/devices/"+part).ClientSession
		}
		failures := 0
		for _, a := range tour() {
			want, wantError := seen(a.do(t.Context(), direct[a.part]))
			got, isError := seen(a.do(t.Context(), through[a.part]))
			if isError {
				failures++
			}
			if isError && !strings.HasPrefix(want[0], "error") && len(got) == len(want)+1 {
				if last := got[len(want)]; !strings.Contains(last, "the action may be partly done") && !strings.Contains(last, "did not run") && !strings.Contains(last, "may have run") && !strings.Contains(last, "Nothing was sent") {
					t.Errorf("%s: %s: it ends with %s", mcpVersion, a.what, last)
				}
				got = got[:len(want)]
			}
			if isError != wantError || !slices.Equal(got, want) {
				t.Errorf("%s: %s\ngot  %t %.500q\nwant %t %.500q", mcpVersion, a.what, isError, got, wantError, want)
			}
		}
		if failures < 20 || failures > 50 {
			t.Errorf("%d of 200 failed", failures)
		}
		if !t.Failed() {
			t.Logf("%s: 200 results are equal, %d of them errors", mcpVersion, failures)
		}
	}
}
