package issuer

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// at is what tokens in these tests are for.
const at = "https://gateway.example/mcp"

// fake is an issuer whose every answer a test can choose.
type fake struct {
	*httptest.Server
	t       testing.TB
	key     crypto.Signer
	alg     jose.SignatureAlgorithm
	fetches atomic.Int32 // of keys
	down    atomic.Bool

	mu       sync.Mutex
	keys     []jose.JSONWebKey
	document map[string]any // changes of what discovery says
	token    http.HandlerFunc
	recorded []ferrule.Entry
}

var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newFake(t testing.TB) *fake {
	f := &fake{t: t, key: testKey(), alg: jose.RS256, document: make(map[string]any)}
	f.keys = []jose.JSONWebKey{{Key: f.key.Public(), KeyID: "one", Use: "sig", Algorithm: string(jose.RS256)}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.down.Load() {
		http.Error(w, "down for maintenance", http.StatusBadGateway)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		document := map[string]any{"issuer": f.URL, "jwks_uri": f.URL + "/keys", "authorization_endpoint": f.URL + "/authorize", "token_endpoint": f.URL + "/token"}
		maps.Copy(document, f.document)
		json.NewEncoder(w).Encode(document)
	case "/keys":
		f.fetches.Add(1)
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: f.keys})
	case "/token":
		f.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) config() Config {
	return Config{Name: "company", URL: f.URL, GroupsClaim: "groups", Groups: map[string]string{"Staff": "operator", "Chiefs": "owner"}}
}

// issuer returns an issuer that accepts the fake's tokens.
func (f *fake) issuer(change ...func(*Config)) *Issuer {
	f.t.Helper()
	cfg := f.config()
	for _, fn := range change {
		fn(&cfg)
	}
	i, err := New(Parts{Config: cfg, Log: slog.New(slog.DiscardHandler), Record: func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.recorded = append(f.recorded, ferrule.Entry{Principal: who, Tool: string(event), From: from, Message: message, Code: refused})
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	return i
}

// claims returns those of a good token, with changes; nil removes one.
func (f *fake) claims(change map[string]any) map[string]any {
	all := map[string]any{
		"iss": f.URL, "sub": "maria", "aud": at, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "scope": "openid read change",
	}
	for name, value := range change {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

// sign signs claims, which are JSON or become it. The header has kid "one" and typ "at+jwt"
// unless changed; nil removes one.
func (f *fake) sign(claims any, change map[jose.HeaderKey]any) string {
	f.t.Helper()
	return sign(f.t, f.alg, f.key, claims, change)
}

func sign(t testing.TB, alg jose.SignatureAlgorithm, key, claims any, change map[jose.HeaderKey]any) string {
	t.Helper()
	headers := map[jose.HeaderKey]any{"kid": "one", "typ": "at+jwt"}
	for name, value := range change {
		if headers[name] = value; value == nil {
			delete(headers, name)
		}
	}
	payload, ok := claims.(string)
	if !ok {
		text, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		payload = string(text)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, &jose.SignerOptions{ExtraHeaders: headers})
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// request is one for the gateway, now.
func request() identity.Request {
	return identity.Request{Resource: at, From: "192.0.2.7", Time: time.Now()}
}

// TestVerify: a good token gives the caller a name, scopes and groups that the owner mapped.
func TestVerify(t *testing.T) {
	f := newFake(t)
	i := f.issuer(func(c *Config) { c.Audience = "api://ferrule" })
	for name, test := range map[string]struct {
		claims map[string]any
		typ    any
		want   ferrule.Principal
	}{
		"scope as a text": {nil, "at+jwt", ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange)}},
		"scp as a list":   {map[string]any{"scope": nil, "scp": []string{"endanger", "mail"}}, "at+jwt", ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeEndanger)}},
		"scp as a text":   {map[string]any{"scope": nil, "scp": "read metrics"}, "at+jwt", ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeRead | ferrule.ScopeMetrics)}},
		"no scope":        {map[string]any{"scope": nil}, "at+jwt", ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(0)}},
		"no type":         {nil, nil, ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange)}},
		"type JWT":        {nil, "JWT", ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange)}},
		"long type":       {nil, "application/at+jwt", ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange)}},
		"subject with signs": {map[string]any{"sub": "auth0|a/b c"}, "at+jwt",
			ferrule.Principal{Name: "company:auth0%7Ca%2Fb%20c", Scopes: ferrule.LimitTo(ferrule.ScopeChange)}},
		"another audience that is configured": {map[string]any{"aud": []string{"x", "api://ferrule"}}, "at+jwt",
			ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange)}},
		"groups": {map[string]any{"groups": []string{"Staff", "operator", "owner", "Nobody", "Staff"}}, "at+jwt",
			ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange), Groups: "operator"}},
		"one group as a text": {map[string]any{"groups": "Staff"}, "at+jwt",
			ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange), Groups: "operator"}},
		"admin for staff": {map[string]any{"scope": "admin read", "groups": []string{"Staff", "owner"}}, "at+jwt",
			ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeRead), Groups: "operator"}},
		"admin for an owner": {map[string]any{"scope": "admin", "groups": []string{"Staff", "Chiefs"}}, "at+jwt",
			ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeAdmin), Groups: "operator,owner"}},
		"an owner who asks for less": {map[string]any{"groups": "Chiefs"}, "at+jwt",
			ferrule.Principal{Name: "company:maria", Scopes: ferrule.LimitTo(ferrule.ScopeChange), Groups: "owner"}},
	} {
		t.Run(name, func(t *testing.T) {
			token := f.sign(f.claims(test.claims), map[jose.HeaderKey]any{"typ": test.typ})
			test.want.Role, test.want.Auth = ferrule.Agent, ferrule.AuthIssuer
			for range 2 { // the second time it is known
				c, err := i.Verify(t.Context(), token, request())
				if err != nil || c.Who != test.want || c.Device != "" || c.Valid.Err() != nil {
					t.Fatalf("got %+v, %v", c, err)
				}
			}
		})
	}
	if n := f.fetches.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

