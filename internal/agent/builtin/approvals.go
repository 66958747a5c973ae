package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

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

// ApprovalStatusTool is the name of approval_status. A panel draws its result.
const ApprovalStatusTool = "approval_status"

// ApprovalStatusOutput is the result of approval_status.
type ApprovalStatusOutput struct {
	Approvals []OwnApproval `json:"approvals"`
	Silent    []string      `json:"silent,omitempty"`
	Time      time.Time     `json:"time"`
	// Console is the page on which people answer; empty if there is none.
	Console string `json:"console,omitempty"`
}

// OwnApproval is a request of the caller.
type OwnApproval struct {
	ferrule.Approval
	// Exact is the text of the arguments: a program that decodes and encodes them may
	// change numbers.
	Exact string `json:"exact"`
}

// ApprovalStatus returns the tool approval_status: the caller's own requests. Nobody answers
// with it, because a call from a panel is a call of its agent. Console returns the page on
// which people answer, or "".
func ApprovalStatus(approvals Approvals, console func() string) Tool {
	const text = "Shows your calls that wait for a person's approval."
	return Shown(ApprovalStatusTool, text, ferrule.Reads, func(ctx context.Context, call *ferrule.Call, _ ListApprovalsInput) (*ferrule.Result, error) {
		out := ApprovalStatusOutput{Approvals: []OwnApproval{}, Time: time.Now().UTC(), Console: console()}
		all, silent := approvals.List(ctx, call)
		own := ListApprovalsOutput{Silent: silent}
		caller := ferrule.Clean(call.Principal.String(), ferrule.MaxWord)
		for _, a := range all {
			if a.Caller == caller && a.Auth == call.Principal.Auth && a.TokenID == call.Principal.TokenID {
				a.Rule, a.User, a.TokenID = "", "", "" // for people
				out.Approvals = append(out.Approvals, OwnApproval{a, string(ferrule.EscapeHidden(a.Args))})
				own.Approvals = append(own.Approvals, a)
			}
		}
		out.Silent = silent
		value, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("encoding requests for approval: %w", err)
		}
		text := strings.TrimSpace(own.Text())
		if len(out.Approvals) > 0 && out.Console != "" {
			text += "\nA person answers at " + out.Console
		}
		return &ferrule.Result{Value: value, Content: []ferrule.Content{{Type: ferrule.TextContent, Text: text}}}, nil
	})
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
