package api

import (
	"context"
	"net/http"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/watch"
)

// watchOperations returns the operations on watches.
func (a *API) watchOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/watches", "List the watches of all agents and people.", ferrule.ScopeRead, a.Watches),
		operation(http.MethodPost, "/watches", "Set, change, disable or remove a watch.", ferrule.ScopeChange, a.SetWatch),
	}
}

// Watches returns the watches of all agents and people.
func (a *API) Watches(ctx context.Context, who ferrule.Principal, in builtin.ListWatchesInput) (builtin.ListWatchesOutput, error) {
	return Builtin[builtin.ListWatchesOutput](ctx, a, who, builtin.ListWatchesTool, in)
}

// SetWatch sets, changes, disables or removes a watch.
func (a *API) SetWatch(ctx context.Context, who ferrule.Principal, in builtin.WatchInput) (watch.Status, error) {
	return Builtin[watch.Status](ctx, a, who, builtin.WatchTool, in)
}