// TestUses: the first use of a token is recorded, and the first one from another address.
func TestUses(t *testing.T) {
	f := newFake(t)
	i := f.issuer()
	good := f.sign(f.claims(nil), nil)
	for _, from := range []string{"192.0.2.7", "192.0.2.7", "192.0.2.8", "192.0.2.7"} {
		r := request()
		r.From = from
		if _, err := i.Verify(t.Context(), good, r); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.recorded) != 2 || f.recorded[0].Principal.String() != "agent:company:maria" || f.recorded[1].From != "192.0.2.8" || f.recorded[0].Tool != string(ferrule.AccessTokenUsed) || f.recorded[0].Code != "" {
		t.Errorf("recorded %+v", f.recorded)
	}
	v := new(verified)
	for n := range 100 {
		v.newFrom(strings.Repeat("x", n))
	}
	if len(v.places) != maxPlaces || v.newFrom(strings.Repeat("x", 99)) {
		t.Errorf("%d places are remembered, or not the last one", len(v.places))
	}
}

// TestAudience: a token for the gateway opens all of it, and one for a device that device.
func TestAudience(t *testing.T) {
	f := newFake(t)
	i := f.issuer()
	const lamp = "https://gateway.example/mcp/devices/lamp"
	for _, test := range []struct {
		audience any
		resource string
		device   string
		ok       bool
	}{
		{at, at, "", true},
		{at, lamp, "", true},
		{at, "https://gateway.example/metrics", "", true},
		{[]string{"https://other.example", lamp}, lamp, "lamp", true},
		{lamp, at, "", false},
		{lamp, lamp + "2", "", false},
		{lamp, "https://gateway.example/metrics", "", false},
		{at, "http://gateway.example/mcp", "", false},
		{at, "https://gateway.example:8443/mcp", "", false},
		{at, "https://gateway.example.evil.example/mcp", "", false},
		{at, "", "", false},
		{"", "", "", false},
		{nil, at, "", false},
		{[]string{}, at, "", false},
		{"https://gateway.example", at, "", false},
		{"https://gateway.example/mcp/devices/", "https://gateway.example/mcp/devices/", "", false},
	} {
		r := request()
		r.Resource = test.resource
		c, err := i.Verify(t.Context(), f.sign(f.claims(map[string]any{"aud": test.audience}), nil), r)
		if (err == nil) != test.ok || c.Device != test.device || err != nil && !errors.Is(err, identity.ErrAudience) {
			t.Errorf("%v at %q: got %+v, %v", test.audience, test.resource, c, err)
		}
	}
}

