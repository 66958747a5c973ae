package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrulehq/ferrule/internal/ops/audit"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var o audit.VerifyOptions
	cmd := &cobra.Command{
		Use:   "verify [SEGMENT...]",
		Short: "Check that the journal is intact",
		Long: `Check every record of the journal against its hash and its position, and the signatures
of its checkpoints. A record that is missing, changed, out of order or duplicated is
listed, and the exit code is 1.

Hashes alone can be computed again by anyone who can write the file. A signature cannot,
without the key in the data directory. Keep the public key that "ferrule audit key"
prints elsewhere and give it with --key: then a journal that was written again, or whose
end was cut off, is found up to its newest signature. Signatures are at most a minute or
1,000 records old while the gateway runs.

If the gateway runs and is part of a cluster, the copies of all nodes' journals are
checked too, and the journal of this data directory is compared with its copy. Messages
among the copies that no node has sealed are not records; they are named, and the exit
code is 1. With --key, give the keys of all nodes, or add --local.

With files, these sealed segments are checked one by one, for example in an archive.`,
		Example: `  ferrule audit verify
  ferrule audit verify --key node.pub
  ferrule audit verify --key ed25519:mZ3… --json
  ferrule audit verify --key node.pub archive/*.log`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Segments = args
			parts, done, err := a.auditParts(o.Local || len(args) > 0)
			if err != nil {
				return err
			}
			defer done()
			v, err := audit.Verify(cmd.Context(), parts, o)
			if v.Chains == nil {
				return err
			}
			return errors.Join(a.printVerification(v, err == nil), cmp.Or(err, v.Err()))
		},
	}
	cmd.Flags().BoolVar(&o.Local, "local", false, "only the journal of the data directory")
	cmd.Flags().StringArrayVar(&o.Keys, "key", nil, "public `key` that must have signed it, or a file with keys; may be repeated")
	return cmd
}

func (a *app) auditKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key that the journal is signed with",
		Long: `Print the public key of this node. Keep it on another machine: "ferrule audit verify --key"
uses it to check that the journal is the one that this node has signed.`,
		Example: "  ferrule audit key\n  ferrule audit key >node.pub",
		Args:    exactly(0),
		RunE: func(*cobra.Command, []string) error {
			key, err := audit.PublicKey(a.dataDir())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"key": key})
			}
			_, err = fmt.Fprintln(a.stdout, key)
			return err
		},
	}
}

func (a *app) auditExportCommand() *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Copy sealed segments of the journal to an archive",
		Long: `Copy the sealed segments of the journal to a directory, and verify each copy. Segments
that the directory has already are verified and not copied. The segment that is being
written is not exported; see journal.segment_size and journal.segment_age.

The gateway may run meanwhile. With --remove, segments are removed from the data
directory when the archive has them. In a cluster, wait until they are copied: run
"ferrule audit verify" first.`,
		Example: "  ferrule audit export /mnt/archive\n  ferrule audit export /mnt/archive --remove",
		Args:    exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			n := 0
			err := audit.Export(a.dataDir(), args[0], remove, func(e audit.Exported) error {
				n++
				if a.json {
					return a.printJSON(e)
				}
				_, err := fmt.Fprintf(a.stdout, "%s: records %d to %d\n", e.Segment, e.First, e.Last)
				return err
			})
			if err == nil && n == 0 {
				fmt.Fprintln(a.stderr, "no sealed segments yet")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove exported segments from the data directory")
	return cmd
}

// printVerification prints the findings, and the verdict if everything was verified.
func (a *app) printVerification(v audit.Verification, complete bool) error {
	if a.json {
		return a.printJSON(v)
	}
	if v.Cluster || len(v.Chains) > 1 {
		if err := a.printChains(v.Chains); err != nil {
			return err
		}
	}
	for _, c := range v.Chains {
		for _, f := range c.Findings {
			fmt.Fprintln(a.stdout, c.Where(f, v.Cluster)+f.What)
		}
		if c.More > 0 {
			fmt.Fprintf(a.stdout, "and %d more\n", c.More)
		}
	}
	for _, line := range v.Forgeries() {
		fmt.Fprintln(a.stdout, line)
	}
	if !complete {
		return nil
	}
	_, err := fmt.Fprintln(a.stdout, v.Verdict())
	return err
}

func (a *app) printChains(chains []audit.Verified) error {
	return a.table(audit.ChainHeader, audit.ChainRows(chains), func(column, cell string) string {
		if column == "STATE" && !strings.HasPrefix(cell, audit.Intact) {
			return a.style(red, cell)
		}
		return cell
	})
}
