package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/access"
)

func (a *app) peopleCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "people", Short: "Manage the people who log in with a browser", Long: access.PeopleLong}
	for _, c := range access.PeopleCommands {
		cmd.AddCommand(a.accessCommand(c))
	}
	return parent(cmd)
}

func (a *app) openCommand() *cobra.Command {
	var onlyPrint bool
	cmd := a.accessCommand(access.Open(&onlyPrint))
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "only print the link")
	return cmd
}

// accessCommand returns a command that calls one of the gateway's own tools.
func (a *app) accessCommand(c access.Command) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example, Args: exactly(c.Args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.Check != nil && c.Check(args, flag) != nil {
				return usageError{c.Check(args, flag)}
			}
			out, err := callGateway[json.RawMessage](cmd.Context(), a, c.Tool, c.Input(args, flag))
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(out)
			}
			shown, err := c.Show(out)
			if err == nil && len(shown.Rows) > 0 {
				err = a.table(shown.Header, shown.Rows, func(_, cell string) string { return cell })
			}
			fmt.Fprint(a.stdout, shown.Text)
			return err
		},
	}
	if c.Flag != "" {
		cmd.Flags().StringVar(&flag, c.Flag, c.Default, c.Usage)
	}
	return cmd
}
