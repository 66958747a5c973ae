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

// Acquaintance is what is kept about a device that has connected with a credential.
type Acquaintance struct {
	Address string `json:"address"`
	// ClientID is the UUID that the device came with first. Who comes with another
	// is somebody else who knows its address, or the device after its flash was
	// erased; its owner knows which. It is empty if the device was forgotten.
	ClientID string `json:"client_id,omitempty"`
	// Issue counts how often its credential was made anew: those before are void.
	Issue uint64 `json:"issue,omitempty"`
	// LetIn tells that its owner has let it in, by the code that it showed.
	LetIn bool `json:"let_in,omitempty"`
}

// Credentials is an Issuer. A credential is computed from a key and from what it
// says of its device, so that no secret of a device is kept; and nothing is kept of
// who merely asks for one.
type Credentials struct {
	key  []byte
	keep func(Acquaintance) error

	mu    sync.Mutex
	known map[string]Acquaintance
}

const (
	// minKey is the length of the shortest key in bytes.
	minKey = 32
	// maxKnown is how many devices can be known.
	maxKnown = 1 << 20
)

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

// The reasons why a device has no credential, or not this one.
var (
	ErrStranger = errors.New("it came with another Client-Id than before; if its flash was erased, `ferrule forget` with its address lets it come anew")
	ErrInvalid  = errors.New("its credential is not valid here, or not any more; it gets another when it starts")
	ErrTooMany  = errors.New("as many devices are known as can be")
)

// Issue implements Issuer.
func (c *Credentials) Issue(_ context.Context, v Visitor) (Credential, error) {
	c.mu.Lock()
	a := c.known[v.Address]
	c.mu.Unlock()
	if a.ClientID != "" && a.ClientID != v.ClientID {
		return Credential{}, ErrStranger
	}
	a.Address, a.ClientID = v.Address, v.ClientID
	token := c.token(a)
	return Credential{
		ClientID: "GID_ferrule@@@" + strings.ReplaceAll(a.Address, ":", "_") + "@@@" + a.ClientID,
		Username: a.Address, Password: token, Token: token,
	}, nil
}

// Check tells whose token or password it is. The first who connects with an address
// has it.
func (c *Credentials) Check(token string) (Acquaintance, error) {
	encoded, _, _ := strings.Cut(token, ".")
	whose, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return Acquaintance{}, ErrInvalid
	}
	address, clientID, _ := strings.Cut(string(whose), " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.known[address]
	asked := Acquaintance{Address: address, ClientID: clientID, Issue: a.Issue, LetIn: a.LetIn}
	if clientID == "" || !hmac.Equal([]byte(c.token(asked)), []byte(token)) {
		return Acquaintance{}, ErrInvalid
	}
	switch a.ClientID {
	case clientID:
		return a, nil
	case "":
		return asked, c.set(asked)
	}
	return Acquaintance{}, ErrStranger
}

// Knows tells whether a visitor is a device that is known, as far as it can be told
// before it shows a credential.
func (c *Credentials) Knows(v Visitor) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.known[v.Address]
	return a.ClientID != "" && a.ClientID == v.ClientID
}

// LetIn has a visitor be known as the device at its address, in place of whoever
// was.
func (c *Credentials) LetIn(v Visitor) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.known[v.Address]
	if a.ClientID != v.ClientID {
		a.Issue++
	}
	a.Address, a.ClientID, a.LetIn = v.Address, v.ClientID, true
	return c.set(a)
}

// Forget makes a device's credential void, and lets whoever comes with its address
// next have another. It is false if nobody has one with this address.
func (c *Credentials) Forget(address string) (void bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.known[address]
	if a.ClientID == "" {
		return false, nil
	}
	return true, c.set(Acquaintance{Address: address, Issue: a.Issue + 1})
}

// set keeps what has changed. It is called with mu held.
func (c *Credentials) set(a Acquaintance) error {
	if _, ok := c.known[a.Address]; !ok && len(c.known) >= maxKnown {
		return ErrTooMany
	}
	if err := c.keep(a); err != nil {
		return fmt.Errorf("keeping who %s is: %w", a.Address, err)
	}
	c.known[a.Address] = a
	return nil
}

// token says whose it is, and adds what only the key can make of that.
func (c *Credentials) token(a Acquaintance) string {
	mac := hmac.New(sha256.New, c.key)
	for _, part := range []string{a.Address, a.ClientID, strconv.FormatUint(a.Issue, 10)} {
		mac.Write([]byte(part))
		mac.Write([]byte{0}) // none of them has it
	}
	whose := a.Address + " " + a.ClientID
	return base64.RawURLEncoding.EncodeToString([]byte(whose)) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
