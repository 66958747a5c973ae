package issuer

import (
	"crypto"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// maxCost is what the check of a token may take if the key is known.
const maxCost = 60 * time.Microsecond

// TestCost compares the check of a token with what the libraries take for less: go-jose for a
// signature and its claims, go-oidc for an ID token.
func TestCost(t *testing.T) {
	figure.Only(t)
	f := newFake(t)
	i := f.issuer()
	const rounds, calls = 20, 50
	var tokens []string
	for n := range calls {
		tokens = append(tokens, f.sign(f.claims(map[string]any{"sub": fmt.Sprint("person", n), "groups": []string{"Staff"}}), nil))
	}
	verify := func(token string) error {
		_, err := i.Verify(t.Context(), token, request())
		return err
	}
	bare := func(token string) error {
		parsed, err := jwt.ParseSigned(token, algorithms)
		if err != nil {
			return err
		}
		var claims jwt.Claims
		if err := parsed.Claims(testKey().Public(), &claims); err != nil {
			return err
		}
		return claims.Validate(jwt.Expected{Issuer: f.URL, AnyAudience: jwt.Audience{at}, Time: time.Now()})
	}
	verifier := oidc.NewVerifier(f.URL, &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{testKey().Public()}}, &oidc.Config{ClientID: at})
	all := make(map[string][]time.Duration)
	measure := func(name string, check func(token string) error) {
		for _, token := range tokens {
			start := time.Now()
			if err := check(token); err != nil {
				t.Fatal(name, err)
			}
			all[name] = append(all[name], time.Since(start))
		}
	}
	if err := verify(tokens[0]); err != nil { // with the key
		t.Fatal(err)
	}
	for range rounds {
		i.seen.tokens = nil
		measure("first", verify)
		measure("again", verify)
		measure("go-jose", bare)
		measure("go-oidc", func(token string) error { _, err := verifier.Verify(t.Context(), token); return err })
	}
	took := make(map[string]time.Duration)
	for name, each := range all { // most of them were not interrupted, however busy the machine is
		slices.Sort(each)
		took[name] = each[len(each)/4]
	}
	t.Logf("a token takes %v the first time (%.2f times go-jose, %.2f times go-oidc) and %v again; go-jose takes %v, go-oidc %v",
		took["first"], float64(took["first"])/float64(took["go-jose"]), float64(took["first"])/float64(took["go-oidc"]), took["again"], took["go-jose"], took["go-oidc"])
	// On a slow machine, only what is ours counts.
	figure.AtMost(t, "check of a token", took["first"], max(maxCost, took["go-jose"]*2))
	figure.AtMost(t, "check of a token that was seen", took["again"], maxCost/4)
}

// BenchmarkVerify is the check of a token that was seen before.
func BenchmarkVerify(b *testing.B) {
	f := newFake(b)
	i := f.issuer()
	token := f.sign(f.claims(nil), map[jose.HeaderKey]any{})
	r := request()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := i.Verify(b.Context(), token, r); err != nil {
			b.Fatal(err)
		}
	}
}
