// Package identity identifies callers: it maps a credential to a Principal.
//
//	token ─▶ Tokens ─▶ Principal
//
// Tokens are stored as hashes and compared in constant time.
package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Token is the secret of an agent, with the name of the agent.
type Token struct {
	Name   string
	Secret ferrule.Secret
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

// Tokens is an immutable set of tokens.
type Tokens struct{ known []known }

type known struct {
	hash [sha256.Size]byte
	who  ferrule.Principal
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
		all.known = append(all.known, known{hash, ferrule.Principal{Role: ferrule.Agent, Name: t.Name}})
	}
	return all, nil
}

// ErrUnknown is returned for a token that is not in the set.
var ErrUnknown = errors.New("unknown token")

// Principal returns the agent that has the token.
func (t *Tokens) Principal(secret string) (ferrule.Principal, error) {
	hash := sha256.Sum256([]byte(secret))
	who, found := ferrule.Principal{}, 0
	for i := range t.known {
		if subtle.ConstantTimeCompare(hash[:], t.known[i].hash[:]) == 1 {
			who, found = t.known[i].who, 1
		}
	}
	if found == 0 {
		return who, ErrUnknown
	}
	return who, nil
}

// Required reports whether callers need a token: they do if there is any.
func (t *Tokens) Required() bool { return t != nil && len(t.known) > 0 }