// TestAttacks: tokens that somebody made up, stole or took from elsewhere are refused. All
// but those with the audience of another server come as unknown or expired, which the server
// records.
func TestAttacks(t *testing.T) {
	f, other := newFake(t), newFake(t)
	otherKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(f.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	now := time.Now()
	good := f.claims(nil)
	goodText, _ := json.Marshal(good)
	with := func(name string, value any) map[string]any { return f.claims(map[string]any{name: value}) }
	encode := base64.RawURLEncoding.EncodeToString
	signed := strings.Split(f.sign(good, nil), ".")

	for _, test := range []struct {
		name  string
		token string
		want  error
		// fetches is how often the keys may be fetched for it, from nothing.
		fetches int32
	}{
		{"other audience", f.sign(with("aud", "https://other.example/mcp"), nil), identity.ErrAudience, 1},
		{"audience of a longer address", f.sign(with("aud", at+"/"), nil), identity.ErrAudience, 1},
		{"expired", f.sign(with("exp", now.Add(-time.Second).Unix()), nil), identity.ErrExpired, 1},
		{"expires now", f.sign(with("exp", now.Unix()), nil), identity.ErrExpired, 1},
		{"no exp", f.sign(with("exp", nil), nil), identity.ErrUnknown, 1},
		{"exp that is a text", f.sign(with("exp", "tomorrow"), nil), identity.ErrUnknown, 0},
		{"exp in another case", f.sign(f.claims(map[string]any{"exp": nil, "EXP": now.Add(time.Hour).Unix()}), nil), identity.ErrUnknown, 1},
		{"not yet valid", f.sign(with("nbf", now.Add(30*time.Second).Unix()), nil), identity.ErrUnknown, 1},
		{"wrong issuer", f.sign(with("iss", "https://evil.example"), nil), identity.ErrUnknown, 0},
		{"issuer with a slash", f.sign(with("iss", f.URL+"/"), nil), identity.ErrUnknown, 0},
		{"no issuer", f.sign(with("iss", nil), nil), identity.ErrUnknown, 0},
		{"token of another issuer", other.sign(other.claims(nil), nil), identity.ErrUnknown, 0},
		{"duplicate iss claims", f.sign(strings.Replace(string(goodText), `{`, `{"iss":"https://evil.example",`, 1), nil), identity.ErrUnknown, 0},
		{"duplicate aud claims", f.sign(strings.Replace(string(goodText), `{`, `{"aud":"https://other.example",`, 1), nil), identity.ErrUnknown, 0},
		{"alg none", encode([]byte(`{"alg":"none","kid":"one","typ":"at+jwt"}`)) + "." + signed[1] + ".", identity.ErrUnknown, 0},
		{"alg none with a signature", encode([]byte(`{"alg":"none","kid":"one","typ":"at+jwt"}`)) + "." + signed[1] + "." + signed[2], identity.ErrUnknown, 0},
		{"alg None in another case", encode([]byte(`{"alg":"NoNe","kid":"one","typ":"at+jwt"}`)) + "." + signed[1] + ".", identity.ErrUnknown, 0},
		{"HS256 with the public key", sign(t, jose.HS256, asPEM, good, nil), identity.ErrUnknown, 0},
		{"HS256 with the modulus", sign(t, jose.HS256, testKey().N.Bytes(), good, nil), identity.ErrUnknown, 0},
		{"another key with a known kid", sign(t, jose.RS256, otherKey, good, nil), identity.ErrUnknown, 1},
		{"another key without a kid", sign(t, jose.RS256, otherKey, good, map[jose.HeaderKey]any{"kid": nil}), identity.ErrUnknown, 1},
		{"another algorithm with a known kid", sign(t, jose.PS256, f.key, good, nil), identity.ErrUnknown, 1},
		{"unknown kid", f.sign(good, map[jose.HeaderKey]any{"kid": "two"}), identity.ErrUnknown, 1},
		{"no signature", signed[0] + "." + signed[1] + ".", identity.ErrUnknown, 1},
		{"changed claims", signed[0] + "." + encode([]byte(strings.Replace(string(goodText), "maria", "admin", 1))) + "." + signed[2], identity.ErrUnknown, 1},
		{"ID token with a nonce", f.sign(with("nonce", "n"), map[jose.HeaderKey]any{"typ": "JWT"}), identity.ErrUnknown, 1},
		{"ID token with an at_hash", f.sign(with("at_hash", "h"), map[jose.HeaderKey]any{"typ": nil}), identity.ErrUnknown, 1},
		{"ID token of Keycloak", f.sign(with("typ", "ID"), map[jose.HeaderKey]any{"typ": "JWT"}), identity.ErrUnknown, 1},
		{"logout token", f.sign(good, map[jose.HeaderKey]any{"typ": "logout+jwt"}), identity.ErrUnknown, 1},
		{"stolen token that is bound to a key", f.sign(with("cnf", map[string]any{"jkt": "x"}), nil), identity.ErrUnknown, 1},
		{"oversized", f.sign(with("padding", strings.Repeat("x", maxToken)), nil), identity.ErrUnknown, 0},
		{"no subject", f.sign(with("sub", nil), nil), identity.ErrUnknown, 1},
		{"long subject", f.sign(with("sub", strings.Repeat("x", 200)), nil), identity.ErrUnknown, 1},
		{"embedded jwk", sign(t, jose.RS256, otherKey, good, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: otherKey.Public()}}), identity.ErrUnknown, 1},
		{"embedded jku", sign(t, jose.RS256, otherKey, good, map[jose.HeaderKey]any{"jku": other.URL + "/keys"}), identity.ErrUnknown, 1},
		{"embedded x5u", sign(t, jose.RS256, otherKey, good, map[jose.HeaderKey]any{"x5u": other.URL + "/keys"}), identity.ErrUnknown, 1},
		{"critical extension", f.sign(good, map[jose.HeaderKey]any{"crit": []string{"exp"}, "exp": 1}), identity.ErrUnknown, 1},
		{"groups of the wrong type", f.sign(with("groups", []any{"Staff", 7}), nil), identity.ErrUnknown, 0},
		{"groups that are elsewhere", f.sign(with("_claim_names", map[string]any{"groups": "src1"}), nil), identity.ErrUnknown, 0},
		{"JSON serialization", `{"payload":"` + signed[1] + `","protected":"` + signed[0] + `","signature":"` + signed[2] + `"}`, identity.ErrUnknown, 0},
		{"nothing", "", identity.ErrUnknown, 0},
		{"a static token", "fer_" + strings.Repeat("a", 43), identity.ErrUnknown, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := f.issuer()
			before := f.fetches.Load()
			for range 3 {
				if c, err := i.Verify(t.Context(), test.token, request()); !errors.Is(err, test.want) || c.Valid != nil || (c.Who.Name != "") != (test.want != identity.ErrUnknown || test.name == "not yet valid") {
					t.Fatalf("got %+v, %v", c, err)
				} else if strings.Contains(err.Error(), signed[2]) {
					t.Errorf("shows the token: %v", err)
				}
			}
			if n := f.fetches.Load() - before; n != test.fetches {
				t.Errorf("the keys were fetched %d times, want %d", n, test.fetches)
			}
		})
	}
	if n := other.fetches.Load(); n > 0 {
		t.Errorf("a token made the gateway fetch %d times from elsewhere", n)
	}
	if c, err := f.issuer().Verify(t.Context(), strings.Join(signed, "."), request()); err != nil {
		t.Errorf("the good token: %+v, %v", c, err)
	}
}

