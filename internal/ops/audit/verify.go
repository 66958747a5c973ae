package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// Verify checks the journal of the data directory and, unless local is set, the copies of
// all nodes' journals. If the copies cannot be read, the result has no chains; if the
// file cannot be read, it has those of the copies.
func Verify(ctx context.Context, p Parts, local bool) (Verification, error) {
	v := Verification{Chains: []Verified{}}
	if !local {
		if err := p.verifyCopies(ctx, &v); err != nil {
			return Verification{}, err
		}
	}
	err := p.verifyFile(&v)
	return v, err
}

// Verification is the result for all chains.
type Verification struct {
	Chains []Verified `json:"chains"`
	Wrong  int        `json:"wrong"` // number of findings
	// Cluster reports whether there are copies of several nodes.
	Cluster bool `json:"-"`
}

// Verified is the result for one chain.
type Verified struct {
	Node string `json:"node,omitempty"`
	// Copy reports whether this is a copy, and not the file of the data directory.
	Copy bool `json:"copy"`
	journal.Report
	// Uncopied is the number of records in the file that have no copy yet.
	Uncopied uint64 `json:"uncopied,omitempty"`
}

func (v *Verification) add(c Verified) {
	v.Chains = append(v.Chains, c)
	v.Wrong += len(c.Findings) + c.More
}

// Err returns an error if something was found.
func (v *Verification) Err() error {
	if v.Wrong == 0 {
		return nil
	}
	return fmt.Errorf("the journal is damaged: %d findings", v.Wrong)
}

// verifyCopies checks the copies of all nodes' journals.
func (p Parts) verifyCopies(ctx context.Context, v *Verification) error {
	chains := make(map[origin]*journal.Verifier)
	err := p.Nodes.Journal(ctx, ferrule.JournalQuery{}, func(l ferrule.JournalLines) error {
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
		p.warnLocal()
		return nil
	case err != nil:
		return fmt.Errorf("reading the copies: %w", err)
	}
	for from, verifier := range chains {
		v.add(Verified{Node: from.node, Copy: true, Report: verifier.Report()})
	}
	slices.SortFunc(v.Chains, func(a, b Verified) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Chain, b.Chain)) })
	v.Cluster = true
	return nil
}

// verifyFile checks the journal of the data directory and compares it with its copy,
// which must have been read before.
func (p Parts) verifyFile(v *Verification) error {
	report, err := journal.Verify(p.Data)
	if err != nil {
		return err
	}
	here := Verified{Node: datadir.Node(p.Data), Report: report}
	if v.Cluster && report.Records > 0 {
		here.Uncopied = report.Last
	}
	for _, c := range v.Chains {
		if c.Chain != here.Chain || here.Node != "" && c.Node != here.Node {
			continue
		}
		here.Node = c.Node
		here.Uncopied = max(report.Last, c.Last) - c.Last
		has, err := journal.Holds(p.Data, c.Last, c.Hash)
		if err != nil {
			return err
		}
		if !has {
			here.Findings = append(here.Findings, differs(report.Last, c.Last))
		}
	}
	v.add(here)
	return nil
}

// differs describes a file that does not have the last record of its copy.
func differs(last, copied uint64) journal.Finding {
	if last < copied {
		return journal.Finding{Record: last + 1, To: copied, What: fmt.Sprintf("the end was cut off: the copy continues to record %d", copied)}
	}
	return journal.Finding{Record: copied, To: copied, What: fmt.Sprintf("record %d differs from the copy", copied)}
}

// Intact is the state of a chain without findings.
const Intact = "intact"

// Where returns where something was found, as the beginning of a line.
func (c Verified) Where(f journal.Finding, cluster bool) string {
	var words []string
	switch {
	case c.Copy:
		words = []string{"copy of " + c.Chain + " of node " + c.Node}
	case cluster:
		words = []string{"local file"}
	}
	if !c.Copy && f.Line > 0 {
		words = append(words, "line "+strconv.Itoa(f.Line))
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, ", ") + ": "
}

// State returns the state of a chain in a few words.
func (c Verified) State() string {
	state := Intact
	if n := len(c.Findings) + c.More; n > 0 {
		state = fmt.Sprintf("%d findings", n)
	}
	if c.Uncopied > 0 {
		state += fmt.Sprintf(", %d not copied yet", c.Uncopied)
	}
	return state
}
