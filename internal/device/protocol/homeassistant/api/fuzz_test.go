package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// FuzzMessages: a message is the same alone and in an array, and has no member twice.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"id":2,"type":"result","success":false,"error":{"code":"not_found","message":"…"}}`,
		`[{"id":5,"type":"event","event":{"a":{"light.a":{"s":"on","a":{"brightness":128},"c":"01J","lc":1743500000.1}}}},{"id":6,"type":"pong"}]`,
		`{"id":5,"type":"event","event":{"c":{"light.a":{"+":{"s":"off","s":"on"},"-":{"a":["brightness"]}}}}}`,
		`{"id":9223372036854775808}`, `{"id":1,"ID":2,"Id":3}`, `[]`, `[[]]`, `null`, ` `, "{\"type\":\"\xff\"}", `{"error":{}}`, `[null,{"result":1e999}]`,
		`{"id":1,"result":12345678901234567890,"result":12345678901234567891}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(data []byte) (all []string, err error) {
			err = decode(data, func(m message) {
				for _, part := range []json.RawMessage{m.Event, m.Result} {
					if part != nil && strictjson.Check(part) != nil {
						t.Errorf("not strict: %q", part)
					}
				}
				text, err := json.Marshal(m)
				if err != nil {
					t.Error(err)
				}
				if err := m.failure(); err != nil && len(err.Error()) > 4096 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				all = append(all, string(text))
			})
			return all, err
		}
		one, err := read(bytes.Clone(data))
		if err != nil || bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
			return
		}
		array := append(append([]byte("["), data...), ',')
		both, err := read(append(append(array, data...), ']'))
		if err != nil || strings.Join(both, "") != one[0]+one[0] {
			t.Errorf("alone %q, in an array %q, %v", one, both, err)
		}
	})
}

// FuzzEndpoint: what is accepted is a WebSocket of the same host, without credentials.
func FuzzEndpoint(f *testing.F) {
	f.Add("http://home:8123")
	f.Add("https://[::1]/x/websocket")
	f.Add("http://a:b@home/?x#y")
	f.Fuzz(func(t *testing.T, address string) {
		got, err := Endpoint(address)
		if err != nil {
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if !strings.HasPrefix(got, "ws://") && !strings.HasPrefix(got, "wss://") || !strings.HasSuffix(got, "/websocket") {
			t.Errorf("%q: %q", address, got)
		}
		if again, err := Endpoint(got); err != nil || again != got {
			t.Errorf("%q: %q, then %q, %v", address, got, again, err)
		}
	})
}
