package oidc_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/testenv/oidc"
)

// TestProvider: the provider gives an agent an access token that is a JWT for the resource
// that it asked for.
func TestProvider(t *testing.T) {
	issuer := oidc.Start(t)
	tokens, err := oidc.Login(t.Context(), issuer, "maria", "http://127.0.0.1:3377/mcp", "read", "change")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(tokens.Access, ".")
	if len(parts) != 3 {
		t.Fatalf("the access token is %q", tokens.Access)
	}
	for i, want := range []string{`"typ":"at+jwt"`, `"aud":"http://127.0.0.1:3377/mcp"`} {
		if text, err := base64.RawURLEncoding.DecodeString(parts[i]); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("got %s, %v", text, err)
		} else {
			t.Logf("%s", text)
		}
	}
	if tokens.ID == "" {
		t.Error("there is no ID token")
	}
}
