package mcpserver_test

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

// TestInvalidURIs: any invalid URI is not found, and the session goes on.
func TestInvalidURIs(t *testing.T) {
	url := serve(t, mcpserver.New(robot(), mcpserver.Config{}))
	inVersions(t, func(t *testing.T, version string) {
		session := dial(t, url, version, nil)
		for _, uri := range []string{"", "\x01", "d://\U000e0001", "d://\"", strings.Repeat("d", 10_000)} {
			if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); code(err) == 0 {
				t.Errorf("%.20q: %v", uri, err)
			}
			call(t, session, "where", nil)
		}
	})
}
