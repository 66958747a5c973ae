package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// SessionInfo says who is logged in.
type SessionInfo struct {
	Name   string   `json:"name" jsonschema:"the person"`
	Role   string   `json:"role" jsonschema:"viewer, operator or owner"`
	Scopes []string `json:"scopes" jsonschema:"what the role permits"`
	CSRF   string   `json:"csrf" jsonschema:"the token that a POST must have in X-CSRF-Token"`
}

type csrfKey struct{}

// WithCSRF adds the CSRF token of the session that a request belongs to.
func WithCSRF(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, csrfKey{}, token)
}

// sessionOperations returns the operation that says who is logged in.
func (a *API) sessionOperations() []Operation {
	return []Operation{operation(http.MethodGet, "/session", "Say who is logged in, and return the CSRF token.", ferrule.ScopeRead, a.Session)}
}

// Session says who is logged in.
func (a *API) Session(ctx context.Context, who ferrule.Principal, _ NoInput) (SessionInfo, error) {
	role, _, _ := strings.Cut(who.Groups, ",")
	csrf, _ := ctx.Value(csrfKey{}).(string)
	return SessionInfo{Name: who.Name, Role: role, Scopes: who.Scopes.Names(), CSRF: csrf}, nil
}
