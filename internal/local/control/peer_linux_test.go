package control

import (
	"context"
	"os"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/guard/identity"
)

// TestPrincipal checks that the system says who calls, and the request only whether it is
// an agent and which program. Names of other users' agents are those of nobody else.
func TestPrincipal(t *testing.T) {
	const nobody = 1<<31 - 7 // has no name
	own := identity.CurrentUser()
	lie := ferrule.Principal{Name: "claude", Auth: ferrule.AuthToken, User: "root"}
	for _, test := range []struct {
		uid    int // less than 0 if the system does not tell
		role   ferrule.Role
		client string
		want   ferrule.Principal
	}{
		{os.Getuid(), ferrule.Person, "", ferrule.Principal{Role: ferrule.Person, Name: own, Auth: ferrule.AuthSocket, User: own}},
		{os.Getuid(), ferrule.Gateway, "", ferrule.Principal{Role: ferrule.Person, Name: own, Auth: ferrule.AuthSocket, User: own}},
		{os.Getuid(), "root", "", ferrule.Principal{Role: ferrule.Person, Name: own, Auth: ferrule.AuthSocket, User: own}},
		{os.Getuid(), ferrule.Agent, "Claude Code", ferrule.Principal{Role: ferrule.Agent, Name: "local/claude-code", Auth: ferrule.AuthStdio, User: own}},
		{os.Getuid(), ferrule.Agent, "", ferrule.Principal{Role: ferrule.Agent, Name: "local/unnamed", Auth: ferrule.AuthStdio, User: own}},
		{nobody, ferrule.Person, "", ferrule.Principal{Role: ferrule.Person, Name: "uid 2147483641", Auth: ferrule.AuthSocket, User: "uid 2147483641"}},
		{nobody, ferrule.Agent, "a/b", ferrule.Principal{Role: ferrule.Agent, Name: "uid 2147483641/local/a-b", Auth: ferrule.AuthStdio, User: "uid 2147483641"}},
		{-1, ferrule.Person, "", ferrule.Principal{Role: ferrule.Person, Name: "claude", Auth: ferrule.AuthSocket}},
		{-1, ferrule.Agent, "codex", ferrule.Principal{Role: ferrule.Agent, Name: "local/codex", Auth: ferrule.AuthStdio}},
	} {
		ctx := t.Context()
		if test.uid >= 0 {
			ctx = context.WithValue(ctx, peerKey{}, test.uid)
		}
		call := &ferrule.Call{Principal: lie, Client: ferrule.Client{Name: test.client}}
		call.Principal.Role = test.role
		if got := principal(ctx, call); got != test.want {
			t.Errorf("user %d as %s %q: got %+v, want %+v", test.uid, test.role, test.client, got, test.want)
		}
	}
}
