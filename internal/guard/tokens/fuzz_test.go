package tokens

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// TestAhead checks that a token from the far future, which nobody could revoke, is not
// accepted, and that a revocation always is.
func TestAhead(t *testing.T) {
	s, err := Open(Parts{File: filepath.Join(t.TempDir(), "tokens"), Taken: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, h := newSecret()
	now := uint64(time.Now().UnixMicro())
	const hour = uint64(time.Hour / time.Microsecond)
	for name, test := range map[string]struct {
		record
		want bool
	}{
		"now":      {record{Version: now, Hash: h, Scopes: 1 << 5}, true},
		"in-hours": {record{Version: now + 23*hour, Hash: h, Scopes: 1 << 5}, true},
		"in-days":  {record{Version: now + 25*hour, Hash: h, Scopes: 1 << 5}, false},
		"never":    {record{Version: maxVersion, Hash: h, Scopes: 1 << 5}, false},
		"revoked":  {record{Version: now + 25*hour, Revoked: true}, true},
	} {
		test.Name = name
		data, err := json.Marshal(test.record)
		if err != nil {
			t.Fatal(err)
		}
		s.hear(name, data)
		if _, got := s.byName[name]; got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
