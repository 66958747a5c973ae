package provision

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func openStore(t *testing.T, dir string) *CredentialStore {
	t.Helper()
	s, err := OpenCredentialStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (c *Credentials) mustIssue(t *testing.T, address, client string) Credential {
	t.Helper()
	got, err := c.Issue(t.Context(), Identity{Address: address, ClientID: client})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (c *Credentials) mustCheck(t *testing.T, token string) KnownDevice {
	t.Helper()
	got, err := c.Check(token)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const toyAddress = "98:a3:16:f9:d9:34"

// TestCredentials: a device has its own credential, which stays the same after a
// restart. Once it has connected, another Client-Id does not get it.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	c := openStore(t, dir)
	one, two := c.mustIssue(t, toyAddress, "uuid-1"), c.mustIssue(t, "98:a3:16:f9:d9:35", "uuid-2")
	if one.Token == two.Token || one.ClientID != "GID_ferrule@@@98_a3_16_f9_d9_34@@@uuid-1" || one.Username != toyAddress {
		t.Errorf("%+v and %+v", one, two)
	}
	other := c.mustIssue(t, toyAddress, "uuid-of-another") // nobody has connected yet
	if device := c.mustCheck(t, one.Password); device != (KnownDevice{Address: toyAddress, ClientID: "uuid-1"}) {
		t.Errorf("got %+v", device)
	}
	again := openStore(t, dir)
	if got := again.mustIssue(t, toyAddress, "uuid-1"); got != one {
		t.Errorf("after a restart %+v, before it %+v", got, one)
	}
	again.mustCheck(t, one.Token)
	if _, err := again.Check(other.Token); !errors.Is(err, ErrOtherClient) {
		t.Errorf("the second client: %v", err)
	}
	if _, err := again.Issue(t.Context(), Identity{Address: toyAddress, ClientID: "uuid-of-another"}); !errors.Is(err, ErrOtherClient) {
		t.Errorf("got %v", err)
	}
	_, mac, _ := strings.Cut(one.Token, ".")
	name, _, _ := strings.Cut(two.Token, ".")
	for _, token := range []string{"", ".", "a.b", "%.x", name + "." + mac, one.Token + "x", strings.ToUpper(one.Token)} {
		if device, err := again.Check(token); err == nil {
			t.Errorf("token %q was accepted for %+v", token, device)
		}
	}
	if _, err := openStore(t, t.TempDir()).Check(one.Token); err == nil {
		t.Error("a token of another key was accepted")
	}
	if _, err := NewCredentials([]byte("short"), nil, nil); err == nil {
		t.Error("a short key was accepted")
	}
}

// TestCredentialsEnd: the credential of a forgotten device is void, after a restart too,
// and the device can get a new one.
func TestCredentialsEnd(t *testing.T) {
	dir := t.TempDir()
	c := openStore(t, dir)
	first := c.mustIssue(t, toyAddress, "uuid")
	c.mustCheck(t, first.Token)
	if void, err := c.Forget(toyAddress); !void || err != nil {
		t.Fatal(void, err)
	}
	for _, address := range []string{toyAddress, "98:a3:16:f9:d9:99"} {
		if void, err := c.Forget(address); void || err != nil {
			t.Errorf("forgetting the unknown %s: %v, %v", address, void, err)
		}
	}
	for _, c := range []*CredentialStore{c, openStore(t, dir)} {
		if _, err := c.Check(first.Token); err == nil {
			t.Error("a forgotten token was accepted")
		}
	}
	second := c.mustIssue(t, toyAddress, "new-uuid")
	if third := c.mustIssue(t, toyAddress, "new-uuid"); second.Token == first.Token || third != second {
		t.Errorf("%+v, %+v, %+v", first, second, third)
	}
	c.mustCheck(t, second.Token)
}

// TestCredentialsUnsaved: a change that cannot be saved has no effect.
func TestCredentialsUnsaved(t *testing.T) {
	var failure error
	c, err := NewCredentials(bytes.Repeat([]byte("k"), minKey), nil, func(KnownDevice) error { return failure })
	if err != nil {
		t.Fatal(err)
	}
	known := c.mustIssue(t, toyAddress, "uuid")
	c.mustCheck(t, known.Token)
	failure = errors.New("disk full")
	if _, err := c.Check(c.mustIssue(t, "98:a3:16:f9:d9:35", "u").Token); !errors.Is(err, failure) {
		t.Errorf("a new device: %v", err)
	}
	if _, err := c.Forget(toyAddress); !errors.Is(err, failure) {
		t.Errorf("forgetting: %v", err)
	}
	c.mustCheck(t, known.Token)
}

// TestStore: the key is created once, readable by its owner only. A line that was cut off
// does not affect the others.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	c := openStore(t, dir)
	first := c.mustIssue(t, toyAddress, "uuid")
	c.mustCheck(t, first.Token)
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || runtime.GOOS != "windows" && info.Mode() != fs.FileMode(0o600) {
		t.Errorf("%v, %v", info, err)
	}
	path := filepath.Join(dir, storeFile)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(`{"address":"98:a3`)
	file.Close()
	again := openStore(t, dir)
	second := again.mustIssue(t, "98:a3:16:f9:d9:35", "u")
	again.mustCheck(t, second.Token)
	if all, _ := os.ReadFile(path); len(parseStore(all)) != 2 {
		t.Errorf("%s", all)
	}
}

// TestStoreKey: the error for a key that was cut off says what to do. Creating a key
// leaves no other file.
func TestStoreKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCredentialStore(dir); err == nil || !strings.Contains(err.Error(), "Remove") {
		t.Errorf("got %v", err)
	}
	os.Remove(filepath.Join(dir, keyFile))
	openStore(t, dir)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

// FuzzStore parses any file.
func FuzzStore(f *testing.F) {
	f.Add([]byte(`{"address":"98:a3:16:f9:d9:34","client_id":"u","issue":3}` + "\n\n{\"add"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range parseStore(data) {
			if a.Address == "" {
				t.Errorf("got %+v", a)
			}
		}
	})
}

// TestActivation: an unknown device keeps showing its own code, and is admitted by it.
func TestActivation(t *testing.T) {
	c := openStore(t, t.TempDir())
	a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
	toy, other := Identity{Address: toyAddress, ClientID: "u"}, Identity{Address: "98:a3:16:f9:d9:35", ClientID: "v"}
	code := a.Code(t.Context(), toy)
	if again, others := a.Code(t.Context(), toy), a.Code(t.Context(), other); len(code) != 6 || again != code || others == code {
		t.Errorf("codes %q, %q and %q", code, again, others)
	}
	if _, ok, _ := a.Admit("none"); ok {
		t.Error("an unknown code was accepted")
	}
	if address, ok, err := a.Admit(code); !ok || err != nil || address != toyAddress {
		t.Fatalf("%q, %v, %v", address, ok, err)
	}
	if code := a.Code(t.Context(), toy); code != "" {
		t.Errorf("it shows %q after it was admitted", code)
	}
	if device := c.mustCheck(t, c.mustIssue(t, toyAddress, "u").Token); !device.Admitted {
		t.Errorf("got %+v", device)
	}
	if _, ok, _ := a.Admit(code); ok {
		t.Error("a code was accepted twice")
	}
	thief := Identity{Address: toyAddress, ClientID: "thief"}
	if code := a.Code(t.Context(), thief); code == "" {
		t.Error("another device with its address was admitted")
	}
}

// TestActivationAfterErase: a device whose flash was erased is admitted by its new code,
// and its old credential is void.
func TestActivationAfterErase(t *testing.T) {
	c := openStore(t, t.TempDir())
	a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
	before := c.mustIssue(t, toyAddress, "before")
	c.mustCheck(t, before.Token)
	if _, ok, err := a.Admit(a.Code(t.Context(), Identity{Address: toyAddress, ClientID: "after"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := c.Check(before.Token); err == nil {
		t.Error("the old credential was accepted")
	}
	c.mustCheck(t, c.mustIssue(t, toyAddress, "after").Token)
}

// TestActivationRival: another client with the same address does not change the code of
// the device, and is not admitted by it.
func TestActivationRival(t *testing.T) {
	c := openStore(t, t.TempDir())
	a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
	toy, rival := Identity{Address: toyAddress, ClientID: "u"}, Identity{Address: toyAddress, ClientID: "rival"}
	code, other := a.Code(t.Context(), toy), a.Code(t.Context(), rival)
	if again := a.Code(t.Context(), toy); again != code || other == code {
		t.Errorf("it shows %q, then %q; the rival shows %q", code, again, other)
	}
	if _, ok, err := a.Admit(code); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if !c.Known(toy) || c.Known(rival) {
		t.Error("the rival was admitted")
	}
}

// TestActivationBounds: codes expire, and a flood of requests takes little memory.
func TestActivationBounds(t *testing.T) {
	c := openStore(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
		code := a.Code(t.Context(), Identity{Address: toyAddress, ClientID: "u"})
		time.Sleep(codeTime + time.Second)
		if _, ok, _ := a.Admit(code); ok {
			t.Error("an expired code was accepted")
		}
		for i := range 3 * maxWaiting {
			a.Code(t.Context(), Identity{Address: toyAddress + string(rune('a'+i)), ClientID: "u"})
		}
		if len(a.waiting) > maxWaiting {
			t.Errorf("%d devices wait", len(a.waiting))
		}
	})
}
