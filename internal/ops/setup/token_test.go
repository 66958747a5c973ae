package setup

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestToken writes a token into the config of every client that takes a URL, replaces it,
// and keeps headers of the user.
func TestToken(t *testing.T) {
	for _, c := range Clients() {
		s := Server{Name: "ferrule", URL: URL, Token: "fer_one"}
		if c.Accepts(s) != nil {
			continue
		}
		has := func(doc []byte, want map[string]string) {
			t.Helper()
			e, _, err := c.Entry(doc, "ferrule")
			if err != nil || e.URL != URL || len(e.Headers) != len(want) {
				t.Errorf("%s: %+v, %v", c.Name, e, err)
			}
			for key, value := range want {
				if e.Headers[key] != value {
					t.Errorf("%s: got %q", c.Name, e.Headers)
				}
			}
		}
		for _, before := range []Server{{}, web, command} {
			var doc []byte
			if before.Name != "" {
				doc = add(t, c, nil, before)
			}
			doc, err := c.Add(doc, s)
			if err != nil {
				t.Fatal(c.Name, err)
			}
			has(doc, map[string]string{"Authorization": "Bearer fer_one"})
		}
		doc, err := c.Add(nil, s)
		if err != nil {
			t.Fatal(c.Name, err)
		}
		own := strings.NewReplacer(`"Authorization":`, `"X-Room": "kitchen", "Authorization":`, `"Authorization" =`, `"X-Room" = "kitchen", "Authorization" =`).Replace(string(doc))
		s.Token = "fer_two"
		if doc, err = c.Add([]byte(own), s); err != nil {
			t.Fatal(c.Name, err)
		}
		has(doc, map[string]string{"Authorization": "Bearer fer_two", "X-Room": "kitchen"})
		if again, err := c.Add(doc, s); err != nil || string(again) != string(doc) {
			t.Errorf("%s: the second time it becomes %s, %v", c.Name, again, err)
		}
		if doc, err = c.Add(doc, command); err != nil || strings.Contains(string(doc), "fer_") {
			t.Errorf("%s: the token stays: %s, %v", c.Name, doc, err)
		}
	}
}

func TestPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	if err := Private(file); err != nil {
		t.Error(err)
	}
	write(t, file, "mine", 0o644)
	if err := Private(file); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != fs.FileMode(0o600) {
		t.Error(info.Mode(), err)
	}
}
