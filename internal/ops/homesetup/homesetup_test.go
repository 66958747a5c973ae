package homesetup

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/homeassistant"
)

// TestHomeSetup guides through the token of a real Home Assistant.
func TestHomeSetup(t *testing.T) {
	home := homeassistant.Start(t, homeassistant.Options{})
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	asked := ""
	answer := func(token string) Parts {
		return Parts{Home: config.Home{URL: home.URL}, Ask: func(_ context.Context, text string) string {
			asked = text
			return token + "\n"
		}}
	}
	if _, err := Run(t.Context(), answer("wrong.token.here")); ferrule.AsError(err).Code != ferrule.Denied || !strings.HasPrefix(err.Error(), "nothing was saved: ") || strings.Contains(err.Error(), "wrong.token") {
		t.Errorf("got %v", err)
	} else if hint := ferrule.AsError(err).Hint; !strings.Contains(hint, home.URL+"/profile/security") || strings.Contains(err.Error(), "token file") {
		t.Errorf("got %v with the hint %q", err, hint)
	}
	if _, err := Run(t.Context(), answer("")); ferrule.AsError(err).Code != ferrule.Cancelled {
		t.Errorf("got %v", err)
	}
	if files := filesBelow(t, dir); len(files) > 0 {
		t.Errorf("got %v", files)
	}
	got, err := Run(t.Context(), answer(home.Token))
	if err != nil {
		t.Fatal(err)
	}
	if got.URL != home.URL || got.Name != "home" || got.User != "Owner" || !got.Admin || got.Devices < 10 || got.Entities < got.Devices || got.Hidden < 10 || got.Note != "" {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(asked, home.URL+"/profile/security") {
		t.Errorf("asked %q", asked)
	}
	info, err := os.Stat(got.File)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 || len(filesBelow(t, dir)) != 1 {
		t.Errorf("%v, %v, %v", info, err, filesBelow(t, dir))
	}
	cfg := config.Config{Devices: config.Devices{HomeAssistant: []config.Home{{URL: home.URL}}}}
	if token, err := cfg.Homes()[0].ReadToken(); err != nil || token != home.Token {
		t.Errorf("the gateway reads %q, %v", token, err)
	}
	text := got.String()
	for _, want := range []string{"accepts the token of Owner.", "Warning: Owner is an administrator", got.File, "ferrule up --homeassistant home=" + home.URL, "ferrule adopt DEVICE..."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Contains(text, home.Token) {
		t.Error("it shows the token")
	}
	// The lines of the report are a configuration.
	entry := text[strings.Index(text, "devices:\n"):strings.Index(text, "\nOr run")]
	if c, err := config.Parse([]byte(entry)); err != nil || c.Homes()[0].URL != home.URL {
		t.Errorf("%s\n%v", entry, err)
	}
}

// filesBelow returns the files below a directory.
func filesBelow(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestNotAsked checks that nobody is asked for a token if no Home Assistant is there.
func TestNotAsked(t *testing.T) {
	for url, want := range map[string]string{
		"http://127.0.0.1:1":       "nothing listens at 127.0.0.1:1",
		"homeassistant.local:8123": "url: must be http://",
		"http://me:hunter2@h":      "url: must not contain a user or a password",
	} {
		_, err := Run(t.Context(), Parts{Home: config.Home{URL: url}, Ask: func(context.Context, string) string {
			t.Errorf("%s: asked", url)
			return ""
		}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", url, err)
		}
	}
}
