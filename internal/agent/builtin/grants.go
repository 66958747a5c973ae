package builtin

import (
	"context"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Grants are what people permitted agents that logged in.
type Grants interface {
	Grants() []ferrule.Grant
	Revoke(by ferrule.Principal, id string) error
}

// ListGrantsInput has the arguments of list_grants.
type ListGrantsInput struct{}

// ListGrantsOutput is the result of list_grants.
type ListGrantsOutput struct {
	Grants []ferrule.Grant `json:"grants"`
}

// ListGrants returns the tool list_grants.
func ListGrants(grants Grants) Tool {
	const text = "Lists the agents that people let in by a login: what each may do, who permitted it, until when, and when and from where it was last used."
	return Typed("list_grants", text, ferrule.Reads, func(context.Context, *ferrule.Call, ListGrantsInput) (ListGrantsOutput, error) {
		return ListGrantsOutput{grants.Grants()}, nil
	}).ForPeople()
}

// RevokeGrantInput has the arguments of revoke_grant.
type RevokeGrantInput struct {
	ID string `json:"id" jsonschema:"ID of the grant, as list_grants returns it"`
}

// RevokeGrantOutput is the result of revoke_grant.
type RevokeGrantOutput struct {
	ID string `json:"id"`
}

// RevokeGrant returns the tool revoke_grant.
func RevokeGrant(grants Grants) Tool {
	const text = "Ends the login of an agent at once, on all nodes. It must log in again."
	return Typed("revoke_grant", text, ferrule.Changes, func(_ context.Context, call *ferrule.Call, in RevokeGrantInput) (RevokeGrantOutput, error) {
		return RevokeGrantOutput{in.ID}, grants.Revoke(call.Principal, in.ID)
	}).ForPeople()
}
