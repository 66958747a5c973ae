package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/arguments"
	"github.com/ferrulehq/ferrule/internal/ops/config"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Test and explain the rules of who may call what"}
	cmd.AddCommand(a.policyTestCommand(), a.policyExplainCommand())
	return parent(cmd)
}

func (a *app) policyTestCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Check the rules and run their tests",
		Long: `Check the rules in *.cedar and run the tests in *.test.yaml, without a gateway. DIR is
policy.dir of the configuration, unless you name another. Presets and groups are those of
the configuration. A gateway does not start with rules that fail.`,
		Example: "  ferrule policy test\n  ferrule policy test ./policies",
		Args:    atMostOne,
		RunE: func(_ *cobra.Command, args []string) error {
			found, err := config.TestPolicy(file, datadir.Config(a.dataDir()), args...)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(a.stdout, "All is well: %s.\n", found)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` (default the one of the gateway)")
	return cmd
}

func (a *app) policyExplainCommand() *cobra.Command {
	var groups []string
	cmd := &cobra.Command{
		Use:   "explain AGENT DEVICE TOOL [key=value | key:=json]...",
		Short: "Show what the policy decides on a call, and why",
		Long: `Ask the running gateway whether an agent may call a tool, and by which rule. Nothing is
called. AGENT is a name as in the journal, such as claude or local/claude-code, or
person:NAME.`,
		Example: "  ferrule policy explain claude door open angle=90",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 3 {
				return exactly(3)(cmd, args)
			}
			_, tool, err := a.toolFor(cmd.Context(), args[1], args[2])
			if err != nil {
				return err
			}
			values, err := arguments.Parse(args[3:], []byte(tool.Input))
			if err != nil {
				return usageError{err}
			}
			in := builtin.ExplainPolicyInput{Who: args[0], Groups: groups, Device: args[1], Tool: args[2], Arguments: builtin.Arguments(values)}
			out, err := callGateway[builtin.ExplainPolicyOutput](cmd.Context(), a, "explain_policy", in)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(out)
			}
			fmt.Fprintf(a.stdout, "%s: %s\n", a.style(bold, out.Verdict), out.Reason)
			if out.Text != "" {
				fmt.Fprintf(a.stdout, "\n%s\n%s\n", out.Rule, out.Text)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&groups, "group", nil, "a `NAME` of a group that the caller's token or role puts it in")
	return cmd
}
