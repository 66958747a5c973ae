package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/local/datadir"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/ops/localca"
)

func (a *app) tlsCommand() *cobra.Command {
	var names []string
	var dir string
	cmd := &cobra.Command{Use: "init", Short: "Make a certificate for this gateway, and a CA that signs it", Long: localca.Help, Example: localca.Example, Args: exactly(0)}
	cmd.RunE = func(*cobra.Command, []string) error {
		made, err := localca.Init(cmp.Or(dir, localca.Dir(a.dataDir())), names)
		switch {
		case err != nil:
			return usageError{err}
		case a.json:
			return a.printJSON(made)
		}
		cfg, _ := config.LoadDefault(datadir.Config(a.dataDir())) // only for the port
		return made.Print(a.stdout, cfg.Listen, func(line string) string { return a.style("97;40", line) })
	}
	cmd.Flags().StringArrayVar(&names, "name", nil, "another name or address `HOST` of the gateway; may be repeated")
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` of the files (default tls in the data directory)")
	top := &cobra.Command{Use: "tls", Short: "Make certificates"}
	top.AddCommand(cmd)
	return parent(top)
}
