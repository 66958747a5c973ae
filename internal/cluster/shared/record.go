package shared

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
)

// record is one version of a record. Its node made it.
type record struct {
	Key string `json:"key"`
	// Version grows with every change of a key: it is the time in microseconds, or one
	// more than the version before, if the clock is behind that.
	Version uint64 `json:"version"`
	Node    string `json:"node"`
	Value   []byte `json:"value,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// maxVersion leaves room to count up.
const maxVersion = 1 << 62

// maxSigned is the maximum size of a signed record: the value is base64.
const maxSigned = sha256.Size + 2*MaxValue

// newer reports whether r replaces another record of its key. Every node decides alike.
func (r record) newer(other record) bool {
	return cmp.Or(cmp.Compare(r.Version, other.Version), cmp.Compare(r.Node, other.Node)) > 0
}

var errForged = errors.New("its signature is not that of a node")

// seal returns a message: a tag over its purpose and its content, and the content.
func seal(key []byte, purpose string, content any) ([]byte, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return append(tag(key, purpose, data), data...), nil
}

// open reads a message that a node of the tenant sealed.
func open(key []byte, purpose string, message []byte, content any) error {
	if len(message) < sha256.Size || len(message) > maxSigned {
		return errForged
	}
	data := message[sha256.Size:]
	if !hmac.Equal(tag(key, purpose, data), message[:sha256.Size]) {
		return errForged
	}
	return json.Unmarshal(data, content)
}

func tag(key []byte, purpose string, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(purpose + "\x00"))
	h.Write(data)
	return h.Sum(nil)
}

// sign returns the record as it is in the bucket.
func (r record) sign(key []byte) ([]byte, error) { return seal(key, "record", r) }

// parse reads a record from the bucket. It must be signed, and belong to its key.
func parse(key []byte, name string, data []byte) (r record, err error) {
	if err := open(key, "record", data, &r); err != nil {
		return record{}, err
	}
	switch {
	case checkKey(r.Key) != nil || name != "" && name != r.Key:
		return record{}, fmt.Errorf("it belongs to the key %.200q", r.Key)
	case r.Version > maxVersion || len(r.Value) > MaxValue:
		return record{}, errors.New("its version or its value is too large")
	case r.Deleted:
		r.Value = nil
	case r.Value == nil:
		r.Value = []byte{}
	}
	return r, nil
}
