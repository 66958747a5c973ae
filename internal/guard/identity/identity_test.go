package identity_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

func TestTokens(t *testing.T) {
	tokens, err := identity.NewTokens([]identity.Token{{"claude", "0123456789abcdef"}, {"codex", "fedcba9876543210"}})
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]string{"0123456789abcdef": "agent:claude", "fedcba9876543210": "agent:codex"} {
		if who, err := tokens.Principal(secret); err != nil || who.String() != want {
			t.Errorf("%s: %v, %v", secret, who, err)
		}
	}
	for _, secret := range []string{"", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF"} {
		if who, err := tokens.Principal(secret); !errors.Is(err, identity.ErrUnknown) || who != (ferrule.Principal{}) {
			t.Errorf("%q: %v, %v", secret, who, err)
		}
	}
	if none, err := identity.NewTokens(nil); err != nil || none.Required() || !tokens.Required() || (*identity.Tokens)(nil).Required() {
		t.Errorf("%v, %v", none, err)
	}
}

func TestInvalidTokens(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, test := range []struct {
		tokens []identity.Token
		want   string
	}{
		{[]identity.Token{{"a b", secret}}, `name "a b"`},
		{[]identity.Token{{"a", "short"}}, "token of a has 5 characters"},
		{[]identity.Token{{"a", secret}, {"a", secret + "2"}}, `duplicate name "a"`},
		{[]identity.Token{{"a", secret}, {"b", secret}}, "a and b have the same token"},
	} {
		_, err := identity.NewTokens(test.tokens)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "short") {
			t.Errorf("it tells the secret: %v", err)
		}
	}
}
