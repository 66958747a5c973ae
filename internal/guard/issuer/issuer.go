// Package issuer accepts tokens of external issuers, such as a company's login, and lets
// people log in there (OpenID Connect).
//
//	token ─▶ size ─▶ seen before ──────────────────────────────────┐
//	           └▶ iss ─▶ algorithm ─▶ signature ─▶ kind, subject ──┴▶ time ─▶ audience ─▶ Credential
//	                                     ▲
//	                 discovery ─▶ keys ──┘   fetched when the first token comes
//
// Nothing is fetched for a token of another issuer, and keys at most once in ten seconds.
// A gateway starts while an issuer is down; then nobody can tell whether its tokens are good.
package issuer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// Config is an issuer whose tokens are accepted.
type Config struct {
	// Name is part of the names of its callers: agent:NAME:SUBJECT.
	Name string
	// URL identifies the issuer; its tokens have exactly this text.
	URL string
	// Audience is what tokens may be for, in addition to the URL of the gateway.
	Audience string
	// CA is a file with CA certificates; empty for those of the system.
	CA string
	// GroupsClaim is the claim with the groups of a caller, and Groups are their names here.
	// Other groups are ignored.
	GroupsClaim string
	Groups      map[string]string
	// ClientID and ClientSecret are those of the gateway, for people who log in.
	ClientID     string
	ClientSecret ferrule.Secret
}

// Limits of what the owner may configure. They bound the groups of a caller, which travel
// with each of its calls.
const (
	maxGroups = 32
	maxGroup  = 64 // bytes of a name
)

// reserved are names that other callers begin with.
var reserved = []string{"endpoint", "oauth", "local"}

// Check returns an error, starting with the key, if the config is not valid. It does not
// read files.
func (c Config) Check() error {
	if err := ferrule.CheckID(c.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if slices.Contains(reserved, c.Name) {
		return fmt.Errorf("name: %s is the name of other callers; choose another one", c.Name)
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return errors.New("url: must be the URL of the issuer, such as https://login.example.com")
	case !secure(u):
		return errors.New("url: must begin with https://; http:// is only for an issuer on this machine (localhost)")
	case len(c.Groups) > 0 && c.GroupsClaim == "":
		return errors.New("groups: need groups_claim, the claim of a token that has them, such as groups")
	case len(c.Groups) > maxGroups:
		return fmt.Errorf("groups: has %d names; limit is %d", len(c.Groups), maxGroups)
	case c.ClientSecret != "" && c.ClientID == "":
		return errors.New("client_secret: needs client_id")
	}
	for _, group := range slices.Sorted(maps.Values(c.Groups)) {
		if group == "" || len(group) > maxGroup || strings.Contains(group, ",") || ferrule.Clean(group, maxGroup) != group {
			return fmt.Errorf("groups: the name %q must have 1 to %d characters, and no comma", ferrule.Clean(group, maxGroup), maxGroup)
		}
	}
	return nil
}

// secure reports whether a URL can be trusted to reach its server: by TLS, or on this
// machine.
func secure(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" || u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// Parts is what an issuer works with.
type Parts struct {
	Config Config
	// Record records the use of a token.
	Record func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code)
	Log    *slog.Logger
}

// Issuer accepts the tokens of one issuer.
type Issuer struct {
	cfg    Config
	record func(who ferrule.Principal, event ferrule.AccessEvent, from, message string, refused ferrule.Code)
	client *http.Client
	keys   *keys
	seen   cache
}

// New returns an issuer. It fetches nothing.
func New(parts Parts) (*Issuer, error) {
	cfg := parts.Config
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	var roots *x509.CertPool
	if cfg.CA != "" {
		data, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca: no certificate in %s", cfg.CA)
		}
	}
	client := newClient(roots)
	return &Issuer{cfg: cfg, record: parts.Record, client: client, keys: newKeys(cfg, client, parts.Log)}, nil
}

// fetchTimeout is how long one request to an issuer may take.
const fetchTimeout = 5 * time.Second

// maxBody is the size of the largest response of an issuer.
const maxBody = 256 << 10

// newClient returns a client for requests to an issuer: bounded in time and size, and without
// redirects. Discovery checks the addresses.
func newClient(roots *x509.CertPool) *http.Client {
	return &http.Client{
		Timeout: fetchTimeout,
		Transport: bounded{&http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxBody)
	}
	return resp, err
}

// Name returns the name of the issuer.
func (i *Issuer) Name() string { return i.cfg.Name }

// URL returns the URL that identifies the issuer.
func (i *Issuer) URL() string { return i.cfg.URL }

// maxToken is the length of the longest token.
const maxToken = 8 << 10

