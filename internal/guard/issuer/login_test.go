package issuer

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// What a test's login has.
const (
	back         = "https://gateway.example/login/company"
	testState    = "the state of this login"
	testNonce    = "the nonce of this login"
	testVerifier = "the-verifier-of-this-login-which-must-be-long-enough"
)

// login returns a login at the fake, which answers a code with an ID token of these claims,
// signed by key.
func (f *fake) login(change map[string]any, alg jose.SignatureAlgorithm, key any) *Login {
	claims := f.claims(map[string]any{"aud": "ferrule", "nonce": testNonce, "scope": nil, "groups": []string{"Staff", "owner"}, "name": "Maria"})
	for name, value := range change {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	f.token = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		id, secret, _ := r.BasicAuth()
		challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if id != "ferrule" || secret != "a+secret" || r.PostFormValue("code") != "a code" || r.PostFormValue("redirect_uri") != back || challenge != sha256.Sum256([]byte(testVerifier)) {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": "no, " + r.PostFormValue("code")[:2]})
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": sign(f.t, alg, key, claims, map[jose.HeaderKey]any{"typ": "JWT"})})
	}
	l := f.issuer(func(c *Config) { c.ClientID, c.ClientSecret = "ferrule", "a secret" }).Login()
	if l == nil {
		f.t.Fatal("nobody can log in")
	}
	return l
}

// TestLogin: a person logs in at an issuer, and gets the groups that the owner mapped.
func TestLogin(t *testing.T) {
	f := newFake(t)
	f.document["scopes_supported"] = []string{"openid", "profile", "groups", "email"}
	l := f.login(nil, f.alg, f.key)
	page, err := url.Parse(l.Begin(back, testState, testNonce, testVerifier))
	if err != nil {
		t.Fatal(err)
	}
	challenge := sha256.Sum256([]byte(testVerifier))
	want := url.Values{
		"client_id": {"ferrule"}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid profile groups"}, "state": {testState}, "nonce": {testNonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}
	if got := page.Query().Encode(); got != want.Encode() || !strings.HasPrefix(page.String(), f.URL+"/authorize?") {
		t.Errorf("begins at %s", page)
	}
	code, err := l.Code(t.Context(), url.Values{"code": {"a code"}, "state": {testState}, "iss": {f.URL}}, testState)
	if err != nil {
		t.Fatal(err)
	}
	id, err := l.Finish(t.Context(), code, back, testNonce, testVerifier)
	if want := (Identity{"company", "maria", "Maria", []string{"operator"}}); err != nil || !reflect.DeepEqual(id, want) {
		t.Errorf("got %+v, %v", id, err)
	}
	if f.issuer().Login() != nil {
		t.Error("people can log in without a client")
	}
	f.down.Store(true)
	if page := f.login(nil, f.alg, f.key).Begin(back, testState, testNonce, testVerifier); page != "" {
		t.Errorf("begins at %s, which is down", page)
	}
}

// TestLoginAttacks: nobody logs in with an answer or an ID token that is not for this login,
// from this issuer.
func TestLoginAttacks(t *testing.T) {
	f, other := newFake(t), newFake(t)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		answer url.Values
		says   string
	}{
		{"state of another browser", url.Values{"code": {"a code"}, "state": {"x"}, "iss": {f.URL}}, "did not begin the login"},
		{"no state", url.Values{"code": {"a code"}, "iss": {f.URL}}, "did not begin the login"},
		{"two states", url.Values{"code": {"a code"}, "state": {testState, "x"}, "iss": {f.URL}}, `two of "state"`},
		{"mix-up", url.Values{"code": {"a code"}, "state": {testState}, "iss": {other.URL}}, "not from the issuer company"},
		{"mix-up without iss", url.Values{"code": {"a code"}, "state": {testState}}, "not from the issuer company"},
		{"mix-up with an error", url.Values{"error": {"access_denied"}, "state": {testState}, "iss": {other.URL}}, "not from the issuer company"},
		{"refused", url.Values{"error": {"access_denied"}, "state": {testState}, "iss": {f.URL}}, "refused the login: access_denied"},
		{"no code", url.Values{"state": {testState}, "iss": {f.URL}}, "no code"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.document["authorization_response_iss_parameter_supported"] = true
			l := f.login(nil, f.alg, f.key)
			if code, err := l.Code(t.Context(), test.answer, testState); err == nil || code != "" || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, %v", code, err)
			}
		})
	}
	if _, err := f.login(nil, f.alg, f.key).Code(t.Context(), url.Values{"code": {"a code"}, "iss": {f.URL}}, ""); err == nil {
		t.Error("an empty state is accepted")
	}
	for _, test := range []struct {
		name   string
		claims map[string]any
		alg    jose.SignatureAlgorithm
		key    any
		says   string
	}{
		{"nonce of another login", map[string]any{"nonce": "x"}, f.alg, f.key, "for another login"},
		{"no nonce", map[string]any{"nonce": nil}, f.alg, f.key, "for another login"},
		{"for another client", map[string]any{"aud": "other"}, f.alg, f.key, "expected audience"},
		{"for another party", map[string]any{"aud": []string{"ferrule", "other"}, "azp": "other"}, f.alg, f.key, "for another program"},
		{"for two without a party", map[string]any{"aud": []string{"ferrule", "other"}}, f.alg, f.key, "for another program"},
		{"of another issuer", map[string]any{"iss": other.URL}, f.alg, f.key, "different provider"},
		{"issuer in another case", map[string]any{"iss": nil, "ISS": f.URL}, f.alg, f.key, "not for this gateway"},
		{"expired", map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}, f.alg, f.key, "expired"},
		{"no exp", map[string]any{"exp": nil}, f.alg, f.key, "expired"},
		{"signed by a stranger", nil, f.alg, stranger, "not signed with a key of its issuer"},
		{"HS256 with the client's secret", nil, jose.HS256, []byte("a secret that is 32 characters l"), "malformed jwt"},
		{"no subject", map[string]any{"sub": nil}, f.alg, f.key, "no subject"},
	} {
		t.Run(test.name, func(t *testing.T) {
			id, err := f.login(test.claims, test.alg, test.key).Finish(t.Context(), "a code", back, testNonce, testVerifier)
			if err == nil || id.Subject != "" || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %+v, %v", id, err)
			}
			for _, secret := range []string{"a secret", "a code", testVerifier, testNonce} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("shows %q: %v", secret, err)
				}
			}
		})
	}
	for name, args := range map[string][4]string{
		"another code":       {"x code", back, testNonce, testVerifier},
		"another redirect":   {"a code", back + "x", testNonce, testVerifier},
		"another verifier":   {"a code", back, testNonce, "x"},
		"login without one":  {"a code", back, "", testVerifier},
		"a code without one": {"a code", back, testNonce, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claims := map[string]any{}
			if args[2] == "" {
				claims["nonce"] = ""
			}
			if id, err := f.login(claims, f.alg, f.key).Finish(t.Context(), args[0], args[1], args[2], args[3]); err == nil {
				t.Errorf("got %+v", id)
			}
		})
	}
}