// TestUnknownKeys: tokens with keys that nobody has do not make the gateway fetch keys again
// and again, and good tokens are accepted meanwhile.
func TestUnknownKeys(t *testing.T) {
	f := newFake(t)
	i := f.issuer()
	good := f.sign(f.claims(nil), nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := i.Verify(t.Context(), f.sign(f.claims(nil), map[jose.HeaderKey]any{"kid": time.Now().String()}), request()); !errors.Is(err, identity.ErrUnknown) {
					t.Errorf("got %v", err)
				}
				if _, err := i.Verify(t.Context(), good, request()); err != nil {
					t.Errorf("a good one: %v", err)
				}
			}
		})
	}
	start := time.Now()
	wg.Wait()
	if n, most := f.fetches.Load(), int32(2+time.Since(start)/fetchPause); n > most {
		t.Errorf("the keys were fetched %d times, at most %d expected", n, most)
	}
	// A wrong signature with a known key causes none.
	i.keys.pause = 0
	before, parts := f.fetches.Load(), strings.Split(good, ".")
	forged := parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 256))
	if _, err := i.Verify(t.Context(), forged, request()); !errors.Is(err, identity.ErrUnknown) || f.fetches.Load() != before {
		t.Errorf("the keys were fetched for a wrong signature: %v", err)
	}
}

