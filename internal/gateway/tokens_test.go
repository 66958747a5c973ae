package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

// TestWarnTokens: the log warns about an address of the network without TLS, and about a
// name that two tokens have. Revoking one says that the other still works.
func TestWarnTokens(t *testing.T) {
	for listen, warns := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		var log bytes.Buffer
		cfg := config.Default()
		cfg.Listen = listen
		g, err := New(Parts{Config: cfg, Data: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		ada := ferrule.Principal{Role: ferrule.Person, Name: "ada"}
		if _, err := (managed{g}).Add(ada, builtin.AddTokenInput{Name: "claude"}); err != nil {
			t.Fatal(err)
		}
		if g.tokens, err = identity.NewTokens([]identity.Token{{Name: "claude", Secret: "a-token-of-sixteen"}}); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		g.warnTokens()
		text := log.String()
		if strings.Contains(text, "everybody on the network can read the tokens") != warns || !strings.Contains(text, "has the name of another token") {
			t.Errorf("%s: got %s", listen, text)
		}
		if url := (managed{g}).URL(); !strings.HasPrefix(url, "http://127.0.0.1:") || !strings.HasSuffix(url, "/mcp") {
			t.Errorf("%s: programs on this machine use %s", listen, url)
		}
		if out, err := (managed{g}).Revoke(ada, builtin.RevokeTokenInput{Name: "claude"}); err != nil || !strings.Contains(out.Note, "in auth.tokens of the configuration still works") {
			t.Errorf("got %q, %v", out.Note, err)
		}
	}
}
