package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestPrograms: paths of programs are relative to the file, tokens are read from files, and
// secrets are not shown.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ferrule.yaml")
	write(t, path, "plugins: [{name: weather, exec: [./bin/weather, -v], env: {KEY: "+secret+"}}]\n"+
		"hooks:\n  - {name: guard, exec: [hooks/guard], when: [before, after], on_error: allow}\n  - {name: web, url: 'https://h/x', file: hook.token, timeout: 2s}\n")
	write(t, filepath.Join(dir, "hook.token"), secret+"\n")
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	plugin := c.PluginConfig(nil).Plugins[0]
	if got := plugin.Command; got.Args[0] != filepath.Join(dir, "bin", "weather") || got.Args[1] != "-v" || len(got.Env) != 1 || got.Env[0] != "KEY="+secret {
		t.Errorf("got %d arguments, %q", len(got.Args), got.Args)
	}
	hooks, err := c.HookConfigs()
	if err != nil {
		t.Fatal(err)
	}
	if g := hooks[0]; g.Command.Args[0] != filepath.Join(dir, "hooks", "guard") || !g.Before || !g.After || !g.AllowOnError {
		t.Errorf("got %+v", g)
	}
	if w := hooks[1]; w.Token.Reveal() != secret || !w.Before || w.After || w.AllowOnError || w.Timeout.Seconds() != 2 || w.Parallel != 8 {
		t.Errorf("got %+v", w)
	}
	if text := fmt.Sprintf("%+v %#v", c, c.Plugins); strings.Contains(text, secret) {
		t.Errorf("shows the secret: %s", text)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(path, 0o602); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "everybody can change it") {
		t.Errorf("got %v", err)
	}
}

// TestProgramMistakes: what is wrong about plugins and hooks is named, without secrets.
func TestProgramMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"plugins: [{exec: [/bin/true]}]":                                                       "must have a name",
		"plugins: [{name: a, exec: [python3, x.py]}]":                                          "must begin with the path",
		"plugins: [{name: a}]":                                                                 "must have the path of a program",
		"plugins: [{name: a, exec: [/bin/true], env: {'': SECRET}}]":                           "must have a name",
		"plugins: [{name: gateway, exec: [/bin/true]}]":                                        "reserved",
		"plugins: [{name: a, exec: [/bin/true]}]\ndevices: {tcp: [{address: 'h:1', name: a}]}": "duplicate name",
		"hooks: [{name: a}]":                                                                   "either url or exec",
		"hooks: [{name: a, url: 'http://h/x', token: SECRET}]":                                 "must begin with https",
		"hooks: [{name: a, url: 'https://me:SECRET@h/x'}]":                                     "must not contain a password",
		"hooks: [{name: a, url: 'https://h', token: SECRET, file: x}]":                         "either token or file",
		"hooks: [{name: a, exec: [/bin/true], file: x}]":                                       "needs url",
		"hooks: [{name: a, exec: [/bin/true], when: [later]}]":                                 "must be before, after or both",
		"hooks: [{name: a, exec: [/bin/true], on_error: ignore}]":                              "must be refuse or allow",
		"hooks: [{name: a, exec: [/bin/true], timeout: 1h}]":                                   "timeout",
		"hooks: [{name: a, exec: [/bin/true], effects: [write]}]":                              "effects",
	} {
		_, err := config.Parse([]byte(strings.ReplaceAll(text, "SECRET", secret)))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
