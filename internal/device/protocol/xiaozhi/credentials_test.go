package xiaozhi

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

func openLedger(t *testing.T, dir string) *Ledger {
	t.Helper()
	l, err := OpenLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (c *Credentials) mustIssue(t *testing.T, address, client string) Credential {
	t.Helper()
	got, err := c.Issue(t.Context(), Visitor{Address: address, ClientID: client})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (c *Credentials) mustCheck(t *testing.T, token string) Acquaintance {
	t.Helper()
	got, err := c.Check(token)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const toyAddress = "98:a3:16:f9:d9:34"

// TestCredentials: a device has a credential of its own, the same each time and
// after a restart; once it has connected, another Client-Id does not get it.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	c := openLedger(t, dir)
	one, two := c.mustIssue(t, toyAddress, "uuid-1"), c.mustIssue(t, "98:a3:16:f9:d9:35", "uuid-2")
	if one.Token == two.Token || one.ClientID != "GID_ferrule@@@98_a3_16_f9_d9_34@@@uuid-1" || one.Username != toyAddress {
		t.Errorf("%+v and %+v", one, two)
	}
	other := c.mustIssue(t, toyAddress, "uuid-of-another") // nobody has connected yet
	if whose := c.mustCheck(t, one.Password); whose != (Acquaintance{Address: toyAddress, ClientID: "uuid-1"}) {
		t.Errorf("got %+v", whose)
	}
	again := openLedger(t, dir)
	if got := again.mustIssue(t, toyAddress, "uuid-1"); got != one {
		t.Errorf("after a restart %+v, before it %+v", got, one)
	}
	again.mustCheck(t, one.Token)
	if _, err := again.Check(other.Token); !errors.Is(err, ErrStranger) {
		t.Errorf("who came second: %v", err)
	}
	if _, err := again.Issue(t.Context(), Visitor{Address: toyAddress, ClientID: "uuid-of-another"}); !errors.Is(err, ErrStranger) {
		t.Errorf("got %v", err)
	}
	_, mac, _ := strings.Cut(one.Token, ".")
	name, _, _ := strings.Cut(two.Token, ".")
	for _, token := range []string{"", ".", "a.b", "%.x", name + "." + mac, one.Token + "x", strings.ToUpper(one.Token)} {
		if whose, err := again.Check(token); err == nil {
			t.Errorf("%q is the token of %+v", token, whose)
		}
	}
	if _, err := openLedger(t, t.TempDir()).Check(one.Token); err == nil {
		t.Error("a token of another key was taken")
	}
	if _, err := NewCredentials([]byte("short"), nil, nil); err == nil {
		t.Error("a short key was taken")
	}
}

// TestCredentialsEnd: what is forgotten begins anew, and what was given out before
// is void, after a restart too.
func TestCredentialsEnd(t *testing.T) {
	dir := t.TempDir()
	c := openLedger(t, dir)
	first := c.mustIssue(t, toyAddress, "uuid")
	c.mustCheck(t, first.Token)
	if void, err := c.Forget(toyAddress); !void || err != nil {
		t.Fatal(void, err)
	}
	for _, address := range []string{toyAddress, "98:a3:16:f9:d9:99"} {
		if void, err := c.Forget(address); void || err != nil {
			t.Errorf("forgetting %s, who is not known: %v, %v", address, void, err)
		}
	}
	for _, c := range []*Ledger{c, openLedger(t, dir)} {
		if _, err := c.Check(first.Token); err == nil {
			t.Error("a forgotten token was taken")
		}
	}
	second := c.mustIssue(t, toyAddress, "new-uuid")
	if third := c.mustIssue(t, toyAddress, "new-uuid"); second.Token == first.Token || third != second {
		t.Errorf("%+v, %+v, %+v", first, second, third)
	}
	c.mustCheck(t, second.Token)
}

// TestCredentialsUnkept: what cannot be written does not count.
func TestCredentialsUnkept(t *testing.T) {
	var trouble error
	c, err := NewCredentials(bytes.Repeat([]byte("k"), minKey), nil, func(Acquaintance) error { return trouble })
	if err != nil {
		t.Fatal(err)
	}
	known := c.mustIssue(t, toyAddress, "uuid")
	c.mustCheck(t, known.Token)
	trouble = errors.New("disk full")
	if _, err := c.Check(c.mustIssue(t, "98:a3:16:f9:d9:35", "u").Token); !errors.Is(err, trouble) {
		t.Errorf("a new device: %v", err)
	}
	if _, err := c.Forget(toyAddress); !errors.Is(err, trouble) {
		t.Errorf("forgetting: %v", err)
	}
	c.mustCheck(t, known.Token)
}

// TestLedger: the key is made once and for its owner alone, and a line that was cut
// off costs no other.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	c := openLedger(t, dir)
	first := c.mustIssue(t, toyAddress, "uuid")
	c.mustCheck(t, first.Token)
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || runtime.GOOS != "windows" && info.Mode() != fs.FileMode(0o600) {
		t.Errorf("%v, %v", info, err)
	}
	path := filepath.Join(dir, ledgerFile)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(`{"address":"98:a3`)
	file.Close()
	again := openLedger(t, dir)
	second := again.mustIssue(t, "98:a3:16:f9:d9:35", "u")
	again.mustCheck(t, second.Token)
	if all, _ := os.ReadFile(path); len(parseLedger(all)) != 2 {
		t.Errorf("%s", all)
	}
}

// TestLedgerKey: a key that was cut off is no key, and whoever reads that is told what to
// do; one that is made leaves nothing else behind.
func TestLedgerKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(dir); err == nil || !strings.Contains(err.Error(), "remove") {
		t.Errorf("got %v", err)
	}
	os.Remove(filepath.Join(dir, keyFile))
	openLedger(t, dir)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

// FuzzLedger reads files of any content.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"address":"98:a3:16:f9:d9:34","client_id":"u","issue":3}` + "\n\n{\"add"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range parseLedger(data) {
			if a.Address == "" {
				t.Errorf("got %+v", a)
			}
		}
	})
}

