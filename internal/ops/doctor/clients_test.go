package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/setup"
)

// answer is the answer of an MCP server to initialize.
const answer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"ferrule","version":"1"}}}`

func TestClients(t *testing.T) {
	home := t.TempDir()
	d := &Doctor{place: func() (setup.Place, error) {
		return setup.Place{OS: "linux", Home: home, Getenv: func(string) string { return "" }}, nil
	}}
	found := func() string {
		var all []string
		for _, f := range d.clients(t.Context()) {
			all = append(all, fmt.Sprintf("%s: %s", f.State, f.Found))
		}
		return strings.Join(all, "\n")
	}
	if got := found(); got != "note: no known agent program is installed" {
		t.Errorf("got %s", got)
	}
	program := filepath.Join(home, "ferrule")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nread line; echo '"+answer+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		".claude.json":          `{"mcpServers":{"ferrule":{"command":"` + program + `"}}}`,
		".gemini/settings.json": `{}`,
		".cursor/mcp.json":      `{`,
	} {
		path := filepath.Join(home, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := found()
	for _, want := range []string{"fine: Claude Code is set up, and `" + program + "` answers", "note: Gemini CLI is installed but not set up", "wrong: the configuration of Cursor cannot be read"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	d.place = func() (setup.Place, error) { return setup.Place{}, os.ErrNotExist }
	if got := found(); got != "" {
		t.Errorf("got %s", got)
	}
}

// TestClientToken: a gateway that refuses the token of an entry is running, so nobody is told
// to start it.
func TestClientToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	for headers, found := range map[string]string{``: "needs a token, and the entry has none", `,"headers":{"authorization":"Bearer fer_x"}`: "does not accept the entry's token"} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".claude.json"), []byte(`{"mcpServers":{"ferrule":{"type":"http","url":"`+server.URL+`"`+headers+`}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		d := &Doctor{place: func() (setup.Place, error) {
			return setup.Place{OS: "linux", Home: home, Getenv: func(string) string { return "" }}, nil
		}}
		all := d.clients(t.Context())
		if len(all) != 1 || all[0].State != Wrong || !strings.Contains(all[0].Found, found) || all[0].Next != "run `ferrule setup claude-code --http`, which writes a token" {
			t.Errorf("got %+v", all)
		}
	}
}
