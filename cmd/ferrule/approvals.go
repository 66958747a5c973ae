package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

func (a *app) approvalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "approvals",
		Short: "List calls that wait for your approval",
		Long: `List the calls that wait for the approval of a person, and the approvals that can still
be used, on all nodes. What the device says about a tool may not be true.

"ferrule approve" and "ferrule deny" answer. "ferrule watch" shows new requests.`,
		Example: "  ferrule approvals\n  ferrule approvals --json",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd.Context(), a, "list_approvals", builtin.ListApprovalsInput{}, builtin.ListApprovalsOutput.Text)
		},
	}
}

func (a *app) approveCommand() *cobra.Command {
	var length time.Duration
	cmd := a.answerCommand("approve", "Allow a call that waits for approval",
		`Allow a call that waits for approval, once. The approval is for this caller, device, tool
and these arguments only. If the caller has left, its next call that is the same uses it.

With --for, the same call is allowed again and again for that time, at most 24 hours.
"ferrule deny" ends it early. You cannot approve a call of your own.`,
		"  ferrule approve k7f2x\n  ferrule approve k7f2x --for 10m",
		func(id string) builtin.AnswerApprovalInput {
			return builtin.AnswerApprovalInput{ID: id, Allow: true, For: ferrule.Duration(length)}
		})
	cmd.Flags().Var((*durationFlag)(&length), "for", "allow the same call for this `duration`")
	return cmd
}

func (a *app) denyCommand() *cobra.Command {
	return a.answerCommand("deny", "Deny a call that waits for approval",
		`Deny a call that waits for approval, or take back an approval that was not used yet.`, "  ferrule deny k7f2x",
		func(id string) builtin.AnswerApprovalInput { return builtin.AnswerApprovalInput{ID: id} })
}

func (a *app) answerCommand(name, short, long, example string, input func(id string) builtin.AnswerApprovalInput) *cobra.Command {
	return &cobra.Command{
		Use:               name + " ID",
		Short:             short,
		Long:              long,
		Example:           example,
		Args:              exactly(1),
		ValidArgsFunction: a.completeApproval,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), a, "answer_approval", input(args[0]), func(out ferrule.Approval) string { return out.Answered() + "\n" })
		},
	}
}

// completeApproval completes the IDs of requests.
func (a *app) completeApproval(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	out, err := callGateway[builtin.ListApprovalsOutput](cmd.Context(), a, "list_approvals", builtin.ListApprovalsInput{})
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, r := range out.Approvals {
		ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Summary()))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
