// Package seal authenticates what the nodes of a tenant keep on NATS. Anybody with
// credentials for NATS can write there; only a node has the secret of the tenant.
//
//	secret ─ New ─▶ Key of one use ─ Seal(context, data) ─▶ tag | data ─ Open ─▶ data
//
// A sealed message is not encrypted. It is valid in its context only: what it is, and where
// it belongs.
package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Size is how many bytes a seal adds to a message.
const Size = sha256.Size

// ErrForged means that no node of the tenant sealed a message in this context.
var ErrForged = errors.New("no node of this tenant sealed it")

// Key seals the messages of one use.
type Key []byte

// New derives a key from the secret of a tenant. Each use has its own.
func New(secret []byte, use, tenant string) (Key, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("ferrule %s %q", use, tenant), sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return key, nil
}

// Seal returns a message: a tag over the context and the data, and the data. The context must
// not contain a zero byte.
func (k Key) Seal(context string, data []byte) []byte {
	return append(k.tag(make([]byte, 0, Size+len(data)), context, data), data...)
}

// Open returns the data of a sealed message. It shares the memory of the message.
func (k Key) Open(context string, message []byte) ([]byte, error) {
	if len(message) < Size {
		return nil, ErrForged
	}
	data := message[Size:]
	if !hmac.Equal(k.tag(nil, context, data), message[:Size]) {
		return nil, ErrForged
	}
	return data, nil
}

// tag appends the tag to an empty buffer.
func (k Key) tag(buffer []byte, context string, data []byte) []byte {
	h := hmac.New(sha256.New, k)
	h.Write([]byte(context + "\x00"))
	h.Write(data)
	return h.Sum(buffer)
}