// TestRotation: a new key is accepted, and tokens of a key that was withdrawn are not, also
// if they were seen before.
func TestRotation(t *testing.T) {
	f := newFake(t)
	i := f.issuer()
	i.keys.pause = 0
	first := f.sign(f.claims(nil), nil)
	if _, err := i.Verify(t.Context(), first, request()); err != nil {
		t.Fatal(err)
	}
	next, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.keys = []jose.JSONWebKey{{Key: next.Public(), KeyID: "two"}}
	f.mu.Unlock()
	second := sign(t, jose.ES256, next, f.claims(nil), map[jose.HeaderKey]any{"kid": "two"})
	if _, err := i.Verify(t.Context(), second, request()); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Verify(t.Context(), first, request()); !errors.Is(err, identity.ErrUnknown) {
		t.Errorf("the old key: %v", err)
	}
}

// TestIssuerDown: while an issuer cannot be reached, nobody can tell whether a token is good.
// Keys that are known go on to be used.
func TestIssuerDown(t *testing.T) {
	f := newFake(t)
	f.down.Store(true)
	i := f.issuer() // a gateway starts
	i.keys.pause = 0
	good := f.sign(f.claims(nil), nil)
	cannotTell := func(token string) {
		t.Helper()
		_, err := i.Verify(t.Context(), token, request())
		if err == nil || errors.Is(err, identity.ErrUnknown) || errors.Is(err, identity.ErrExpired) || errors.Is(err, identity.ErrAudience) {
			t.Errorf("got %v", err)
		}
	}
	cannotTell(good)
	i.keys.pause = time.Hour
	cannotTell(good) // without asking again
	i.keys.pause = 0
	f.down.Store(false)
	if _, err := i.Verify(t.Context(), good, request()); err != nil {
		t.Fatal(err)
	}
	f.down.Store(true)
	if _, err := i.Verify(t.Context(), f.sign(f.claims(map[string]any{"sub": "new"}), nil), request()); err != nil {
		t.Errorf("with the keys of before: %v", err)
	}
	cannotTell(f.sign(f.claims(nil), map[jose.HeaderKey]any{"kid": "two"}))
	i.keys.mu.Lock()
	i.keys.fetched = time.Now().Add(-keepFor - time.Second)
	i.keys.mu.Unlock()
	cannotTell(good)
}

