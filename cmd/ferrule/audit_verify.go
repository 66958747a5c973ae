package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the journal is whole",
		Long: `Check every record of the journal against its hash and its place. A record that
is missing, altered, out of order or there twice is named, and the exit code is 1.

If the gateway is one of several nodes and runs, the copies of all their journals
are checked, and whether the journal of this data directory still has all that was
copied. A gateway that stands alone has no copy: that the newest records were cut
off cannot be seen there.`,
		Example: "  ferrule audit verify\n  ferrule audit verify --json\n  ferrule audit verify --local",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := verification{Chains: []verified{}}
			if !local {
				if err := a.verifyCopies(cmd.Context(), &v); err != nil {
					return err
				}
			}
			err := a.verifyFile(&v)
			if err == nil {
				err = v.err()
			}
			return errors.Join(a.printVerification(v), err)
		},
	}
	cmd.Flags().BoolVar(&local, "local", false, "only the journal of the data directory")
	return cmd
}

// verification is what was found in all chains.
type verification struct {
	Chains []verified `json:"chains"`
	Wrong  int        `json:"wrong"`
	nodes  bool       // there are several
}

// verified is what was found in a chain.
type verified struct {
	Node string `json:"node,omitempty"`
	// Copy tells a copy from the file of the data directory.
	Copy bool `json:"copy"`
	journal.Report
	// Uncopied is how many records of the file have no copy, where they should.
	Uncopied uint64 `json:"uncopied,omitempty"`
}

func (v *verification) add(c verified) {
	v.Chains = append(v.Chains, c)
	v.Wrong += len(c.Findings) + c.More
}

func (v *verification) err() error {
	if v.Wrong == 0 {
		return nil
	}
	return fmt.Errorf("the journal is not whole: findings: %d", v.Wrong)
}

// verifyCopies checks the journals of all nodes, if the gateway is one of several.
func (a *app) verifyCopies(ctx context.Context, v *verification) error {
	client, err := a.lookingClient()
	if err != nil {
		return err
	}
	defer client.Close()
	chains := make(map[origin]*journal.Verifier)
	err = client.Journal(ctx, ferrule.JournalQuery{}, func(l ferrule.JournalLines) error {
		from := origin{l.Node, l.Chain}
		if chains[from] == nil {
			chains[from] = journal.NewVerifier(l.Chain)
		}
		chains[from].Feed(l.Lines)
		return nil
	})
	switch {
	case errors.Is(err, control.ErrSingleNode):
		return nil
	case errors.Is(err, control.ErrNoGateway):
		a.sayOnlyHere()
		return nil
	case err != nil:
		return fmt.Errorf("reading the copies: %w", err)
	}
	for from, verifier := range chains {
		v.add(verified{Node: from.node, Copy: true, Report: verifier.Report()})
	}
	slices.SortFunc(v.Chains, func(a, b verified) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Chain, b.Chain)) })
	v.nodes = true
	return nil
}

// verifyFile checks the journal of the data directory, and compares it with its
// copy, which was read before.
func (a *app) verifyFile(v *verification) error {
	report, err := journal.Verify(a.dataDir())
	if err != nil {
		return err
	}
	here := verified{Node: nodeName(a.dataDir()), Report: report}
	if v.nodes && report.Records > 0 {
		here.Uncopied = report.Last
	}
	for _, c := range v.Chains {
		if c.Chain != here.Chain || here.Node != "" && c.Node != here.Node {
			continue
		}
		here.Node = c.Node
		here.Uncopied = max(report.Last, c.Last) - c.Last
		has, err := journal.Holds(a.dataDir(), c.Last, c.Hash)
		if err != nil {
			return err
		}
		if !has {
			here.Findings = append(here.Findings, lacks(report.Last, c.Last))
		}
	}
	v.add(here)
	return nil
}

// lacks tells that a file does not have what its copy has.
func lacks(last, copied uint64) journal.Finding {
	if last < copied {
		return journal.Finding{Record: last + 1, To: copied, What: fmt.Sprintf("its end was cut off: the copy goes on to record %d", copied)}
	}
	return journal.Finding{Record: copied, To: copied, What: fmt.Sprintf("record %d is another than in the copy", copied)}
}

// printVerification tells what was found.
func (a *app) printVerification(v verification) error {
	if a.json {
		return a.printJSON(v)
	}
	if v.nodes {
		if err := a.printChains(v.Chains); err != nil {
			return err
		}
	} else if len(v.Chains) > 0 {
		fmt.Fprintf(a.stdout, "%d records.\n", v.Chains[0].Records)
	}
	for _, c := range v.Chains {
		for _, f := range c.Findings {
			fmt.Fprintln(a.stdout, c.where(f, v.nodes)+f.What)
		}
		if c.More > 0 {
			fmt.Fprintf(a.stdout, "and %d more\n", c.More)
		}
	}
	return nil
}

// where says where something was found.
func (c verified) where(f journal.Finding, nodes bool) string {
	var words []string
	switch {
	case c.Copy:
		words = []string{"the copy of " + c.Node + "'s " + c.Chain}
	case nodes:
		words = []string{"the file here"}
	}
	if !c.Copy && f.Line > 0 {
		words = append(words, "line "+strconv.Itoa(f.Line))
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, ", ") + ": "
}

// printChains lists all chains.
func (a *app) printChains(chains []verified) error {
	var rows [][]string
	for _, c := range chains {
		kept := "file here"
		if c.Copy {
			kept = "copy"
		}
		rows = append(rows, []string{cmp.Or(c.Node, "-"), kept, cmp.Or(c.Chain, "-"), strconv.Itoa(c.Records), c.state()})
	}
	return a.table("NODE KEPT CHAIN RECORDS STATE", rows, func(column, cell string) string {
		if column == "STATE" && !strings.HasPrefix(cell, "whole") {
			return a.style(red, cell)
		}
		return cell
	})
}

// state says how a chain is, in a word or two.
func (c verified) state() string {
	state := "whole"
	if n := len(c.Findings) + c.More; n > 0 {
		state = fmt.Sprintf("findings: %d", n)
	}
	if c.Uncopied > 0 {
		state += fmt.Sprintf("; not copied yet: %d", c.Uncopied)
	}
	return state
}
