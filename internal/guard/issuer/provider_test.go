package issuer

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/testenv/oidc"
)

// TestProvider: tokens of a real provider are accepted, and people log in there.
func TestProvider(t *testing.T) {
	const callback = "http://127.0.0.1:1/login/callback"
	url := oidc.Start(t, "GROUPS=Staff,Guests", "CLIENT="+callback)
	i, err := New(Parts{
		Config: Config{
			Name: "company", URL: url, GroupsClaim: "groups", Groups: map[string]string{"Staff": "operator"}, ClientID: "ferrule", ClientSecret: "a secret of the client",
		},
		Record: func(ferrule.Principal, ferrule.AccessEvent, string, string, ferrule.Code) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("tokens", func(t *testing.T) {
		tokens, err := oidc.Login(t.Context(), url, "maria", at, "read", "change")
		if err != nil {
			t.Fatal(err)
		}
		want := ferrule.Principal{Role: ferrule.Agent, Name: "company:maria", Auth: ferrule.AuthIssuer, Scopes: ferrule.LimitTo(ferrule.ScopeChange), Groups: "operator"}
		if c, err := i.Verify(t.Context(), tokens.Access, request()); err != nil || c.Who != want {
			t.Errorf("got %+v, %v", c, err)
		}
		if _, err := i.Verify(t.Context(), tokens.ID, request()); !errors.Is(err, identity.ErrUnknown) {
			t.Errorf("the ID token: %v", err)
		}
		if tokens, err = oidc.Login(t.Context(), url, "maria", "https://other.example/mcp", "read"); err != nil {
			t.Fatal(err)
		}
		if _, err := i.Verify(t.Context(), tokens.Access, request()); !errors.Is(err, identity.ErrAudience) {
			t.Errorf("a token for another server: %v", err)
		}
	})
	t.Run("login", func(t *testing.T) {
		login := i.Login()
		back, err := oidc.Browse(t.Context(), login.Begin(callback, testState, testNonce, testVerifier), callback, "anna")
		if err != nil {
			t.Fatal(err)
		}
		code, err := login.Code(t.Context(), back.Query(), testState)
		if err != nil {
			t.Fatal(err)
		}
		answer := back.Query()
		answer.Del("iss") // it always names itself
		if _, err := login.Code(t.Context(), answer, testState); err == nil {
			t.Error("an answer of nobody is accepted")
		}
		id, err := login.Finish(t.Context(), code, callback, testNonce, testVerifier)
		if want := (Identity{"company", "anna", "anna of the test", []string{"operator"}}); err != nil || !reflect.DeepEqual(id, want) {
			t.Errorf("got %+v, %v", id, err)
		}
		if _, err := login.Finish(t.Context(), code, callback, testNonce, testVerifier); err == nil {
			t.Error("a code can be used twice")
		}
	})
}
