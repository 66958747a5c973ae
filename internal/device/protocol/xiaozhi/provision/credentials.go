// Package provision lets devices with xiaozhi-esp32 firmware find the gateway. It has
// the HTTP handlers that such a device needs besides its connection:
//
//	device starts ──POST──▶ OTA ─▶ Admission   is it admitted, or must it show a code?
//	                         └───▶ Issuer      its own credential
//	device connects with it ─────▶ Credentials.Check
//	camera ──POST picture──▶ Vision ─▶ result of the current call
//
// Anyone who reaches these handlers can claim to be any device. So OTA only tells an
// admitted device where to connect, and the first client that connects with an address
// keeps it.
package provision

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

// KnownDevice is a device that has connected with a credential, or was admitted.
type KnownDevice struct {
	Address string `json:"address"`
	// ClientID is the UUID of the first client with this address. Another UUID means
	// that the flash was erased, or that another device uses the address; only the
	// owner can tell. It is empty after Forget.
	ClientID string `json:"client_id,omitempty"`
	// Issue is the number of the current credential. Earlier ones are void.
	Issue uint64 `json:"issue,omitempty"`
	// Admitted is set once the owner has confirmed the code on the device.
	Admitted bool `json:"let_in,omitempty"`
}

// Credentials implements Issuer. A credential is computed from a key and the identity
// of its device: no secret of a device is stored, and a device that only asks for a
// credential takes no memory.
type Credentials struct {
	key  []byte
	save func(KnownDevice) error

	mu    sync.Mutex
	known map[string]KnownDevice // by address
}

const (
	// minKey is the length of the shortest key in bytes.
	minKey = 32
	// maxKnown is how many devices can be known.
	maxKnown = 1 << 20
)

// NewCredentials returns credentials for a secret key. With the same key and devices,
// credentials stay valid. Save is called, one call at a time, before a change takes
// effect.
func NewCredentials(key []byte, known []KnownDevice, save func(KnownDevice) error) (*Credentials, error) {
	if len(key) < minKey {
		return nil, fmt.Errorf("key must have at least %d bytes, got %d", minKey, len(key))
	}
	c := &Credentials{key: key, save: save, known: make(map[string]KnownDevice, len(known))}
	for _, d := range known {
		c.known[d.Address] = d
	}
	return c, nil
}

// The reasons why a device gets no credential, or its credential is rejected.
var (
	ErrOtherClient = errors.New("its Client-Id has changed. If its flash was erased, run `ferrule forget` with its address, then restart it")
	ErrInvalid     = errors.New("its credential is invalid or expired. Restart it to get a new one")
	ErrTooMany     = fmt.Errorf("too many known devices, limit is %d", maxKnown)
)

// Issue implements Issuer.
func (c *Credentials) Issue(_ context.Context, id Identity) (Credential, error) {
	c.mu.Lock()
	d := c.known[id.Address]
	c.mu.Unlock()
	if d.ClientID != "" && d.ClientID != id.ClientID {
		return Credential{}, ErrOtherClient
	}
	d.Address, d.ClientID = id.Address, id.ClientID
	token := c.token(d)
	return Credential{
		ClientID: "GID_ferrule@@@" + strings.ReplaceAll(d.Address, ":", "_") + "@@@" + d.ClientID,
		Username: d.Address, Password: token, Token: token,
	}, nil
}

// Check returns the device that a token or password belongs to. The first client that
// connects with an address becomes known.
func (c *Credentials) Check(token string) (KnownDevice, error) {
	encoded, _, _ := strings.Cut(token, ".")
	claim, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return KnownDevice{}, ErrInvalid
	}
	address, clientID, _ := strings.Cut(string(claim), " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.known[address]
	claimed := KnownDevice{Address: address, ClientID: clientID, Issue: d.Issue, Admitted: d.Admitted}
	if clientID == "" || !hmac.Equal([]byte(c.token(claimed)), []byte(token)) {
		return KnownDevice{}, ErrInvalid
	}
	switch d.ClientID {
	case clientID:
		return d, nil
	case "":
		return claimed, c.set(claimed)
	}
	return KnownDevice{}, ErrOtherClient
}

// Known reports whether the claimed identity is that of a known device.
func (c *Credentials) Known(id Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.known[id.Address]
	return d.ClientID != "" && d.ClientID == id.ClientID
}

// Admit makes the device known. It replaces another device with the same address, whose
// credential becomes void.
func (c *Credentials) Admit(id Identity) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.known[id.Address]
	if d.ClientID != id.ClientID {
		d.Issue++
	}
	d.Address, d.ClientID, d.Admitted = id.Address, id.ClientID, true
	return c.set(d)
}

// Forget makes the credential of a device void. The next client with its address
// becomes known. Forget returns false if the address is unknown.
func (c *Credentials) Forget(address string) (void bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.known[address]
	if d.ClientID == "" {
		return false, nil
	}
	return true, c.set(KnownDevice{Address: address, Issue: d.Issue + 1})
}

// set saves a changed device. It is called with mu held.
func (c *Credentials) set(d KnownDevice) error {
	if _, ok := c.known[d.Address]; !ok && len(c.known) >= maxKnown {
		return ErrTooMany
	}
	if err := c.save(d); err != nil {
		return fmt.Errorf("saving the credential of %s: %w", d.Address, err)
	}
	c.known[d.Address] = d
	return nil
}

// token returns address and client id, in base64, and a MAC of them and the issue.
func (c *Credentials) token(d KnownDevice) string {
	mac := hmac.New(sha256.New, c.key)
	for _, part := range []string{d.Address, d.ClientID, strconv.FormatUint(d.Issue, 10)} {
		mac.Write([]byte(part))
		mac.Write([]byte{0}) // a separator that occurs in none of them
	}
	claim := d.Address + " " + d.ClientID
	return base64.RawURLEncoding.EncodeToString([]byte(claim)) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