// algorithms are those that a token may be signed with. All have a public key that cannot
// sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// Verify implements identity.Verifier. If a token is refused though its signature is good, the
// credential has its caller.
func (i *Issuer) Verify(ctx context.Context, token string, r identity.Request) (c identity.Credential, err error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return c, identity.ErrUnknown
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	hash := sha256.Sum256([]byte(token))
	v := i.seen.get(hash, i.keys.known().version)
	if v == nil {
		if v, err = i.verify(ctx, token); err != nil {
			return c, err
		}
		i.seen.put(hash, v)
	}
	c.Who = v.who
	switch {
	case !r.Time.Before(v.expires):
		return c, identity.ErrExpired
	case r.Time.Add(leeway).Before(v.notBefore):
		return c, refused("it is not valid yet; are the clocks right?")
	}
	device, ok := v.opens(i.cfg.Audience, r.Resource)
	if !ok {
		return c, identity.ErrAudience
	}
	if v.newFrom(r.From) {
		i.record(v.who, ferrule.AccessTokenUsed, r.From, "a token of the issuer "+i.cfg.Name, "")
	}
	c.Valid, c.Device = v.lifetime, device
	return c, nil
}

// leeway is how far the clock of an issuer may be ahead of ours.
const leeway = 5 * time.Second

// verify checks what stays true of a token: who made it, what it is, and for whom.
func (i *Issuer) verify(ctx context.Context, token string) (*verified, error) {
	// Before anything else: is it one of this issuer at all?
	said, err := i.unverified(token)
	if err != nil {
		return nil, err
	}
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, refused("its signature is none, or of a kind that is not accepted")
	}
	version, err := i.keys.verify(ctx, jws)
	if err != nil {
		return nil, err
	}
	typ, _ := jws.Signatures[0].Protected.ExtraHeaders[jose.HeaderType].(string)
	if err := said.isAccessToken(typ); err != nil {
		return nil, refused(err.Error())
	}
	name, ok := i.name(said.subject)
	if !ok {
		return nil, refused("it has no subject, or one that is too long")
	}
	if said.expires.IsZero() {
		return nil, refused("it does not say when it expires")
	}
	groups := i.groups(said.groups)
	return &verified{
		version: version, audience: said.audience, expires: said.expires, notBefore: said.notBefore,
		lifetime: newLifetime(said.expires),
		who: ferrule.Principal{
			Role: ferrule.Agent, Name: name, Auth: ferrule.AuthIssuer,
			Scopes: scopes(said.scopes, slices.Contains(groups, owner)), Groups: strings.Join(groups, ","),
		},
	}, nil
}

// unverified returns what a token says, if it says that it is from this issuer.
func (i *Issuer) unverified(token string) (said claims, err error) {
	payload := strings.Split(token, ".")[1]
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return said, identity.ErrUnknown
	}
	if said, err = parseClaims(text, i.cfg.GroupsClaim); err != nil {
		return said, refused(err.Error())
	}
	if said.issuer != i.cfg.URL {
		return said, identity.ErrUnknown
	}
	return said, nil
}

// refused returns an error for a token that is not accepted, with the reason.
func refused(why string) error { return fmt.Errorf("%w: %s", identity.ErrUnknown, why) }

// name returns the name of a caller. It has no slash, and is never shortened: two callers must
// not look the same.
func (i *Issuer) name(subject string) (name string, ok bool) {
	name = i.cfg.Name + ":" + url.PathEscape(subject)
	return name, subject != "" && len(name) <= ferrule.MaxWord
}

// groups returns what the groups of a token are called here. Others are ignored: nobody gets
// into a group of the policy because an issuer has one of the same name.
func (i *Issuer) groups(claimed []string) (groups []string) {
	for _, name := range claimed {
		if group, ok := i.cfg.Groups[name]; ok && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return groups
}

// owner is the group of those who may administer the gateway.
const owner = "owner"

// scopes returns what a token permits. Scopes of other servers are ignored. Many issuers give
// an agent every scope that it asks for; the owner of the gateway says who may administer it.
func scopes(words []string, isOwner bool) ferrule.Scopes {
	known := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		return !slices.Contains(ferrule.ScopeNames(), word) || word == "admin" && !isOwner
	})
	all, _ := ferrule.ParseScopes(known) // it knows them
	return all
}

// verified is a token whose signature is good.
type verified struct {
	version            int // of the keys
	audience           []string
	expires, notBefore time.Time
	lifetime           *lifetime
	who                ferrule.Principal

	mu     sync.Mutex
	places []string // from which it was used last
}

// maxPlaces is how many addresses of a caller are remembered.
const maxPlaces = 8

// newFrom reports whether a token is used for the first time, or from another address.
func (v *verified) newFrom(from string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.places, from) {
		return false
	}
	if len(v.places) == maxPlaces {
		v.places = slices.Delete(v.places, 0, 1)
	}
	v.places = append(v.places, from)
	return true
}

// opens reports whether a token is for a resource of this gateway. A token for the gateway
// opens all of it, and one for a device only that device.
func (v *verified) opens(audience, resource string) (device string, ok bool) {
	if audience != "" && slices.Contains(v.audience, audience) {
		return "", true
	}
	u, err := url.Parse(resource)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return "", false
	}
	if slices.Contains(v.audience, u.Scheme+"://"+u.Host+"/mcp") {
		return "", true
	}
	if device, ok = strings.CutPrefix(u.Path, "/mcp/devices/"); !ok || device == "" || !slices.Contains(v.audience, resource) {
		return "", false
	}
	return device, true
}
