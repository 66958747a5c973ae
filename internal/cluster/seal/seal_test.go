package seal

import (
	"bytes"
	"testing"
)

func newKey(t testing.TB, secret, use, tenant string) Key {
	t.Helper()
	key, err := New([]byte(secret), use, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestOpen checks that a message is valid with its key and in its context only.
func TestOpen(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	key := newKey(t, secret, "journal", "acme")
	message := key.Seal("a", []byte("text"))
	if data, err := key.Open("a", message); err != nil || string(data) != "text" {
		t.Errorf("got %q, %v", data, err)
	}
	for name, other := range map[string]Key{
		"another secret": newKey(t, "f"+secret[1:], "journal", "acme"), "another use": newKey(t, secret, "shared", "acme"),
		"another tenant": newKey(t, secret, "journal", "globex"), "no key": nil,
	} {
		if _, err := other.Open("a", message); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	for name, forged := range map[string][]byte{
		"nothing": nil, "a byte": {1}, "no tag": []byte("text"), "no data": message[:Size], "more data": append(bytes.Clone(message), 'x'), "another tag": append([]byte{message[0] ^ 1}, message[1:]...),
	} {
		if _, err := key.Open("a", forged); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	if _, err := key.Open("b", message); err == nil {
		t.Error("opened in another context")
	}
}

// FuzzOpen checks that a message is opened only if it was sealed.
func FuzzOpen(f *testing.F) {
	key := newKey(f, "0123456789abcdef0123456789abcdef", "journal", "acme")
	f.Add("a", []byte("text"), false)
	f.Add("a", key.Seal("a", []byte("text")), false)
	f.Add("", []byte{}, true)
	f.Fuzz(func(t *testing.T, context string, message []byte, sealed bool) {
		if sealed {
			message = key.Seal(context, message)
		}
		data, err := key.Open(context, message)
		switch {
		case sealed && err != nil:
			t.Error(err)
		case err == nil && !bytes.Equal(message, key.Seal(context, data)):
			t.Errorf("opened %x", message)
		}
	})
}
