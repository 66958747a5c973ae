package api

import (
	"context"
	"net/http"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// approvalOperations returns the operations on calls that wait for a person.
func (a *API) approvalOperations() []Operation {
	return []Operation{
		operation(http.MethodGet, "/approvals", "List the calls that wait for a person, and approvals that can be used.", ferrule.ScopeEndanger, a.Approvals),
		operation(http.MethodPost, "/approvals/{id}/answer", "Allow or deny a call that waits.", ferrule.ScopeEndanger, a.AnswerApproval),
	}
}

// Approvals returns the calls that wait for a person on all nodes.
func (a *API) Approvals(ctx context.Context, who ferrule.Principal, in builtin.ListApprovalsInput) (builtin.ListApprovalsOutput, error) {
	return Builtin[builtin.ListApprovalsOutput](ctx, a, who, "list_approvals", in)
}

// AnswerApproval allows or denies a call that waits.
func (a *API) AnswerApproval(ctx context.Context, who ferrule.Principal, in builtin.AnswerApprovalInput) (ferrule.Approval, error) {
	return Builtin[ferrule.Approval](ctx, a, who, "answer_approval", in)
}
