//go:build unix

package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/setup"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestProbeCommand checks what is found out about the command of an agent program.
func TestProbeCommand(t *testing.T) {
	dir := t.TempDir()
	longest := time.Duration(0)
	for name, test := range map[string]struct{ script, want string }{
		"answers":    {"read line; echo '" + answer + "'", ""},
		"talks":      {"read line; echo hello; echo '{\"method\":\"x\"}'; echo '" + answer + "'; exec sleep 60", ""},
		"children":   {"read line; sleep 60 & echo '" + answer + "'; wait", ""},
		"is told":    {"[ \"$FERRULE_CHECK $OWN\" = '1 a b' ] || exit 1; read line; echo '" + answer + "'", ""},
		"is shut":    {"read line; echo '{\"id\":1,\"error\":{\"code\":-1,\"message\":\"go away\"}}'", "it refused to initialize: go away"},
		"is other":   {"read line; echo '{\"id\":1,\"result\":{}}'", "it is not an MCP server"},
		"ends":       {"echo no room >&2; exit 1", "ended without an answer: no room"},
		"long lines": {"head -c 3000000 /dev/zero", "ended without an answer"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := (&Doctor{patience: wait.Ample}).probe(t.Context(), setup.Entry{Server: setup.Server{Command: path, Args: []string{"mcp"}}, Env: map[string]string{"OWN": "a b"}})
		if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		longest = max(longest, time.Since(start))
	}
	figure.AtMost(t, "probe of a command", longest, probeTime)
	for command, want := range map[string]string{
		filepath.Join(dir, "missing"): "missing does not exist",
		dir:                           "does not exist or is not a program",
		"docker":                      "not tried out: what docker starts could open ports",
		"":                            "neither a command nor a URL",
	} {
		if err := (&Doctor{patience: wait.Ample}).probe(t.Context(), setup.Entry{Server: setup.Server{Command: command}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", command, err, want)
		}
	}
}

// TestProbeMute checks that a command that never answers is ended.
func TestProbeMute(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a command that never answers")
	}
	err := (&Doctor{}).probe(t.Context(), setup.Entry{Server: setup.Server{Command: "sleep", Args: []string{"60"}}})
	if want := "`sleep` did not answer within 3s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestProbeURL checks what is found out about the URL of an agent program.
func TestProbeURL(t *testing.T) {
	ended := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			ended <- r.Header.Get("Mcp-Session-Id")
		case r.URL.Path == "/json":
			fmt.Fprint(w, strings.ReplaceAll(answer, ",", ",\n"))
		case r.URL.Path == "/mcp":
			w.Header().Set("Mcp-Session-Id", "seven")
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", answer)
		case r.URL.Path == "/token" && r.Header.Get("Authorization") == "Bearer x":
			fmt.Fprint(w, answer)
		case r.URL.Path == "/token":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/page":
			fmt.Fprint(w, "<html>")
		default:
			http.Redirect(w, r, "/mcp", http.StatusFound)
		}
	}))
	defer server.Close()
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := unused.Addr().String()
	unused.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	variable := setup.Entry{Server: setup.Server{URL: server.URL + "/token"}, Variables: true}
	if err := (&Doctor{patience: wait.Ample}).probe(t.Context(), variable); !errors.Is(err, errNotTried) {
		t.Errorf("with a token in a variable: %v", err)
	}
	for _, test := range []struct{ url, token, want string }{
		{server.URL + "/json", "", ""},
		{server.URL + "/mcp", "", ""},
		{server.URL + "/token", "Bearer x", ""},
		{server.URL + "/token?key=secret", "Bearer y", server.URL + "/token does not accept the entry's token"},
		{server.URL + "/token?key=secret", "", server.URL + "/token needs a token, and the entry has none"},
		{server.URL + "/page", "", "ended without an answer"},
		{server.URL + "/moved", "", "answers with 302"},
		{"http://me:secret@" + dead + "/mcp?key=secret", "", "http://" + dead + "/mcp cannot be reached: dial tcp " + dead},
		{"http://me:secret@" + host + "/moved", "", host + "/moved answers with 302"},
		{"http://%/secret", "", "its URL cannot be reached"},
	} {
		e := setup.Entry{Server: setup.Server{URL: test.url}}
		if test.token != "" {
			e.Headers = map[string]string{"Authorization": test.token}
		}
		err := (&Doctor{patience: wait.Ample}).probe(t.Context(), e)
		if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(got, test.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: got %v, want %q", test.url, err, test.want)
		}
	}
	if session := <-ended; session != "seven" {
		t.Errorf("session %q was ended", session)
	}
}

// FuzzAnswer checks that the output of a command and the answer of a URL, which may be
// anything, are read to their end without a crash.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{answer, "data: " + answer + "\n\n", "hello\n" + answer, `{"id":1}`, `{"id":1,"error":{"message":"\x1b[31m"}}`, "", "\x00\n{"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, err := range []error{readAnswer(strings.NewReader(string(data))), readEvents(strings.NewReader(string(data)))} {
			if err != nil && strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("unclean message %q", err)
			}
		}
	})
}
