package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/access"
)

func (a *app) tokenCommand() *cobra.Command {
	var in builtin.AddTokenInput
	overlap := 10 * time.Minute
	add := a.changeToken("add", "Make a token for an agent", access.AddTokenHelp, "  ferrule token add claude --scope read,change --device 'kitchen-*' --expires 90d",
		access.NewToken, func(name string) (string, any) { in.Name = name; return "add_token", in })
	add.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := access.CheckNewToken(in, cmd.Flags().Changed); err != nil {
			return usageError{err}
		}
		return nil
	}
	add.Flags().StringSliceVar(&in.Scopes, "scope", nil, "`SCOPES`: read, change, endanger, metrics, admin (default read,change,endanger)")
	add.Flags().StringSliceVar(&in.Devices, "device", nil, "`DEVICES` that it is good for, with * for any part of a name (default all)")
	add.Flags().Var((*durationFlag)(&in.Expires), "expires", "how long it is good for, as a `duration` such as 90d (default until it is revoked)")
	rotate := a.changeToken("rotate", "Give a token another secret", access.RotateTokenHelp, "  ferrule token rotate claude\n  ferrule token rotate claude --overlap 1d", access.NewToken,
		func(name string) (string, any) {
			return "rotate_token", builtin.RotateTokenInput{Name: name, Overlap: (*ferrule.Duration)(&overlap)}
		})
	rotate.Flags().Var((*durationFlag)(&overlap), "overlap", "how long the old secret works, as a `duration`")
	revoke := a.changeToken("revoke", "End a token at once", access.RevokeTokenHelp, "  ferrule token revoke claude", access.RevokedToken,
		func(name string) (string, any) { return "revoke_token", builtin.RevokeTokenInput{Name: name} })
	list := &cobra.Command{Use: "list", Short: "List the tokens", Long: access.ListTokensHelp, Example: "  ferrule token list\n  ferrule token list --json", Args: exactly(0), RunE: func(cmd *cobra.Command, _ []string) error {
		out, err := callGateway[builtin.ListTokensOutput](cmd.Context(), a, "list_tokens", builtin.ListTokensInput{})
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(out)
		}
		return a.table(access.TokenColumns, access.TokenRows(out.Tokens), func(_, cell string) string { return cell })
	}}
	cmd := &cobra.Command{Use: "token", Short: "Manage the tokens that let agents in over HTTP"}
	cmd.AddCommand(add, list, rotate, revoke)
	return parent(cmd)
}

// changeToken returns a command that changes one token and says what follows.
func (a *app) changeToken(name, short, long, example string, text func(builtin.TokenOutput) string, call func(name string) (tool string, in any)) *cobra.Command {
	return &cobra.Command{Use: name + " NAME", Short: short, Long: long, Example: example, Args: exactly(1), RunE: func(cmd *cobra.Command, args []string) error {
		tool, in := call(args[0])
		return show(cmd.Context(), a, tool, in, func(out builtin.TokenOutput) string {
			if out.Secret == "" {
				return text(out)
			}
			fmt.Fprintln(a.stdout, out.Secret) // alone, for a file
			fmt.Fprint(a.stderr, "\n"+text(out))
			return ""
		})
	}}
}
