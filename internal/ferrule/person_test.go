package ferrule_test

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestPersonRoles checks what roles permit at most, and that a person who may answer a request
// for approval may list those that wait.
func TestPersonRoles(t *testing.T) {
	for name, scopes := range map[string]string{"viewer": "read", "operator": "read change endanger", "owner": "read change endanger metrics admin", "king": "", "": ""} {
		role, err := ferrule.ParsePersonRole(name)
		if (err == nil) != (scopes != "") {
			t.Errorf("%q: %v", name, err)
		}
		who := role.LoggedIn("anna", "lab")
		if who.Scopes.String() != scopes || !who.Scopes.Limits() || who.String() != "person:anna" || who.Auth != ferrule.AuthLogin || who.Groups != string(role)+",lab" {
			t.Errorf("%q: %+v", name, who)
		}
		list := ferrule.ScopeFor(ferrule.CallTool, &ferrule.Tool{Name: "list_approvals", Effect: ferrule.Reads, UserOnly: true})
		if who.Scopes.Has(list) != (name == "operator" || name == "owner") {
			t.Errorf("%q may list approvals: %t", name, who.Scopes.Has(list))
		}
	}
}
