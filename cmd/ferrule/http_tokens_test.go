package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestAgentTokenStays checks that the token of an agent never gets to a device. A device that
// wants a token gets the one that its owner configured for it.
func TestAgentTokenStays(t *testing.T) {
	const agents, devices = "token-of-the-agent-claude", "token-of-the-device-desk"
	var mu sync.Mutex
	var got []string
	handler := lampThing("lamp").Handler()
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		got = append(got, fmt.Sprint(r.Method, r.URL, r.Header, string(body)))
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(device.Close)
	other := httptest.NewServer(device.Config.Handler)
	t.Cleanup(other.Close)
	g := startGateway(t, nil, func(c *config.Config) {
		c.Auth.Tokens = []config.Token{{Name: "claude", Token: agents}}
		c.Devices.HTTP = []config.HTTPDevice{{URL: device.URL, Name: "desk"}, {URL: other.URL, Name: "shelf", Token: devices}}
	})
	g.online("desk")
	g.online("shelf")
	for _, mcpVersion := range mcpVersions {
		for path, names := range map[string][2]string{
			"/mcp":              {"desk__switch", "ferrule://devices/desk/resources/" + lampState},
			"/mcp/devices/desk": {"switch", lampState},
		} {
			session, err := mcp.NewClient(&mcp.Implementation{Name: "claude", Version: "1"}, nil).Connect(t.Context(),
				&mcp.StreamableClientTransport{Endpoint: g.url(path), HTTPClient: withToken(agents)}, &mcp.ClientSessionOptions{ProtocolVersion: mcpVersion})
			if err != nil {
				t.Fatal(err)
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: names[0], Arguments: map[string]any{"on": true}, Meta: mcp.Meta{"note": "x"}})
			if err != nil || result.IsError {
				t.Errorf("%s %s: %+v, %v", mcpVersion, path, result, err)
			}
			if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: names[1]}); err != nil {
				t.Errorf("%s %s: %v", mcpVersion, path, err)
			}
			session.Close()
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(got, "\n"); len(got) < 8 || !strings.Contains(all, devices) {
		t.Errorf("the devices got %d requests:\n%s", len(got), all)
	}
	for _, request := range got {
		if strings.Contains(request, agents) || strings.Contains(request, "Authorization") && !strings.Contains(request, devices) {
			t.Errorf("the device got %s", ferrule.Clean(request, 1000))
		}
	}
}
