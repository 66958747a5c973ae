// Package identity tells who is asking: it turns a credential into a Principal.
//
//	token ─▶ Tokens ─▶ Principal
//
// A token is kept as its hash, and compared in a time that does not depend on
// how much of it was guessed.
package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Token is a secret that an agent shows, and the name of who has it.
type Token struct {
	Name   string
	Secret string
}

// minSecret is the length of the shortest secret that is worth the name.
const minSecret = 16

// Check tells what is wrong with the token, without telling the secret.
func (t Token) Check() error {
	if err := ferrule.CheckID(t.Name); err != nil {
		return err
	}
	if n := len(t.Secret); n < minSecret {
		return fmt.Errorf("the token of %s has %d characters; at least %d make it hard to guess", t.Name, n, minSecret)
	}
	return nil
}

// Tokens are all tokens that are known. They never change.
type Tokens struct{ known []known }

type known struct {
	hash [sha256.Size]byte
	who  ferrule.Principal
}

// NewTokens makes a set of tokens.
func NewTokens(tokens []Token) (*Tokens, error) {
	all := &Tokens{}
	names := make(map[string]bool)
	for _, t := range tokens {
		if err := t.Check(); err != nil {
			return nil, err
		}
		if names[t.Name] {
			return nil, fmt.Errorf("name %q is given twice", t.Name)
		}
		names[t.Name] = true
		hash := sha256.Sum256([]byte(t.Secret))
		for _, k := range all.known {
			if k.hash == hash {
				return nil, fmt.Errorf("%s and %s have the same token", k.who.Name, t.Name)
			}
		}
		all.known = append(all.known, known{hash, ferrule.Principal{Role: ferrule.Agent, Name: t.Name}})
	}
	return all, nil
}

// ErrUnknown is returned for a token that nobody has.
var ErrUnknown = errors.New("the token is not known here")

// Principal tells whose token it is.
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

// Required tells whether there are any tokens, so that whoever asks must show one.
func (t *Tokens) Required() bool { return t != nil && len(t.known) > 0 }