// TestKeysAreFetchedAgain: old keys are fetched again while they are in use, and nobody waits.
func TestKeysAreFetchedAgain(t *testing.T) {
	f := newFake(t)
	i := f.issuer()
	i.keys.pause = 0
	good := f.sign(f.claims(nil), nil)
	for n := range int32(2) {
		if _, err := i.Verify(t.Context(), good, request()); err != nil {
			t.Fatal(err)
		}
		i.keys.mu.Lock()
		flight := i.keys.flight
		i.keys.mu.Unlock()
		if flight != nil {
			<-flight
		}
		if got := f.fetches.Load(); got != n+1 {
			t.Fatalf("fetched %d times, want %d", got, n+1)
		}
		i.keys.mu.Lock()
		i.keys.fetched = time.Now().Add(-refreshAfter - time.Second)
		i.keys.mu.Unlock()
	}
}

// TestHostileIssuer: what an issuer answers is bounded, and leads nowhere else.
func TestHostileIssuer(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer elsewhere.Close()
	for name, change := range map[string]func(f *fake){
		"keys without TLS":   func(f *fake) { f.document["jwks_uri"] = "http://keys.example/keys" },
		"keys in a file":     func(f *fake) { f.document["jwks_uri"] = "file:///etc/passwd" },
		"another issuer":     func(f *fake) { f.document["issuer"] = "https://evil.example" },
		"login without TLS":  func(f *fake) { f.document["authorization_endpoint"] = "http://login.example" },
		"a huge description": func(f *fake) { f.document["x"] = strings.Repeat("x", maxBody) },
		"no keys":            func(f *fake) { f.keys = nil },
		"a symmetric key": func(f *fake) {
			f.keys = []jose.JSONWebKey{{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "one"}}
		},
		"a key to encrypt":    func(f *fake) { f.keys[0].Use = "enc" },
		"a private key":       func(f *fake) { f.keys[0].Key = f.key },
		"a redirect":          func(f *fake) { f.Config.Handler = http.RedirectHandler(elsewhere.URL, http.StatusFound) },
		"an endless response": func(f *fake) { f.Config.Handler = http.HandlerFunc(endless) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			good := f.sign(f.claims(nil), nil)
			change(f)
			_, err := f.issuer().Verify(t.Context(), good, request())
			if err == nil || errors.Is(err, identity.ErrUnknown) {
				t.Errorf("got %v", err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if usable(&jose.JSONWebKey{Key: small.Public(), KeyID: "one"}) {
		t.Error("a short key is used")
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 64<<10)); err != nil {
			return
		}
	}
}

// TestCA: an issuer is reached by TLS, with the CA that the owner names and no other.
func TestCA(t *testing.T) {
	f := newFake(t)
	f.Server.Close()
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Server.Close)
	f.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	good := f.sign(f.claims(nil), nil)
	if _, err := f.issuer().Verify(t.Context(), good, request()); err == nil || errors.Is(err, identity.ErrUnknown) {
		t.Errorf("without its CA: %v", err)
	}
	file := t.TempDir() + "/ca.pem"
	writePEM(t, file, f.Certificate())
	if _, err := f.issuer(func(c *Config) { c.CA = file }).Verify(t.Context(), good, request()); err != nil {
		t.Errorf("with its CA: %v", err)
	}
	for _, file := range []string{"issuer.go", t.TempDir() + "/none"} {
		cfg := f.config()
		cfg.CA = file
		if _, err := New(Parts{Config: cfg}); err == nil || !strings.HasPrefix(err.Error(), "ca: ") {
			t.Errorf("%s: got %v", file, err)
		}
	}
}

// TestValidEnds: what waits for the end of a credential is told when the token expires.
func TestValidEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		valid := newLifetime(time.Now().Add(time.Minute))
		called, ended := make(chan struct{}), time.Time{}
		context.AfterFunc(valid, func() { ended = time.Now(); close(called) })
		stop := context.AfterFunc(valid, func() { t.Error("was stopped") })
		child, cancel := context.WithCancel(valid)
		defer cancel()
		begun := time.Now()
		if deadline, ok := valid.Deadline(); !stop() || valid.Err() != nil || !ok || deadline.Sub(begun) != time.Minute {
			t.Errorf("has ended, at %v", deadline)
		}
		<-called
		<-valid.Done()
		<-child.Done()
		if ended.Sub(begun) != time.Minute || valid.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded {
			t.Errorf("ended after %v: %v, %v", ended.Sub(begun), valid.Err(), child.Err())
		}
		select {
		case <-newLifetime(time.Now()).Done():
		case <-time.After(time.Second):
			t.Error("a token that has expired is valid")
		}
	})
}

