package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/journal"
	"github.com/ferrulehq/ferrule/internal/local/control"
	"github.com/ferrulehq/ferrule/internal/local/datadir"
)

// VerifyOptions selects what is verified.
type VerifyOptions struct {
	// Local leaves out the copies of all nodes' journals.
	Local bool
	// Keys are public keys, or files with one key per line. The journals must be signed with
	// one of them. Without keys, the journal of the data directory is compared with the key
	// in the data directory.
	Keys []string
	// Segments are files to verify one by one, instead of the journal.
	Segments []string
}

// Verify checks the journal of the data directory and the copies of all nodes' journals, or
// single segments. If the copies cannot be read, the result has no chains; if the file
// cannot be read, it has those of the copies.
func Verify(ctx context.Context, p Parts, o VerifyOptions) (Verification, error) {
	v := Verification{Chains: []Verified{}}
	keys, err := parseKeys(o.Keys)
	if err != nil {
		return Verification{}, err
	}
	v.given, v.keys = len(keys) > 0, keys
	if len(o.Segments) > 0 {
		return v, v.addSegments(o.Segments)
	}
	if !o.Local {
		if err := p.verifyCopies(ctx, &v); err != nil {
			return Verification{}, err
		}
	}
	err = p.verifyFile(&v)
	return v, err
}

// parseKeys returns the keys in texts and files.
func parseKeys(texts []string) (keys []journal.PublicKey, err error) {
	for _, text := range texts {
		lines := []string{text}
		if data, err := os.ReadFile(text); err == nil {
			lines = strings.Split(strings.TrimSpace(string(data)), "\n")
		}
		for _, line := range lines {
			key, err := journal.ParsePublicKey(line)
			if err != nil {
				return nil, fmt.Errorf("--key: %w", err)
			}
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// addSegments verifies segments one by one.
func (v *Verification) addSegments(paths []string) error {
	for _, path := range paths {
		report, err := journal.VerifySegment(path, v.keys...)
		if err != nil {
			return err
		}
		v.add(Verified{Segment: path, Report: report})
	}
	return nil
}

// Verification is the result for all chains.
type Verification struct {
	Chains []Verified `json:"chains"`
	Wrong  int        `json:"wrong"` // number of findings
	// Forged is what no node wrote among the copies. Each entry is a finding. MoreForged is the
	// number of messages that are left out.
	Forged     []Forged `json:"forged,omitempty"`
	MoreForged int      `json:"more_forged,omitempty"`
	// Cluster reports whether there are copies of several nodes.
	Cluster bool `json:"-"`

	keys  []journal.PublicKey
	given bool // the keys were given, and not found in the data directory
}

// Verified is the result for one chain.
type Verified struct {
	Node string `json:"node,omitempty"`
	// Copy reports whether this is a copy, and not the file of the data directory.
	Copy bool `json:"copy"`
	// Segment is the path, if only a segment was verified.
	Segment string `json:"segment,omitempty"`
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
	switch damaged := v.damaged(); {
	case damaged > 0:
		return fmt.Errorf("the journal is damaged: %d findings", damaged)
	case v.Wrong > 0:
		return fmt.Errorf("messages among the copies that no node wrote: %d", v.forgedMessages())
	}
	return nil
}

// damaged returns the number of findings in the journals themselves.
func (v *Verification) damaged() (n int) {
	for _, c := range v.Chains {
		n += len(c.Findings) + c.More
	}
	return n
}

// verifyCopies checks the copies of all nodes' journals.
func (p Parts) verifyCopies(ctx context.Context, v *Verification) error {
	chains := make(map[origin]*journal.Verifier)
	err := p.Nodes.Journal(ctx, ferrule.JournalQuery{Forged: true}, func(l ferrule.JournalLines) error {
		if l.Forgery != "" {
			v.addForged(l)
			return nil
		}
		from := origin{l.Node, l.Chain}
		if chains[from] == nil {
			chains[from] = journal.NewVerifier(l.Chain, v.keys...)
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
	v.sortForged()
	slices.SortFunc(v.Chains, func(a, b Verified) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Chain, b.Chain)) })
	v.Cluster = true
	return nil
}

// verifyFile checks the journal of the data directory and compares it with its copy,
// which must have been read before.
func (p Parts) verifyFile(v *Verification) error {
	keys := v.keys
	if _, err := os.Stat(filepath.Join(p.Data, journal.HeadFile)); err == nil && !v.given { // else it is not signed yet
		if key, err := journal.ReadPublicKey(p.Data); err == nil {
			keys = []journal.PublicKey{key}
		}
	}
	report, err := journal.Verify(p.Data, keys...)
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

// Verdict returns the result in one or a few sentences, one per line.
func (v *Verification) Verdict() string {
	var lines []string
	switch damaged := v.damaged(); {
	case damaged == 1:
		lines = append(lines, "DAMAGED: 1 finding.")
	case damaged > 0:
		lines = append(lines, fmt.Sprintf("DAMAGED: %d findings.", damaged))
	case len(v.Chains) == 1:
		lines = append(lines, "Intact: "+v.Chains[0].extent()+".")
	default:
		lines = append(lines, fmt.Sprintf("Intact: %d journals or segments.", len(v.Chains)))
	}
	switch n := v.forgedMessages(); {
	case n == 1:
		lines = append(lines, "FORGED: 1 message among the copies was not written by a node. It is not counted above.")
	case n > 1:
		lines = append(lines, fmt.Sprintf("FORGED: %d messages among the copies were not written by a node. They are not counted above.", n))
	}
	for _, c := range v.Chains {
		if c.Copy && !v.given || c.Records == 0 {
			continue
		}
		lines = append(lines, c.Where(journal.Finding{}, v.Cluster)+c.signature(v.given))
	}
	return strings.Join(lines, "\n")
}

// extent returns what was verified.
func (c Verified) extent() string {
	text := fmt.Sprintf("%d records", c.Records)
	if c.Records == 1 {
		text = "1 record"
	}
	if c.Segments > 1 {
		text += fmt.Sprintf(" in %d segments", c.Segments)
	}
	if c.First > 1 && c.Segment == "" {
		text += fmt.Sprintf(", beginning with record %d", c.First)
	}
	return text
}

// signature returns up to where the journal is signed.
func (c Verified) signature(given bool) string {
	switch {
	case c.Signed == nil && given:
		return "Not signed with a given key."
	case c.Signed == nil:
		return "Signatures were not checked: nothing shows whether it was written again with new hashes. Add --key."
	}
	text := fmt.Sprintf("Signed up to record %d at %s", c.Signed.Record, c.Signed.Time.Local().Format(time.DateTime))
	if n := c.Last - c.Signed.Record; n > 0 && c.Segment == "" {
		text += fmt.Sprintf("; %d later records are not signed yet", n)
	}
	if !given {
		text += ", with the key in the data directory. Add --key to compare with a key that you keep elsewhere"
	}
	return text + "."
}

// Intact is the state of a chain without findings.
const Intact = "intact"

// Where returns where something was found, as the beginning of a line.
func (c Verified) Where(f journal.Finding, cluster bool) string {
	var words []string
	switch {
	case c.Copy:
		words = []string{"copy of " + c.Chain + " of node " + c.Node}
	case c.Segment != "":
		words = []string{c.Segment}
	case cluster:
		words = []string{"local file"}
	}
	if f.File != "" {
		words = append(words, f.File)
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
