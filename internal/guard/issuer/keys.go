package issuer

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// Times of keys. A key that the issuer withdraws is refused after refreshAfter. If the
// issuer cannot be reached, its keys are used for keepFor.
const (
	fetchPause   = 10 * time.Second
	refreshAfter = time.Hour
	keepFor      = 24 * time.Hour
)

// maxKeys is how many keys of an issuer are used.
const maxKeys = 64

// minRSA is the size of the smallest RSA key in bits.
const minRSA = 2048

// keySet is a set of keys. It is immutable.
type keySet struct {
	keys    []jose.JSONWebKey
	version int // changes with the keys
}

// keys has the keys of an issuer, and what discovery says. It fetches both when they are
// needed.
type keys struct {
	cfg    Config
	client *http.Client
	log    *slog.Logger
	pause  time.Duration

	mu      sync.Mutex
	found   *provider // nil before discovery
	set     *keySet
	text    []byte // as the issuer has it
	fetched time.Time
	tried   time.Time
	err     error         // of the last attempt
	flight  chan struct{} // closed when the present attempt ends; nil if there is none
}

func newKeys(cfg Config, client *http.Client, log *slog.Logger) *keys {
	return &keys{cfg: cfg, client: client, log: log, pause: fetchPause, set: new(keySet)}
}

// provider is what discovery says about an issuer.
type provider struct {
	*oidc.Provider
	JWKS        string   `json:"jwks_uri"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	Scopes      []string `json:"scopes_supported"`
	// NamesItself reports that the issuer names itself when it sends a browser back.
	NamesItself bool `json:"authorization_response_iss_parameter_supported"`
}

// known returns the keys that may be used now. Old ones are fetched again meanwhile.
func (k *keys) known() *keySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := time.Since(k.fetched)
	if age > refreshAfter && !k.fetched.IsZero() {
		k.start()
	}
	if age > keepFor {
		return &keySet{version: -1}
	}
	return k.set
}

// start starts an attempt to fetch the keys, unless one is under way or was a moment ago.
// Called with the lock held.
func (k *keys) start() {
	if k.flight != nil || !k.tried.IsZero() && time.Since(k.tried) < k.pause {
		return
	}
	k.flight, k.tried = make(chan struct{}), time.Now()
	go k.fetch(k.flight)
}

// refresh fetches the keys, unless that was tried a moment ago. The error is that of the last
// attempt.
func (k *keys) refresh(ctx context.Context) error {
	k.mu.Lock()
	k.start()
	flight := k.flight
	k.mu.Unlock()
	if flight != nil {
		select {
		case <-flight:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// verify checks a signature. It returns the version of the keys. The error is not
// identity.ErrUnknown if the keys are not known and cannot be fetched.
func (k *keys) verify(ctx context.Context, jws *jose.JSONWebSignature) (version int, err error) {
	header := jws.Signatures[0].Protected
	for attempt := range 2 {
		if attempt > 0 {
			if err := k.refresh(ctx); err != nil {
				return 0, err
			}
		}
		set, named := k.known(), false
		for i := range set.keys {
			key := &set.keys[i]
			if header.KeyID != "" && key.KeyID != header.KeyID {
				continue
			}
			named = header.KeyID != ""
			if key.Algorithm != "" && key.Algorithm != header.Algorithm {
				continue
			}
			// Only the key itself: go-jose would look into the header for a set of keys.
			if _, err := jws.Verify(key.Key); err == nil {
				return set.version, nil
			}
		}
		if named {
			break // other keys would not help
		}
	}
	return 0, refused("it is not signed with a key of its issuer")
}

// VerifySignature implements oidc.KeySet.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	if _, err := k.verify(ctx, jws); err != nil {
		return nil, err
	}
	return jws.UnsafePayloadWithoutVerification(), nil // verified by now
}

// provider returns what discovery says.
func (k *keys) provider(ctx context.Context) (*provider, error) {
	k.mu.Lock()
	found := k.found
	k.mu.Unlock()
	if found != nil {
		return found, nil
	}
	err := k.refresh(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.found == nil && err == nil {
		err = errors.New("the issuer did not answer")
	}
	if k.found != nil {
		err = nil
	}
	return k.found, err
}

// fetch fetches the keys once, and closes flight.
func (k *keys) fetch(flight chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*fetchTimeout)
	defer cancel()
	k.mu.Lock()
	found := k.found
	k.mu.Unlock()
	text, set, err := []byte(nil), (*keySet)(nil), error(nil)
	if found == nil {
		found, err = k.discover(ctx)
	}
	if err == nil {
		text, set, err = k.download(ctx, found.JWKS)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	defer close(flight)
	k.flight, k.found, k.err = nil, found, nil
	if err != nil {
		// What an issuer says about itself may have changed, too.
		k.found = nil
		k.err = fmt.Errorf("the keys of the issuer %s cannot be fetched: %s", k.cfg.Name, ferrule.Clean(err.Error(), ferrule.MaxReason))
		k.log.Warn("tokens of an issuer cannot be checked", "issuer", k.cfg.Name, "err", k.err)
		return
	}
	k.fetched = time.Now()
	if !bytes.Equal(text, k.text) {
		set.version = k.set.version + 1
		k.text, k.set = text, set
	}
}

// discover returns what the issuer says about itself.
func (k *keys) discover(ctx context.Context) (*provider, error) {
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, k.client), k.cfg.URL)
	if err != nil {
		return nil, err
	}
	found := &provider{Provider: p}
	if err := p.Claims(found); err != nil {
		return nil, err
	}
	for _, endpoint := range []string{found.JWKS, p.Endpoint().AuthURL, p.Endpoint().TokenURL} {
		if u, err := url.Parse(endpoint); err != nil || !secure(u) {
			return nil, errors.New("its description names an address without TLS, or lacks one")
		}
	}
	return found, nil
}

// download returns the keys at an address.
func (k *keys) download(ctx context.Context, from string) ([]byte, *keySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("its keys: %s", resp.Status)
	}
	set, err := parseKeys(text)
	return text, set, err
}

// parseKeys decodes keys. Those of an unknown kind are left out.
func parseKeys(text []byte) (*keySet, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, errors.New("its keys are not JSON")
	}
	set := new(keySet)
	for _, raw := range document.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || !usable(&key) {
			continue
		}
		if set.keys = append(set.keys, key); len(set.keys) == maxKeys {
			break
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("it has no key that can be used")
	}
	return set, nil
}

// usable reports whether a key is a public one for signatures.
func usable(key *jose.JSONWebKey) bool {
	if !key.Valid() || !key.IsPublic() || key.Use == "enc" {
		return false
	}
	public, ok := key.Key.(*rsa.PublicKey)
	return !ok || public.N.BitLen() >= minRSA
}

var _ identity.Verifier = (*Issuer)(nil).Verify
