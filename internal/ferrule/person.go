package ferrule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// PersonRole is what a person may do who has logged in. It is also a group for the policy.
type PersonRole string

// The roles, from the fewest rights to the most.
const (
	RoleViewer   PersonRole = "viewer"   // sees devices and what they measure
	RoleOperator PersonRole = "operator" // also calls tools, and answers requests for approval
	RoleOwner    PersonRole = "owner"    // also changes the gateway
)

var personRoles = []PersonRole{RoleViewer, RoleOperator, RoleOwner}

// ParsePersonRole returns the role with a name.
func ParsePersonRole(name string) (PersonRole, error) {
	if role := PersonRole(name); role.Rank() > 0 {
		return role, nil
	}
	return "", fmt.Errorf("unknown role %q; must be one of viewer, operator, owner", Clean(name, MaxWord))
}

// Rank returns a number that is higher for more rights; 0 for what is not a role.
func (r PersonRole) Rank() int { return slices.Index(personRoles, r) + 1 }

// Scopes returns what the role permits at most.
func (r PersonRole) Scopes() Scopes {
	switch r {
	case RoleOwner:
		return LimitTo(ScopeAdmin)
	case RoleOperator:
		return LimitTo(ScopeEndanger)
	case RoleViewer:
		return LimitTo(ScopeRead)
	}
	return LimitTo(0)
}

// LoggedIn returns the principal of a person who has logged in with a browser. Groups are
// further groups for the policy.
func (r PersonRole) LoggedIn(name string, groups ...string) Principal {
	return Principal{
		Role: Person, Name: name, Auth: AuthLogin, Scopes: r.Scopes(), Groups: strings.Join(append([]string{string(r)}, groups...), ","),
	}
}

// KnownPerson is a person who may log in with a browser, or has logged in.
type KnownPerson struct {
	Name string `json:"name"`
	// LoginID is the [Principal.TokenID] of the person's logins now.
	LoginID string     `json:"-"`
	Role    PersonRole `json:"role"`
	// LastLogin is that on this node; zero if there was none.
	LastLogin time.Time `json:"last_login,omitzero"`
	// Sessions is how many browsers are logged in on this node.
	Sessions int `json:"sessions"`
	// Note says what else the owner should know about a change.
	Note string `json:"note,omitempty"`
}

// LoginLink is a link that lets a person log in with a browser, once.
type LoginLink struct {
	URL     string     `json:"url"`
	Name    string     `json:"name"`
	Role    PersonRole `json:"role"`
	Expires time.Time  `json:"expires"`
}