// TestActivation: a device that is not known shows a code of its own, the same for
// as long as it asks, and its owner lets it in by that.
func TestActivation(t *testing.T) {
	c := openLedger(t, t.TempDir())
	a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
	toy, other := Visitor{Address: toyAddress, ClientID: "u"}, Visitor{Address: "98:a3:16:f9:d9:35", ClientID: "v"}
	code := a.Admit(t.Context(), toy)
	if again, others := a.Admit(t.Context(), toy), a.Admit(t.Context(), other); len(code) != 6 || again != code || others == code {
		t.Errorf("codes %q, %q and %q", code, again, others)
	}
	if _, ok, _ := a.LetIn("none"); ok {
		t.Error("a code that nobody shows was taken")
	}
	if address, ok, err := a.LetIn(code); !ok || err != nil || address != toyAddress {
		t.Fatalf("%q, %v, %v", address, ok, err)
	}
	if code := a.Admit(t.Context(), toy); code != "" {
		t.Errorf("it shows %q after it was let in", code)
	}
	if whose := c.mustCheck(t, c.mustIssue(t, toyAddress, "u").Token); !whose.LetIn {
		t.Errorf("got %+v", whose)
	}
	if _, ok, _ := a.LetIn(code); ok {
		t.Error("a code was taken twice")
	}
	thief := Visitor{Address: toyAddress, ClientID: "thief"}
	if code := a.Admit(t.Context(), thief); code == "" {
		t.Error("somebody else with its address was let in")
	}
}

// TestActivationAnew: a device whose flash was erased is let in by its new code, and
// what it had before is void.
func TestActivationAnew(t *testing.T) {
	c := openLedger(t, t.TempDir())
	a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
	before := c.mustIssue(t, toyAddress, "before")
	c.mustCheck(t, before.Token)
	if _, ok, err := a.LetIn(a.Admit(t.Context(), Visitor{Address: toyAddress, ClientID: "after"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := c.Check(before.Token); err == nil {
		t.Error("the credential of before was taken")
	}
	c.mustCheck(t, c.mustIssue(t, toyAddress, "after").Token)
}

// TestActivationRival: somebody else who asks with a device's address does not change the
// code that the device shows, and is not let in by it.
func TestActivationRival(t *testing.T) {
	c := openLedger(t, t.TempDir())
	a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
	toy, rival := Visitor{Address: toyAddress, ClientID: "u"}, Visitor{Address: toyAddress, ClientID: "rival"}
	code, other := a.Admit(t.Context(), toy), a.Admit(t.Context(), rival)
	if again := a.Admit(t.Context(), toy); again != code || other == code {
		t.Errorf("it shows %q, and was told %q; the rival shows %q", code, again, other)
	}
	if _, ok, err := a.LetIn(code); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if !c.Knows(toy) || c.Knows(rival) {
		t.Error("another was let in")
	}
}

// TestActivationBounds: codes end, and a flood of devices that nobody has costs
// little.
func TestActivationBounds(t *testing.T) {
	c := openLedger(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		a := NewActivation(c.Credentials, slog.New(slog.DiscardHandler))
		code := a.Admit(t.Context(), Visitor{Address: toyAddress, ClientID: "u"})
		time.Sleep(codeTime + time.Second)
		if _, ok, _ := a.LetIn(code); ok {
			t.Error("an old code was taken")
		}
		for i := range 3 * maxWaiting {
			a.Admit(t.Context(), Visitor{Address: toyAddress + string(rune('a'+i)), ClientID: "u"})
		}
		if len(a.waiting) > maxWaiting {
			t.Errorf("%d devices wait", len(a.waiting))
		}
	})
}
