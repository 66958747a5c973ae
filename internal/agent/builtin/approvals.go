package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Approvals has the calls that wait for the approval of a person, on all nodes.
type Approvals interface {
	// List returns them. Silent names nodes that did not answer. The call is that of the
	// tool.
	List(ctx context.Context, call *ferrule.Call) (all []ferrule.Approval, silent []string)
	// Answer answers one of this node.
	Answer(who ferrule.Principal, in AnswerApprovalInput) (ferrule.Approval, error)
}

// ListApprovalsInput has the arguments of list_approvals.
type ListApprovalsInput struct{}

// ListApprovalsOutput is the result of list_approvals.
type ListApprovalsOutput struct {
	Approvals []ferrule.Approval `json:"approvals" jsonschema:"requests that wait, and approvals that can be used; oldest first"`
	Silent    []string           `json:"silent,omitempty" jsonschema:"nodes that did not answer; their requests are not listed"`
}

// Text returns the list for a terminal.
func (out ListApprovalsOutput) Text() string {
	var b strings.Builder
	for i, r := range out.Approvals {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, row := range r.Describe() {
			fmt.Fprintf(&b, "%-16s %s\n", row[0], ferrule.Clean(row[1], maxRow))
		}
	}
	if len(out.Approvals) == 0 {
		b.WriteString("No call waits for approval.\n")
	}
	if len(out.Silent) > 0 {
		fmt.Fprintf(&b, "These nodes did not answer, and their requests are not listed: %s\n", ferrule.Clean(strings.Join(out.Silent, ", "), maxRow))
	}
	return b.String()
}

// maxRow limits a line of the list. Arguments are shown in full.
const maxRow = 24 << 10

// ListApprovals returns the tool list_approvals.
func ListApprovals(approvals Approvals) Tool {
	const text = "Lists calls that wait for the approval of a person, and approvals that can still be used."
	return Typed("list_approvals", text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, _ ListApprovalsInput) (out ListApprovalsOutput, err error) {
		out.Approvals, out.Silent = approvals.List(ctx, call)
		return out, nil
	}).ForPeople()
}

// AnswerApprovalInput has the arguments of answer_approval.
type AnswerApprovalInput struct {
	ID    string           `json:"id" jsonschema:"ID of the request, as list_approvals returns it"`
	Allow bool             `json:"allow" jsonschema:"true: allow; false: deny"`
	For   ferrule.Duration `json:"for,omitempty" jsonschema:"allow the same call again for this long, such as 10m; default: once"`
}

// AnswerApproval returns the tool answer_approval.
func AnswerApproval(approvals Approvals) Tool {
	const text = "Allows or denies a call that waits for the approval of a person."
	return Typed("answer_approval", text, ferrule.Changes, func(_ context.Context, call *ferrule.Call, in AnswerApprovalInput) (ferrule.Approval, error) {
		return approvals.Answer(call.Principal, in)
	}).ForPeople()
}
