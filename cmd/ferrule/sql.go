package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/measure/query"
)

func (a *app) sqlCommand() *cobra.Command {
	return &cobra.Command{
		Use:    gateway.SQLCommand,
		Short:  "Answer one SQL query; the gateway runs this command",
		Hidden: true,
		Args:   exactly(0),
		RunE:   func(*cobra.Command, []string) error { return query.Serve(os.Stdin, a.stdout) },
	}
}
