// Package api is what a person can do with the console, as functions and as JSON over HTTP.
//
//	page ─────────────▶ API.Devices, API.Call, … ─▶ pipeline, as person:NAME
//	/api/v1/… ─▶ JSON ─┘
//
// Each operation is a method of API from struct to struct, registered in the list of its
// file. The pages of the console call the methods, so a page and the JSON of the same
// address say the same. Everything that reaches a device, and everything that changes
// something, is a call in the pipeline: the policy decides and the journal records it.
// OpenAPI describes the operations; docs/reference/openapi.json is a copy.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Prefix is the path of the API.
const Prefix = "/api/v1"

// Parts is what the API needs of a gateway.
type Parts struct {
	// Handle is the pipeline.
	Handle ferrule.Handler
	Stop   Stop
	// Find returns a device that a person may see, by its ID or an earlier one.
	Find func(who ferrule.Principal, id string) (Found, error)
	Past Past
	// Calls has the calls of all nodes.
	Calls Calls
	// Agents are the agents of this node, and Rules is the policy.
	Agents  Agents
	Rules   Rules
	System  SystemParts
	Version string
	Log     *slog.Logger

	Devices DeviceParts
}

// Client is the program that calls of the console are recorded with.
var Client = ferrule.Client{Name: "console"}

// API has the operations.
type API struct {
	parts   Parts
	all     []Operation
	devices deviceIndex
	verify  Job[Verification]
	doctor  Job[[]Finding]
	testing sync.Mutex // held while rules are tested
}

// New returns an API.
func New(parts Parts) (*API, error) {
	a := &API{parts: parts}
	a.all = slices.Concat(
		a.sessionOperations(),
		a.deviceOperations(),
		a.toolOperations(),
		a.historyOperations(),
		a.approvalOperations(),
		a.watchOperations(),
		a.stopOperations(),
		a.activityOperations(),
		a.agentOperations(),
		a.ruleOperations(),
		a.systemOperations(),
	)
	var errs []error
	for _, o := range a.all {
		if o.Scope == 0 || o.Summary == "" {
			errs = append(errs, fmt.Errorf("%s %s: it must have a scope and a summary", o.Method, o.Path))
		}
	}
	return a, errors.Join(errs...)
}

// Session returns who sends a request. If it is nobody, or a request that changes something
// does not come from a page of the gateway, the error says so.
type Session func(r *http.Request) (ferrule.Principal, error)

// NotLoggedIn returns the error of a request from nobody.
func NotLoggedIn() error {
	return statusError{http.StatusUnauthorized, ferrule.Errorf(ferrule.Denied, "you are not logged in").WithHint("run `ferrule open`")}
}

// Allowed returns an error unless a person has a scope. Operations and pages that read
// something without a call in the pipeline must ask it.
func Allowed(who ferrule.Principal, scope ferrule.Scopes) error {
	if who.Scopes.Has(scope) {
		return nil
	}
	return ferrule.Errorf(ferrule.Denied, "%s may not do this: it needs the scope %s", who.Name, scope)
}

// Operations returns all operations.
func (a *API) Operations() []Operation { return slices.Clone(a.all) }

// Handler serves the operations as JSON.
func (a *API) Handler(session Session) http.Handler {
	mux := http.NewServeMux()
	for _, o := range a.all {
		mux.HandleFunc(o.Method+" "+Prefix+o.Path, func(w http.ResponseWriter, r *http.Request) {
			out, err := a.serve(session, o, w, r)
			if err != nil {
				if ferrule.AsError(err).Code == ferrule.Internal {
					a.parts.Log.Error("an operation of the API failed", "operation", o.Method+" "+o.Path, "err", err)
				}
				writeError(w, err)
				return
			}
			writeJSON(w, http.StatusOK, out)
		})
	}
	description := sync.OnceValue(a.OpenAPI)
	mux.HandleFunc("GET "+Prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, description()) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			a.unknown(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serve runs an operation for a request.
func (a *API) serve(session Session, o Operation, w http.ResponseWriter, r *http.Request) (any, error) {
	who, err := session(r)
	if err == nil {
		err = Allowed(who, o.Scope)
	}
	if err != nil {
		return nil, err
	}
	input, err := o.read(w, r)
	if err != nil {
		return nil, err
	}
	return o.run(r.Context(), who, input)
}

// unknown answers a request for what is not an operation. If there is one with another
// method, the answer names it.
func (a *API) unknown(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" {
			methods = append(methods, method)
		}
	}
	method, path := ferrule.Clean(r.Method, ferrule.MaxWord), ferrule.Clean(r.URL.Path, ferrule.MaxWord)
	if len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeError(w, statusError{http.StatusMethodNotAllowed, ferrule.Errorf(ferrule.Invalid, "%s does not take %s, only %s", path, method, strings.Join(methods, " and "))})
		return
	}
	writeError(w, ferrule.Errorf(ferrule.NotFound, "there is no operation %s %s", method, path).
		WithHint("%s/openapi.json lists the operations", Prefix))
}

// Builtin calls one of the gateway's own tools on behalf of a person.
func Builtin[Out any](ctx context.Context, a *API, who ferrule.Principal, tool string, in any) (out Out, err error) {
	args, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	result, err := a.parts.Handle(ctx, &ferrule.Call{Principal: who, Client: Client, Device: ferrule.GatewayID, Tool: tool, Args: args})
	if err == nil {
		err = json.Unmarshal(result.Value, &out)
	}
	return out, err
}