// TestCacheIsBounded: tokens that were seen take a bounded amount of memory.
func TestCacheIsBounded(t *testing.T) {
	var c cache
	for n := range maxSeen + 100 {
		c.put([32]byte{byte(n), byte(n >> 8)}, &verified{version: 1})
	}
	if len(c.tokens) != maxSeen {
		t.Errorf("%d tokens are kept", len(c.tokens))
	}
	last := [32]byte{byte((maxSeen + 99) & 0xff), byte((maxSeen + 99) >> 8)}
	if c.get(last, 1) == nil || c.get(last, 2) != nil {
		t.Error("the last one is lost, or was seen with other keys")
	}
}

// TestConfig: an error begins with the key that is wrong.
func TestConfig(t *testing.T) {
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Name: "company", URL: "https://login.example/realms/a"}, ""},
		{Config{Name: "company", URL: "http://localhost:8080"}, ""},
		{Config{Name: "company", URL: "http://[::1]:8080/"}, ""},
		{Config{Name: "", URL: "https://login.example"}, "name: "},
		{Config{Name: "a:b", URL: "https://login.example"}, "name: "},
		{Config{Name: "oauth", URL: "https://login.example"}, "name: "},
		{Config{Name: "local", URL: "https://login.example"}, "name: "},
		{Config{Name: "endpoint", URL: "https://login.example"}, "name: "},
		{Config{Name: "company", URL: "http://login.example"}, "url: must begin with https://"},
		{Config{Name: "company", URL: "http://127.0.0.1.evil.example"}, "url: must begin with https://"},
		{Config{Name: "company", URL: "login.example"}, "url: "},
		{Config{Name: "company", URL: "https://me:secret@login.example"}, "url: "},
		{Config{Name: "company", URL: "https://login.example?tenant=a"}, "url: "},
		{Config{Name: "company", URL: "https://a", Groups: map[string]string{"a": "b"}}, "groups: need groups_claim"},
		{Config{Name: "company", URL: "https://a", GroupsClaim: "g", Groups: map[string]string{"a": "b,c"}}, "groups: the name"},
		{Config{Name: "company", URL: "https://a", GroupsClaim: "g", Groups: map[string]string{"a": ""}}, "groups: the name"},
		{Config{Name: "company", URL: "https://a", ClientSecret: "x"}, "client_secret: needs client_id"},
	} {
		err := test.cfg.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%+v: got %v", test.cfg, err)
		}
	}
}

func writePEM(t *testing.T, file string, cert *x509.Certificate) {
	t.Helper()
	writeFile(t, file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}
