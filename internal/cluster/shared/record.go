package shared

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/cluster/seal"
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
const maxSigned = seal.Size + 2*MaxValue

// newer reports whether r replaces another record of its key. Every node decides alike.
func (r record) newer(other record) bool {
	return cmp.Or(cmp.Compare(r.Version, other.Version), cmp.Compare(r.Node, other.Node)) > 0
}

// sealJSON returns a message with JSON content. It is valid for one purpose.
func sealJSON(key seal.Key, purpose string, content any) ([]byte, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return key.Seal(purpose, data), nil
}

// openJSON reads a message that a node of the tenant sealed.
func openJSON(key seal.Key, purpose string, message []byte, content any) error {
	if len(message) > maxSigned {
		return seal.ErrForged
	}
	data, err := key.Open(purpose, message)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, content)
}

// sign returns the record as it is in the bucket.
func (r record) sign(key seal.Key) ([]byte, error) { return sealJSON(key, "record", r) }

// parse reads a record from the bucket. It must be signed, and belong to its key.
func parse(key seal.Key, name string, data []byte) (r record, err error) {
	if err := openJSON(key, "record", data, &r); err != nil {
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
