package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the journal is intact",
		Long: `Check every record of the journal against its hash and its position. A record that is
missing, changed, out of order or duplicated is listed, and the exit code is 1.

If the gateway runs and is part of a cluster, the copies of all nodes' journals are
checked too, and the journal of this data directory is compared with its copy. A gateway
outside a cluster has no copy: if the newest records were cut off there, nothing shows
it.`,
		Example: "  ferrule audit verify\n  ferrule audit verify --json\n  ferrule audit verify --local",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, done, err := a.auditParts(local)
			if err != nil {
				return err
			}
			defer done()
			v, err := audit.Verify(cmd.Context(), parts, local)
			if v.Chains == nil {
				return err
			}
			return errors.Join(a.printVerification(v), cmp.Or(err, v.Err()))
		},
	}
	cmd.Flags().BoolVar(&local, "local", false, "only the journal of the data directory")
	return cmd
}

func (a *app) printVerification(v audit.Verification) error {
	if a.json {
		return a.printJSON(v)
	}
	if v.Cluster {
		if err := a.printChains(v.Chains); err != nil {
			return err
		}
	} else if len(v.Chains) > 0 {
		fmt.Fprintf(a.stdout, "The journal is intact: %d records.\n", v.Chains[0].Records)
	}
	for _, c := range v.Chains {
		for _, f := range c.Findings {
			fmt.Fprintln(a.stdout, c.Where(f, v.Cluster)+f.What)
		}
		if c.More > 0 {
			fmt.Fprintf(a.stdout, "and %d more\n", c.More)
		}
	}
	return nil
}

func (a *app) printChains(chains []audit.Verified) error {
	var rows [][]string
	for _, c := range chains {
		kind := "local file"
		if c.Copy {
			kind = "copy"
		}
		rows = append(rows, []string{cmp.Or(c.Node, "-"), kind, cmp.Or(c.Chain, "-"), strconv.Itoa(c.Records), c.State()})
	}
	return a.table("NODE JOURNAL CHAIN RECORDS STATE", rows, func(column, cell string) string {
		if column == "STATE" && !strings.HasPrefix(cell, audit.Intact) {
			return a.style(red, cell)
		}
		return cell
	})
}
