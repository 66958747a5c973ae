// Package identity identifies callers: it maps a credential to a Principal.
//
//	token ─▶ Tokens ─▶ Principal
//
// Tokens are stored as hashes and compared in constant time. An agent without a token is
// known by the name that it gives itself, and by its user where the system tells.
package identity

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Token is the secret of an agent, with the name of the agent.
type Token struct {
	Name   string
	Secret ferrule.Secret
	// Scopes and Devices are what it permits at most, as a Principal has them.
	Scopes  ferrule.Scopes
	Devices string
}

// minSecret is the minimum length of a token.
const minSecret = 16

// Check returns what is wrong with the token. The error does not contain the secret.
func (t Token) Check() error {
	if err := ferrule.CheckID(t.Name); err != nil {
		return err
	}
	if n := len(t.Secret); n < minSecret {
		return fmt.Errorf("token of %s has %d characters; minimum is %d", t.Name, n, minSecret)
	}
	return nil
}

// Tokens is the set of tokens of a gateway. It may be replaced while it is in use.
type Tokens struct {
	mu    sync.RWMutex
	known []known
}

type known struct {
	hash [sha256.Size]byte
	who  ferrule.Principal
	validity
}

func (k known) same(as known) bool { return k.hash == as.hash && k.who == as.who }

// validity is a context that ends when a credential is no longer accepted.
type validity struct {
	ctx context.Context
	end context.CancelFunc
}

func newValidity() (v validity) {
	v.ctx, v.end = context.WithCancel(context.Background())
	return v
}

// NewTokens returns a set of tokens. Names and secrets must be unique.
func NewTokens(tokens []Token) (*Tokens, error) {
	all := &Tokens{}
	names := make(map[string]bool)
	for _, t := range tokens {
		if err := t.Check(); err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, fmt.Errorf("duplicate name %q", t.Name)
		}
		names[t.Name] = true
		hash := sha256.Sum256([]byte(t.Secret.Reveal()))
		for _, k := range all.known {
			if k.hash == hash {
				return nil, fmt.Errorf("%s and %s have the same token", k.who.Name, t.Name)
			}
		}
		who := ferrule.Principal{Role: ferrule.Agent, Name: t.Name, Auth: ferrule.AuthToken, Scopes: t.Scopes, Devices: t.Devices}
		all.known = append(all.known, known{hash, who, newValidity()})
	}
	return all, nil
}

// SetIDs gives each token an ID, which depends on its secret: a token with another secret is
// another token, because another agent may have it. The key is secret, so an ID does not help
// to guess a secret. It is called before the set is used.
func (t *Tokens) SetIDs(key []byte) {
	for i := range t.known {
		mac := hmac.New(sha256.New, key)
		mac.Write(t.known[i].hash[:])
		t.known[i].who.TokenID = ferrule.ConfigTokenPrefix + hex.EncodeToString(mac.Sum(nil)[:8])
	}
}

// Verify implements Verifier.
func (t *Tokens) Verify(_ context.Context, secret string, _ Request) (c Credential, err error) {
	hash := sha256.Sum256([]byte(secret))
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := range t.known {
		if subtle.ConstantTimeCompare(hash[:], t.known[i].hash[:]) == 1 {
			c.Who, c.Valid = t.known[i].who, t.known[i].ctx
		}
	}
	if c.Valid == nil {
		return c, ErrUnknown
	}
	return c, nil
}

// Has reports whether there is a token with a name.
func (t *Tokens) Has(name string) bool {
	return slices.ContainsFunc(t.Principals(), func(who ferrule.Principal) bool { return who.Name == name })
}

// Principals returns the agents that have a token.
func (t *Tokens) Principals() (all []ferrule.Principal) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, k := range t.known {
		all = append(all, k.who)
	}
	return all
}

// Len returns how many tokens there are.
func (t *Tokens) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.known)
}

// Replace replaces the tokens with those of another set, which must not be used
// afterward. Tokens in both sets stay valid without a break. It returns the names of the
// agents whose token is new, is another one or permits something else, or is gone.
func (t *Tokens) Replace(by *Tokens) (added, replaced, removed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range by.known {
		now := &by.known[i]
		was := slices.IndexFunc(t.known, func(k known) bool { return k.who.Name == now.who.Name })
		switch {
		case was < 0:
			added = append(added, now.who.Name)
		case t.known[was].same(*now):
			now.validity = t.known[was].validity
		default:
			replaced = append(replaced, now.who.Name)
		}
	}
	for _, was := range t.known {
		i := slices.IndexFunc(by.known, func(k known) bool { return k.who.Name == was.who.Name })
		if i < 0 {
			removed = append(removed, was.who.Name)
		}
		if i < 0 || !by.known[i].same(was) {
			was.end()
		}
	}
	t.known = by.known
	return added, replaced, removed
}
