package tokens

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzParse checks that a record of another node never permits everything, and that what
// is accepted is the same on all nodes.
func FuzzParse(f *testing.F) {
	_, h := newSecret()
	data, err := json.Marshal(record{Name: "claude", Version: 1, Hash: h, Scopes: 1 << 5, Devices: "lamp-*"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("claude", data)
	f.Add("claude", []byte(`{"name":"claude","version":18446744073709551615,"revoked":true,"expires":"9999-12-31T23:59:59Z"}`))
	f.Add("claude", []byte(`{"name":"claude","hash":"`+strings.Repeat("f", 64)+`","scopes":"read","devices":"["}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		parseUse(data)
		r, err := parse(name, data)
		if err != nil {
			return
		}
		if !r.Revoked && (!r.Scopes.Limits() || r.Hash == hash{}) {
			t.Errorf("%s permits everything", data)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		same, err := parse(name, again)
		if err != nil || same.newer(r) || r.newer(same) {
			t.Errorf("%s becomes %s: %v", data, again, err)
		}
	})
}
