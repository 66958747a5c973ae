package identity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

func verify(set *identity.Tokens, secret ferrule.Secret) (identity.Credential, error) {
	return set.Verify(context.Background(), secret.Reveal(), identity.Request{})
}

func TestTokens(t *testing.T) {
	tokens, err := identity.NewTokens([]identity.Token{{Name: "claude", Secret: "0123456789abcdef"}, {Name: "codex", Secret: "fedcba9876543210"}})
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[ferrule.Secret]string{"0123456789abcdef": "agent:claude", "fedcba9876543210": "agent:codex"} {
		if c, err := verify(tokens, secret); err != nil || c.Who.String() != want {
			t.Errorf("%s: %v, %v", secret, c.Who, err)
		}
	}
	for _, secret := range []ferrule.Secret{"", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF"} {
		if c, err := verify(tokens, secret); !errors.Is(err, identity.ErrUnknown) || c.Who != (ferrule.Principal{}) {
			t.Errorf("%q: %v, %v", secret, c.Who, err)
		}
	}
}

// TestReplace: after a replacement old tokens are refused and their contexts have ended.
// A token in both sets stays valid without a break.
func TestReplace(t *testing.T) {
	tokens := func(all ...identity.Token) *identity.Tokens {
		t.Helper()
		set, err := identity.NewTokens(all)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	kept, old, gone := identity.Token{Name: "kept", Secret: "0123456789abcdef"}, identity.Token{Name: "rotated", Secret: "old-old-old-old-old"}, identity.Token{Name: "gone", Secret: "gone-gone-gone-gone"}
	fresh, added := identity.Token{Name: "rotated", Secret: "new-new-new-new-new"}, identity.Token{Name: "added", Secret: "fedcba9876543210"}
	set := tokens(kept, old, gone)
	contexts := make(map[string]context.Context)
	for _, token := range []identity.Token{kept, old, gone} {
		c, err := verify(set, token.Secret)
		if err != nil {
			t.Fatal(err)
		}
		contexts[token.Name] = c.Valid
	}
	a, r, d := set.Replace(tokens(added, kept, fresh))
	if got := fmt.Sprint(a, r, d); got != "[added] [rotated] [gone]" {
		t.Errorf("got %s", got)
	}
	if contexts["kept"].Err() != nil || contexts["rotated"].Err() == nil || contexts["gone"].Err() == nil {
		t.Error("the wrong tokens have ended")
	}
	for _, token := range []identity.Token{kept, fresh, added} {
		if c, err := verify(set, token.Secret); err != nil || c.Who.Name != token.Name || c.Valid.Err() != nil {
			t.Errorf("%s: %v, %v", token.Name, c.Who, err)
		}
	}
	for _, token := range []identity.Token{old, gone} {
		if _, err := verify(set, token.Secret); !errors.Is(err, identity.ErrUnknown) {
			t.Errorf("the old token of %s is still accepted: %v", token.Name, err)
		}
	}
	if c, _ := verify(set, kept.Secret); c.Valid != contexts["kept"] {
		t.Error("a token that did not change has another context")
	}

	// A token that permits less is another one.
	kept.Scopes = ferrule.LimitTo(ferrule.ScopeRead)
	_, r, _ = set.Replace(tokens(added, kept, fresh))
	if c, err := verify(set, kept.Secret); fmt.Sprint(r) != "[kept]" || contexts["kept"].Err() == nil || err != nil || c.Who.Scopes != kept.Scopes {
		t.Errorf("got %v, %v, %v", r, c.Who, err)
	}
}

// TestSetIDs: a token keeps its ID as long as its secret and the key are the same.
func TestSetIDs(t *testing.T) {
	id := func(key string, token identity.Token) string {
		t.Helper()
		set, err := identity.NewTokens([]identity.Token{token})
		if err != nil {
			t.Fatal(err)
		}
		set.SetIDs([]byte(key))
		c, err := verify(set, token.Secret)
		if err != nil || !c.Who.HasConfigToken() || c.Who.TokenID != set.Principals()[0].TokenID {
			t.Errorf("got %+v, %v", c.Who, err)
		}
		return c.Who.TokenID
	}
	one := identity.Token{Name: "claude", Secret: "0123456789abcdef"}
	limited, other := one, one
	limited.Scopes, other.Secret = ferrule.LimitTo(ferrule.ScopeRead), "fedcba9876543210"
	if first := id("key", one); id("key", one) != first || id("key", limited) != first || id("key", other) == first || id("another", one) == first {
		t.Error("the ID does not depend on the secret and the key alone")
	}
}

func TestInvalidTokens(t *testing.T) {
	const secret = "0123456789abcdef"
	for _, test := range []struct {
		tokens []identity.Token
		want   string
	}{
		{[]identity.Token{{Name: "a b", Secret: secret}}, `name "a b"`},
		{[]identity.Token{{Name: "a", Secret: "short"}}, "token of a has 5 characters"},
		{[]identity.Token{{Name: "a", Secret: secret}, {Name: "a", Secret: secret + "2"}}, `duplicate name "a"`},
		{[]identity.Token{{Name: "a", Secret: secret}, {Name: "b", Secret: secret}}, "a and b have the same token"},
	} {
		_, err := identity.NewTokens(test.tokens)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "short") {
			t.Errorf("it tells the secret: %v", err)
		}
	}
}

// TestAny: verifiers are asked until one knows a credential; if none does, the reason is kept.
func TestAny(t *testing.T) {
	why := fmt.Errorf("%w: not signed", identity.ErrUnknown)
	down := errors.New("nobody can tell")
	answers := func(err error) identity.Verifier {
		return func(context.Context, string, identity.Request) (identity.Credential, error) {
			return identity.Credential{Device: "lamp"}, err
		}
	}
	for want, errs := range map[error][]error{
		nil:                  {identity.ErrUnknown, nil, down},
		identity.ErrUnknown:  {identity.ErrUnknown, identity.ErrUnknown},
		why:                  {identity.ErrUnknown, why, identity.ErrUnknown},
		identity.ErrAudience: {why, identity.ErrAudience, nil},
		down:                 {identity.ErrUnknown, down, nil},
	} {
		var all []identity.Verifier
		for _, err := range errs {
			all = append(all, answers(err))
		}
		if _, err := identity.Any(all...)(t.Context(), "x", identity.Request{}); err != want {
			t.Errorf("%v: got %v", errs, err)
		}
	}
}
