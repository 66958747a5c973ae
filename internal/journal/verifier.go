package journal

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Finding is a problem in a journal.
type Finding struct {
	// Line is the line number, from 1; zero if it is unknown.
	Line int `json:"line,omitempty"`
	// Record and To are the numbers of the first and last record concerned.
	Record uint64 `json:"record"`
	To     uint64 `json:"to"`
	What   string `json:"what"`
}

// Report is the result of a verification.
type Report struct {
	Chain   string `json:"chain,omitempty"`
	Records int    `json:"records"`
	// Last is the highest record number, and Hash the hash of that record.
	Last     uint64    `json:"last"`
	Hash     string    `json:"hash,omitempty"`
	Findings []Finding `json:"findings"`
	// More is the number of findings that are left out.
	More int `json:"more,omitempty"`
}

const maxFindings = 100

// Verifier checks the records of one chain: their hashes and their order. Feed it the lines
// in order, in any number of parts.
//
// It cannot detect that the newest records were removed. Holds can, if there is a copy.
type Verifier struct {
	chain      string // the name; empty if it is not known
	line       int
	records    int
	head       link   // the record with the highest number
	knownFrom  uint64 // nothing is known about records before this one
	unanchored bool   // the next record is not checked, because the one before it is unknown
	gaps       []gap
	findings   []Finding
	more       int
	run        string // the text of the last finding, if the next record may extend it
}

// gap is a range of missing records.
type gap struct {
	line        int
	first, last uint64
}

// NewVerifier returns a Verifier that starts at the first record of a chain. The name may be
// empty.
func NewVerifier(chain string) *Verifier { return &Verifier{chain: chain} }

// Feed checks the next lines of the chain.
func (v *Verifier) Feed(lines []byte) {
	for line := range bytes.Lines(lines) {
		v.check(bytes.TrimSuffix(line, []byte("\n")))
	}
}

// Report returns the result so far.
func (v *Verifier) Report() Report {
	r := Report{Chain: v.chain, Records: v.records, Last: v.head.seq, Findings: append([]Finding{}, v.findings...), More: v.more}
	if v.head.seq > 0 {
		r.Hash = hex.EncodeToString(v.head.hash[:])
	}
	for _, g := range v.gaps {
		r.Findings = append(r.Findings, Finding{g.line, g.first, g.last, describe("is missing", "are missing", g.first, g.last)})
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	if n := len(r.Findings); n > maxFindings {
		r.Findings, r.More = r.Findings[:maxFindings], r.More+n-maxFindings
	}
	return r
}

func describe(one, several string, first, last uint64) string {
	if first == last {
		return fmt.Sprintf("record %d %s", first, one)
	}
	return fmt.Sprintf("records %d to %d %s", first, last, several)
}

// check checks one line without its line end.
func (v *Verifier) check(line []byte) {
	v.line++
	v.records++
	want := v.head.seq + 1
	hash, body, e, err := parseLine(line)
	if err == nil && e.Seq == 0 {
		err = errors.New("no record number")
	}
	switch {
	case err != nil:
		v.add(want, fmt.Sprintf("no valid record in place of record %d: %v", want, err))
		v.head = link{want, hash} // it counts as one
		return
	case v.unanchored:
		v.unanchored, v.knownFrom = false, e.Seq
	case e.Seq < want:
		v.misplaced(e.Seq)
		return
	case e.Seq > want:
		v.addGap(want, e.Seq-1)
	case chain(v.head.hash, body) != hash:
		v.add(want, fmt.Sprintf("record %d or the one before it was altered", want))
	case want == 1:
		v.checkName(chainName(line))
	}
	v.head = link{e.Seq, hash}
}

// checkName compares the name of the chain with its first record.
func (v *Verifier) checkName(name string) {
	if v.chain == "" {
		v.chain = name
	}
	if v.chain != name {
		v.add(1, fmt.Sprintf("record 1 belongs to another chain, %s", name))
	}
}

// addGap notes missing records. They may still come, out of order.
func (v *Verifier) addGap(first, last uint64) {
	v.run = ""
	if len(v.gaps) < maxFindings {
		v.gaps = append(v.gaps, gap{v.line, first, last})
		return
	}
	v.more++
	v.knownFrom = last + 1 // gaps before it are not tracked
}

// misplaced handles a record after one with a higher number: it was missing, or it is a
// duplicate.
func (v *Verifier) misplaced(seq uint64) {
	after := fmt.Sprintf(" after record %d", v.head.seq)
	i := slices.IndexFunc(v.gaps, func(g gap) bool { return g.first <= seq && seq <= g.last })
	if i < 0 && seq >= v.knownFrom {
		v.addRun(seq, "appears twice", "appear twice")
		return
	}
	v.addRun(seq, "comes"+after, "come"+after)
	if i < 0 {
		return
	}
	g := v.gaps[i]
	parts := []gap{{g.line, g.first, seq - 1}, {g.line, seq + 1, g.last}}
	parts = slices.DeleteFunc(parts, func(g gap) bool { return g.first > g.last })
	v.gaps = slices.Replace(v.gaps, i, i+1, parts...)
}

// addRun adds a finding, or extends the last one if it is the same about the record before.
func (v *Verifier) addRun(seq uint64, one, several string) {
	if n := len(v.findings); v.run == one && n > 0 && v.findings[n-1].To+1 == seq {
		v.findings[n-1].To = seq
		v.findings[n-1].What = describe(one, several, v.findings[n-1].Record, seq)
		return
	}
	if v.add(seq, describe(one, several, seq, seq)) {
		v.run = one
	}
}

// add adds a finding and reports whether there was space for it.
func (v *Verifier) add(record uint64, what string) bool {
	v.run = ""
	if len(v.findings) >= maxFindings {
		v.more++
		return false
	}
	v.findings = append(v.findings, Finding{v.line, record, record, what})
	return true
}

// Verify checks the journal in dir. It finds records that are altered, missing, out of order
// or duplicated.
func Verify(dir string) (Report, error) {
	file, err := open(dir)
	if err != nil {
		return Report{Findings: []Finding{}}, err
	}
	defer file.Close()
	return verifyAll(file)
}

func verifyAll(file *os.File) (Report, error) {
	var v Verifier
	err := eachLine(file, func(_ int, line []byte) error {
		v.check(line)
		return nil
	})
	report := v.Report()
	if name, nameErr := readChainName(file); err == nil {
		report.Chain, err = name, nameErr
	}
	return report, err
}

// VerifyEnd verifies at most the last limit bytes of a journal, and reports whether that is
// all of it. Findings in a part have no line number.
func VerifyEnd(dir string, limit int64) (report Report, whole bool, err error) {
	file, err := open(dir)
	if err != nil {
		return report, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return report, false, err
	}
	if info.Size() <= limit {
		report, err = verifyAll(file)
		return report, true, err
	}
	if _, err := file.Seek(info.Size()-limit, io.SeekStart); err != nil {
		return report, false, err
	}
	v := Verifier{unanchored: true}
	err = eachLine(io.LimitReader(file, limit), func(n int, line []byte) error {
		if n > 1 { // the first line may be incomplete
			v.check(line)
		}
		return nil
	})
	report = v.Report()
	for i := range report.Findings {
		report.Findings[i].Line = 0
	}
	return report, false, err
}

// Holds reports whether the journal in dir has a record with this number and hash, such as
// the newest of a copy. If not, its end was cut off, or it is another journal.
func Holds(dir string, seq uint64, hash string) (bool, error) {
	file, err := open(dir)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	return holds(file, info.Size(), seq, hash)
}
