package tokens

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Prefix begins every secret, so that programs that look for leaked secrets find it.
const Prefix = "fer_"

// secretLen is the length of a secret: 32 random bytes after the prefix.
var secretLen = len(Prefix) + base64.RawURLEncoding.EncodedLen(sha256.Size)

// newSecret returns a secret and its hash. Only the hash is kept.
func newSecret() (ferrule.Secret, hash) {
	var random [sha256.Size]byte
	rand.Read(random[:]) // it never fails
	secret := Prefix + base64.RawURLEncoding.EncodeToString(random[:])
	return ferrule.Secret(secret), sha256.Sum256([]byte(secret))
}

// hash is the SHA-256 of a secret. The zero value is that of none.
type hash [sha256.Size]byte

// MarshalText implements [encoding.TextMarshaler].
func (h hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *hash) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) {
		return errors.New("invalid hash of a token")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// record is a token as nodes store and share it. One that was revoked stays: a node that
// was off meanwhile must not bring it back, and the journal names whose secret is refused.
type record struct {
	Name string `json:"name"`
	// Version grows with each change. The newest record of a name counts.
	Version uint64         `json:"version"`
	Revoked bool           `json:"revoked,omitempty"`
	Hash    hash           `json:"hash,omitzero"`
	Scopes  ferrule.Scopes `json:"scopes,omitempty"`
	Devices string         `json:"devices,omitempty"`
	Created time.Time      `json:"created,omitzero"`
	// Lifetime is how long each secret is good for; zero for ever. Expires follows from it.
	Lifetime ferrule.Duration `json:"lifetime,omitempty"`
	Expires  time.Time        `json:"expires,omitzero"`
	// Previous is the secret before, which is good until Overlap.
	Previous hash      `json:"previous,omitzero"`
	Overlap  time.Time `json:"overlap,omitzero"`
}

// maxVersion is far in the future: a larger one could not be replaced.
const maxVersion = 1 << 62

// parse returns the record of a name.
func parse(name string, data []byte) (r record, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("invalid record of a token: %w", err)
	}
	return r, r.check(name)
}

func (r record) check(name string) error {
	if err := ferrule.CheckID(r.Name); err != nil {
		return err
	}
	for _, t := range []time.Time{r.Created, r.Expires, r.Overlap} {
		if t.Year() < 1 || t.Year() > 9999 {
			return errors.New("invalid time of a token")
		}
	}
	switch {
	case r.Name != name || r.Version > maxVersion:
		return errors.New("invalid record of a token")
	case r.Revoked:
		return nil
	case r.Hash == hash{} || !r.Scopes.Limits(): // which would permit everything
		return errors.New("invalid record of a token")
	case r.Devices == "":
		return nil
	}
	_, err := ferrule.CheckDevicePatterns(strings.Split(r.Devices, ","))
	return err
}

// newer reports whether the record replaces another one of its name. All nodes get the
// same: of two equal versions, one that is revoked counts.
func (r record) newer(than record) bool {
	revoked := func(r record) int {
		if r.Revoked {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(r.Version, than.Version), cmp.Compare(revoked(r), revoked(than)), strings.Compare(string(r.Hash[:]), string(than.Hash[:]))) > 0
}

// maxAhead is how far the clocks of nodes may differ.
const maxAhead = 24 * time.Hour

// ahead reports whether the record lets somebody in and has a version that no honest clock
// could give: it could not be replaced, so not be revoked. A revocation always counts.
func (r record) ahead(now time.Time) bool {
	return !r.Revoked && r.Version > uint64(now.Add(maxAhead).UnixMicro())
}

// forgotten reports whether the token was revoked so long ago that its record goes. A
// version is the time of a change.
func (r record) forgotten(now time.Time) bool {
	return r.Revoked && now.Sub(time.UnixMicro(int64(r.Version))) > revokedAge
}

// next returns the version after this one.
func (r record) next() uint64 { return max(uint64(time.Now().UnixMicro()), r.Version+1) }

// who returns the caller that has the token.
func (r record) who() ferrule.Principal {
	return ferrule.Principal{Role: ferrule.Agent, Name: r.Name, Auth: ferrule.AuthToken, Scopes: r.Scopes, Devices: r.Devices, TokenID: r.id()}
}

// id returns the ID of the token. A revoked token and the next one of its name differ in it.
func (r record) id() string { return tokenID(r.Created) }

func tokenID(created time.Time) string { return strconv.FormatInt(created.UnixMicro(), 36) }

// use is when a token was last used, and from where.
type use struct {
	Time time.Time `json:"time"`
	From string    `json:"from"`
}

// parseUse returns the use in a record. Its address is safe to show.
func parseUse(data []byte) (u use, err error) {
	if err := json.Unmarshal(data, &u); err != nil || u.Time.Year() < 1 || u.Time.Year() > 9999 {
		return use{}, errors.New("invalid use of a token")
	}
	u.From = ferrule.Clean(u.From, ferrule.MaxWord)
	return u, nil
}
