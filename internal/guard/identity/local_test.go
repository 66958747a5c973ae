package identity_test

import (
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// TestSelfNamed checks that a name which an agent gives itself is short and clean, and that
// it can be neither that of a token or an endpoint nor that of another user's agent.
func TestSelfNamed(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for client, want := range map[string]string{
		"Claude Code": "local/claude-code", "": "local/unnamed", "../..": "local/unnamed", "クロード": "local/unnamed",
		"local/admin": "local/local-admin", "endpoint:home": "local/endpoint-home", "a\nb\x1b[31m": "local/a-b-31m",
		long: "local/" + long[:ferrule.MaxID],
	} {
		got := identity.SelfNamed(client)
		if got != want {
			t.Errorf("%.40q is %.80q, want %.80q", client, got, want)
		}
		if (identity.Token{Name: got, Secret: "0123456789abcdef"}).Check() == nil {
			t.Errorf("%q can be the name of a token", got)
		}
		for _, user := range []string{"ben", "local", "uid 1000"} {
			other := identity.OfUser(user, client)
			account := ferrule.Principal{Role: ferrule.Agent, Name: other}.Account().Name
			if !strings.HasPrefix(other, user+"/") || strings.Count(other, "/") != 2 || account != user+"/local" {
				t.Errorf("of %s it is %q, with account %q", user, other, account)
			}
		}
	}
}

func TestUser(t *testing.T) {
	current, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	if got := identity.CurrentUser(); got != current.Username {
		t.Errorf("got %q, want %q", got, current.Username)
	}
	if os.Getuid() < 0 {
		t.Skip("users have no numbers here")
	}
	if got := identity.User(1<<31 - 7); got != "uid 2147483641" {
		t.Errorf("got %q", got)
	}
}
