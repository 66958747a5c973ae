package xiaozhi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Acquaintance is what is kept about a device that has got a credential.
type Acquaintance struct {
	Address string `json:"address"`
	// ClientID is the UUID that the device came with first. Who comes with another
	// is somebody else who knows its address, or the device after its flash was
	// erased; its owner knows which.
	ClientID string `json:"client_id"`
	// Issue counts how often its credential was made anew: those before are void.
	Issue uint64 `json:"issue"`
	// Revoked tells that it is to have none.
	Revoked bool `json:"revoked,omitempty"`
}

// Credentials is an Issuer. A credential is computed from a key and from what is
// kept about its device, so that no secret of a device is kept.
type Credentials struct {
	key  []byte
	keep func(Acquaintance) error

	mu    sync.Mutex
	known map[string]Acquaintance
}

// minKey is the length of the shortest key in bytes.
const minKey = 32

// NewCredentials makes credentials with a key that nobody else knows and that stays
// the same. Known is what was kept; keep is called with what has changed, before it
// counts, one after the other.
func NewCredentials(key []byte, known []Acquaintance, keep func(Acquaintance) error) (*Credentials, error) {
	if len(key) < minKey {
		return nil, fmt.Errorf("the key has %d bytes; at least %d make it hard to guess", len(key), minKey)
	}
	c := &Credentials{key: key, keep: keep, known: make(map[string]Acquaintance, len(known))}
	for _, a := range known {
		c.known[a.Address] = a
	}
	return c, nil
}

// The reasons why a device has no credential.
var (
	ErrRevoked   = errors.New("its credential was revoked; forget the device to let it come anew")
	ErrStranger  = errors.New("it came with another Client-Id than before; if its flash was erased, forget the device to let it come anew")
	ErrNoAccount = errors.New("the credential is not valid here")
)

// Issue implements Issuer. The first who comes with an address has it.
func (c *Credentials) Issue(_ context.Context, v Visitor) (Credential, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.known[v.Address]
	switch {
	case !ok || a.ClientID == "" && !a.Revoked:
		a.Address, a.ClientID = v.Address, v.ClientID
		if err := c.set(a); err != nil {
			return Credential{}, err
		}
	case a.Revoked:
		return Credential{}, ErrRevoked
	case a.ClientID != v.ClientID:
		return Credential{}, ErrStranger
	}
	token := c.token(a)
	return Credential{
		ClientID: "GID_ferrule@@@" + strings.ReplaceAll(a.Address, ":", "_") + "@@@" + a.ClientID,
		Username: a.Address, Password: token, Token: token,
	}, nil
}

// Check tells whose token or password it is.
func (c *Credentials) Check(token string) (address string, err error) {
	encoded, _, _ := strings.Cut(token, ".")
	name, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", ErrNoAccount
	}
	c.mu.Lock()
	a, ok := c.known[string(name)]
	c.mu.Unlock()
	if !ok || a.Revoked || a.ClientID == "" || !hmac.Equal([]byte(c.token(a)), []byte(token)) {
		return "", ErrNoAccount
	}
	return a.Address, nil
}

// Revoke makes a device's credential void, and lets it have no other.
func (c *Credentials) Revoke(address string) error {
	return c.change(address, func(a *Acquaintance) { a.Revoked = true })
}

// Forget makes a device's credential void, and lets whoever comes with its address
// next have another.
func (c *Credentials) Forget(address string) error {
	return c.change(address, func(a *Acquaintance) { a.ClientID, a.Revoked = "", false })
}

// change changes what is known about an address, which may be nothing yet.
func (c *Credentials) change(address string, fn func(*Acquaintance)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.known[address]
	a.Address = address
	a.Issue++
	fn(&a)
	return c.set(a)
}

// set keeps what has changed. It is called with mu held.
func (c *Credentials) set(a Acquaintance) error {
	if err := c.keep(a); err != nil {
		return fmt.Errorf("keeping the credential of %s: %w", a.Address, err)
	}
	c.known[a.Address] = a
	return nil
}

// token is the address, for whoever has to look it up, and what only the key can
// make of the acquaintance.
func (c *Credentials) token(a Acquaintance) string {
	mac := hmac.New(sha256.New, c.key)
	for _, part := range []string{a.Address, a.ClientID, strconv.FormatUint(a.Issue, 10)} {
		mac.Write([]byte(part))
		mac.Write([]byte{0}) // none of them has it
	}
	return base64.RawURLEncoding.EncodeToString([]byte(a.Address)) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
