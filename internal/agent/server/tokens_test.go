package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// sender sends a token with each request.
type sender string

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(s))
	return http.DefaultTransport.RoundTrip(r)
}

// TestReplacedToken: a call that is under way when its token is replaced goes on, because
// the hardware already moves and its caller must learn the outcome. The next one is
// refused.
func TestReplacedToken(t *testing.T) {
	const old, fresh = "old-old-old-old-old", "new-new-new-new-new"
	tokensOf := func(secret ferrule.Secret) *identity.Tokens {
		t.Helper()
		tokens, err := identity.NewTokens([]identity.Token{{Name: "claude", Secret: secret}})
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	for _, version := range append(versions, "2024-11-05") { // the last one over HTTP+SSE
		called, proceed := make(chan struct{}), make(chan struct{})
		f := newServer(t, func(ctx context.Context, call *ferrule.Call) (*ferrule.Result, error) {
			call.Target.Tool = &ferrule.Tool{}
			close(called)
			select {
			case <-proceed:
				return &ferrule.Result{Value: json.RawMessage(`{"moved":true}`)}, nil
			case <-ctx.Done():
				return nil, ferrule.Errorf(ferrule.Cancelled, "cancelled")
			}
		}, ferrule.Tool{Name: "move", Effect: ferrule.Changes})
		tokens := tokensOf(old)
		f.parts.Verify, f.parts.Open = tokens.Verify, closed
		web := httptest.NewServer(f.Handler())
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: web.URL + "/mcp", HTTPClient: &http.Client{Transport: sender(old)}}
		if version == "2024-11-05" {
			transport = &mcp.SSEClientTransport{Endpoint: web.URL + "/mcp", HTTPClient: &http.Client{Transport: sender(old)}}
		}
		session, err := client.Connect(t.Context(), transport,
			&mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			result *mcp.CallToolResult
			err    error
		}
		ended := make(chan outcome, 1)
		go func() {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"})
			ended <- outcome{result, err}
		}()
		<-called
		tokens.Replace(tokensOf(fresh))
		close(proceed)
		if o := <-ended; o.err != nil || o.result.IsError || !strings.Contains(o.result.Content[0].(*mcp.TextContent).Text, "moved") {
			t.Errorf("%s: %+v, %v", version, o.result, o.err)
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "robot__move"}); err == nil {
			t.Errorf("%s: the old token still works", version)
		}
		session.Close()
		web.CloseClientConnections()
		web.Close()
	}
}
