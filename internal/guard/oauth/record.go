package oauth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// sharedGrant is the part of a grant that all nodes know.
type sharedGrant struct {
	Node   string `json:"node"`
	Client string `json:"client"` // its ID
	Label  string `json:"label"`
	Person string `json:"person"`
	consented
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"` // of the refresh token
	Access  []issued  `json:"access"`  // oldest first
	// Revoked is set by a node that revokes a grant of another.
	Revoked bool `json:"revoked,omitempty"`
}

// until returns when a token ends that is good for ttl from now on. The names of people of
// external issuers have a colon.
func (g sharedGrant) until(now time.Time, ttl time.Duration) time.Time {
	end := now.Add(ttl)
	if last := g.Created.Add(issuerTTL); strings.Contains(g.Person, ":") && last.Before(end) {
		return last
	}
	return end
}

// check returns what is wrong with a grant from the file or from another node.
func (g sharedGrant) check() error {
	invalid := errors.New("invalid record of a grant")
	if !g.Scopes.Limits() || g.Person == "" || len(g.Access) > maxAccess || len(g.Devices) > maxDevices { // no scopes would permit everything
		return invalid
	}
	for _, text := range []string{g.Node, g.Label, g.Person} {
		if ferrule.OneLine(ferrule.Clean(text, maxWho), maxWho) != text {
			return invalid
		}
	}
	times := []time.Time{g.Created, g.Expires}
	for _, one := range g.Access {
		if !one.Scopes.Limits() || !g.Scopes.Has(one.Scopes) {
			return invalid
		}
		times = append(times, one.Expires)
	}
	for _, at := range times {
		if at.Year() < 1 || at.Year() > 9999 {
			return invalid
		}
	}
	if g.Device != "" {
		return ferrule.CheckID(g.Device)
	}
	if g.Devices == "" {
		return nil
	}
	_, err := ferrule.CheckDevicePatterns(strings.Split(g.Devices, ","))
	return err
}

// maxWho is the longest name of a person, a program or a node, in characters.
const maxWho = 300

// issued is an access token.
type issued struct {
	Hash    hash           `json:"hash"`
	Expires time.Time      `json:"expires"`
	Scopes  ferrule.Scopes `json:"scopes"`
}

// storedGrant is a grant in the file.
type storedGrant struct {
	sharedGrant
	Code    hash       `json:"code"`
	Refresh hash       `json:"refresh"`          // the current one
	Recent  []rotation `json:"recent,omitempty"` // oldest first
	Past    []short    `json:"past,omitempty"`   // oldest first
	Used    time.Time  `json:"used,omitzero"`
	From    string     `json:"from,omitempty"`
}

// rotation is the replacement of a refresh token. The tokens that replaced it are derived
// from it and from the salt, so that they can be returned again though only their hashes
// are stored.
type rotation struct {
	Hash hash      `json:"hash"`
	Salt []byte    `json:"salt"`
	Time time.Time `json:"time"`
}

func (r rotation) derive(token, prefix string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(prefix))
	mac.Write(r.Salt)
	return prefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// MarshalText implements encoding.TextMarshaler.
func (h hash) MarshalText() ([]byte, error) { return encodeText(h[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hash) UnmarshalText(text []byte) error { return decodeText(h[:], text) }

// MarshalText implements encoding.TextMarshaler.
func (s short) MarshalText() ([]byte, error) { return encodeText(s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *short) UnmarshalText(text []byte) error { return decodeText(s[:], text) }

func encodeText(b []byte) []byte { return []byte(base64.RawURLEncoding.EncodeToString(b)) }

func decodeText(to, text []byte) error {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(b) != len(to) {
		return errors.New("malformed hash")
	}
	copy(to, b)
	return nil
}
