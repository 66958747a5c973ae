package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Tokens are the tokens that let agents in over HTTP, and the logins that agents have theirs
// from.
type Tokens interface {
	List() []ferrule.Token
	// URL is where programs on this machine send them; empty without HTTP.
	URL() string
	Add(by ferrule.Principal, in AddTokenInput) (TokenOutput, error)
	Rotate(by ferrule.Principal, in RotateTokenInput) (TokenOutput, error)
	Revoke(by ferrule.Principal, in RevokeTokenInput) (TokenOutput, error)
}

// TokenOutput is the result of a change of a token.
type TokenOutput struct {
	Token ferrule.Token `json:"token"`
	// Secret is not stored anywhere, and cannot be shown again.
	Secret string `json:"secret,omitempty" jsonschema:"the secret, which cannot be shown again"`
	URL    string `json:"url,omitempty" jsonschema:"where agents send it; empty if the gateway does not serve HTTP"`
	Note   string `json:"note,omitempty" jsonschema:"what may be missing on other nodes, and patterns that no device matches now"`
}

// ListTokensInput has the arguments of list_tokens.
type ListTokensInput struct{}

// ListTokensOutput is the result of list_tokens.
type ListTokensOutput struct {
	Tokens []ferrule.Token `json:"tokens"`
	URL    string          `json:"url,omitempty" jsonschema:"where programs on this machine send them; empty if the gateway does not serve HTTP"`
}

// ListTokens returns the tool list_tokens.
func ListTokens(tokens Tokens) Tool {
	const text = "Lists the tokens that let agents in over HTTP, and the logins that people gave to agents: what each permits, until when, and when and from where it was last used. Not their secrets."
	return Typed("list_tokens", text, ferrule.Reads, func(context.Context, *ferrule.Call, ListTokensInput) (ListTokensOutput, error) {
		return ListTokensOutput{tokens.List(), tokens.URL()}, nil
	}).ForPeople()
}

// AddTokenInput has the arguments of add_token.
type AddTokenInput struct {
	Name    string           `json:"name" jsonschema:"name of the agent, as in the journal"`
	Scopes  []string         `json:"scopes,omitempty" jsonschema:"what it permits at most: read, change, endanger, metrics, admin; default: read, change and endanger"`
	Devices []string         `json:"devices,omitempty" jsonschema:"names of devices, with * for any part; default: all"`
	Expires ferrule.Duration `json:"expires,omitempty" jsonschema:"how long it is good for, such as 90d; default: until it is revoked"`
	Rotate  bool             `json:"rotate,omitempty" jsonschema:"if there is a token of this name, rotate it"`
}

// AddToken returns the tool add_token.
func AddToken(tokens Tokens) Tool {
	const text = "Makes a token that lets an agent in over HTTP, and returns its secret."
	return Typed("add_token", text, ferrule.Changes, func(_ context.Context, call *ferrule.Call, in AddTokenInput) (TokenOutput, error) {
		return tokens.Add(call.Principal, in)
	}).ForPeople()
}

// RotateTokenInput has the arguments of rotate_token.
type RotateTokenInput struct {
	Name    string            `json:"name" jsonschema:"name of the token, as list_tokens returns it"`
	Overlap *ferrule.Duration `json:"overlap,omitempty" jsonschema:"how long the old secret is still accepted; default: 10m"`
}

// RotateToken returns the tool rotate_token.
func RotateToken(tokens Tokens) Tool {
	const text = "Gives a token another secret, and returns it. The old one is accepted for a while."
	return Typed("rotate_token", text, ferrule.Changes, func(_ context.Context, call *ferrule.Call, in RotateTokenInput) (TokenOutput, error) {
		return tokens.Rotate(call.Principal, in)
	}).ForPeople()
}

// RevokeTokenInput has the arguments of revoke_token.
type RevokeTokenInput struct {
	Name string `json:"name" jsonschema:"name of the token, as list_tokens returns it"`
}

// RevokeToken returns the tool revoke_token.
func RevokeToken(tokens Tokens) Tool {
	const text = "Ends a token or a login at once, on all nodes, with everything that is open with it."
	return Typed("revoke_token", text, ferrule.Changes, func(_ context.Context, call *ferrule.Call, in RevokeTokenInput) (TokenOutput, error) {
		return tokens.Revoke(call.Principal, in)
	}).ForPeople()
}
