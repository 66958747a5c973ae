package issuer

import (
	"encoding/base64"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func writeFile(t testing.TB, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzToken: no text that is not signed by the issuer is a good token, whatever its claims.
func FuzzToken(f *testing.F) {
	const url = "https://login.example" // the same in all processes that fuzz
	good := sign(f, jose.RS256, testKey(), `{"iss":"`+url+`","sub":"maria","aud":"`+at+`","exp":4102444800,"scope":"read"}`, nil)
	parts := strings.Split(good, ".")
	for n := range parts {
		text, err := base64.RawURLEncoding.DecodeString(parts[n])
		if err != nil {
			f.Fatal(err)
		}
		parts[n] = string(text)
	}
	f.Add(parts[0], parts[1], parts[2])
	f.Add(`{"alg":"none"}`, parts[1], "")
	f.Add(`{"alg":"HS256","kid":"one"}`, parts[1], parts[2])
	f.Add(`{"alg":"RS256","kid":"one","crit":["b64"],"b64":false}`, parts[1], parts[2])
	f.Add(`{"alg":"RS256","alg":"none"}`, `{"iss":"a","iss":"b"}`, "")
	i := (&fake{t: f, Server: &httptest.Server{URL: url}}).issuer()
	i.keys.set = &keySet{keys: []jose.JSONWebKey{{Key: testKey().Public(), KeyID: "one"}}, version: 1}
	i.keys.fetched, i.keys.tried, i.keys.pause = time.Now(), time.Now(), time.Hour
	if _, err := i.Verify(f.Context(), good, request()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header, claims, signature string) {
		encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		token := encode(header) + "." + encode(claims) + "." + encode(signature)
		if c, err := i.Verify(t.Context(), token, request()); err == nil && token != good {
			t.Errorf("accepted: %+v", c)
		}
	})
}

// FuzzClaims: claims that are decoded keep their bounds.
func FuzzClaims(f *testing.F) {
	for _, text := range []string{
		`{"iss":"https://login.example","sub":"maria","aud":["a","b"],"exp":1794847335.5,"nbf":1,"scope":"read change","groups":["staff"]}`,
		`{"iss":null,"aud":"a","exp":1e300,"scp":["read",null]}`,
		`{"iss":"a","iss":"b"}`, `{"_claim_names":{"groups":"src1"}}`, `[]`, `null`, `{"exp":-1}`, `{"groups":{"a":1}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := parseClaims(payload, "groups")
		if err != nil {
			return
		}
		if y := c.expires.Year(); !c.expires.IsZero() && (y < 1969 || y > 10000) {
			t.Errorf("expires in %d", y)
		}
		c.isAccessToken("JWT")
		for _, s := range scopes(c.scopes, false).Names() {
			if s == "admin" {
				t.Error("a token gives itself admin")
			}
		}
	})
}

// FuzzKeys: the keys of an issuer are public ones, or an error.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"one","use":"sig","n":"` + base64.RawURLEncoding.EncodeToString(testKey().N.Bytes()) + `","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},null,7]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := parseKeys(text)
		if err != nil {
			return
		}
		if len(set.keys) == 0 || len(set.keys) > maxKeys {
			t.Errorf("%d keys", len(set.keys))
		}
		for i := range set.keys {
			if !set.keys[i].IsPublic() {
				t.Error("a key is not public")
			}
		}
	})
}
