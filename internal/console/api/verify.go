package api

import (
	"context"
	"fmt"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

// Verification says whether the journals are intact.
type Verification struct {
	JobState
	Intact  bool   `json:"intact" jsonschema:"whether nothing was found, the last time"`
	Verdict string `json:"verdict,omitempty" jsonschema:"the result in a few sentences"`
	// Records is how many were checked. Last is the number of the newest of this node.
	Records  int      `json:"records" jsonschema:"number of records that were checked"`
	Last     uint64   `json:"last" jsonschema:"number of the newest record of this node that was checked"`
	Findings []string `json:"findings,omitempty"`
	// Newest is the number of the newest record of this node now.
	Newest uint64 `json:"newest" jsonschema:"number of the newest record of this node now"`
}

// maxFindings limits the findings that are returned.
const maxFindings = 50

// Verification returns the result of the last verification, and whether one is running.
func (a *API) Verification(_ context.Context, who ferrule.Principal, _ NoInput) (Verification, error) {
	v, state := a.verify.get()
	v.JobState = state
	if a.parts.Calls != nil {
		_, v.Newest = a.parts.Calls.Newest()
	}
	if !who.Scopes.Has(ferrule.ScopeAdmin) {
		v.Findings = nil // they name files
	}
	return v, nil
}

// Verify starts a verification of the journals of all nodes, unless one is running.
func (a *API) Verify(ctx context.Context, who ferrule.Principal, in NoInput) (Verification, error) {
	if err := Allowed(who, ferrule.ScopeAdmin); err != nil {
		return Verification{}, err
	}
	if a.parts.System.Verify == nil {
		return Verification{}, ferrule.Errorf(ferrule.Internal, "the journal cannot be verified here")
	}
	a.verify.start(func(ctx context.Context) Verification {
		v, err := a.parts.System.Verify(ctx)
		return verified(v, err)
	})
	return a.Verification(ctx, who, in)
}

// verified returns the result of a verification.
func verified(v audit.Verification, err error) Verification {
	if err != nil {
		return Verification{Verdict: "The verification did not end: " + ferrule.Clean(err.Error(), ferrule.MaxText)}
	}
	out := Verification{Intact: v.Err() == nil, Verdict: v.Verdict()}
	for _, c := range v.Chains {
		out.Records += c.Records
		if !c.Copy {
			out.Last = c.Last
		}
		for _, f := range c.Findings {
			if len(out.Findings) < maxFindings {
				out.Findings = append(out.Findings, ferrule.Clean(fmt.Sprintf("%s%s", c.Where(f, v.Cluster), f.What), ferrule.MaxText))
			}
		}
	}
	for _, line := range v.Forgeries() {
		if len(out.Findings) < maxFindings {
			out.Findings = append(out.Findings, ferrule.Clean(line, ferrule.MaxText))
		}
	}
	return out
}
