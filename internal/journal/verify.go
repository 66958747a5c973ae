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

// Finding is something that is wrong with a journal.
type Finding struct {
	// Line is where it was seen, counted from 1; zero where that is not known.
	Line int `json:"line,omitempty"`
	// Record is the number of the record that it is about, or of the first of
	// several; To is that of the last.
	Record uint64 `json:"record"`
	To     uint64 `json:"to"`
	What   string `json:"what"`
}

// Report is what was found in a chain.
type Report struct {
	Chain   string `json:"chain,omitempty"`
	Records int    `json:"records"`
	// Last is the highest number of a record, and Hash its hash.
	Last     uint64    `json:"last"`
	Hash     string    `json:"hash,omitempty"`
	Findings []Finding `json:"findings"`
	// More is how many findings there are beside.
	More int `json:"more,omitempty"`
}

// maxFindings is how many are told.
const maxFindings = 100

// Verifier checks the records of one chain against their hashes and their places.
// It is fed the lines in order, in as many pieces as there are.
//
// What it cannot see is that the newest records were removed: Holds can, where
// there is a copy.
type Verifier struct {
	chain   string // as it is known by; empty if that is not known
	line    int
	records int
	head    mark   // the record with the highest number
	begins  uint64 // what was before this record is not known
	given   bool   // the next record is taken as it is, because what was before it is not known
	gaps    []gap
	found   []Finding
	more    int
	run     string // what the last finding says of each record, if it may grow
}

// gap is records that have not been seen.
type gap struct {
	line        int
	first, last uint64
}

// NewVerifier makes a Verifier of a chain from its first record on. Its name may be
// left empty.
func NewVerifier(chain string) *Verifier { return &Verifier{chain: chain} }

// Feed checks the next lines of the chain.
func (v *Verifier) Feed(lines []byte) {
	for line := range bytes.Lines(lines) {
		v.check(bytes.TrimSuffix(line, []byte("\n")))
	}
}

// Report tells what was found so far.
func (v *Verifier) Report() Report {
	r := Report{Chain: v.chain, Records: v.records, Last: v.head.seq, Findings: append([]Finding{}, v.found...), More: v.more}
	if v.head.seq > 0 {
		r.Hash = hex.EncodeToString(v.head.hash[:])
	}
	for _, g := range v.gaps {
		r.Findings = append(r.Findings, Finding{g.line, g.first, g.last, about("is missing", "are missing", g.first, g.last)})
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	if n := len(r.Findings); n > maxFindings {
		r.Findings, r.More = r.Findings[:maxFindings], r.More+n-maxFindings
	}
	return r
}

func about(one, several string, first, last uint64) string {
	if first == last {
		return fmt.Sprintf("record %d %s", first, one)
	}
	return fmt.Sprintf("records %d to %d %s", first, last, several)
}

// check checks one line, without its end.
func (v *Verifier) check(line []byte) {
	v.line++
	v.records++
	want := v.head.seq + 1
	hash, body, e, err := parseLine(line)
	if err == nil && e.Seq == 0 {
		err = errors.New("it has no number")
	}
	switch {
	case err != nil:
		v.find(want, fmt.Sprintf("not a record, where record %d should be: %v", want, err))
		v.head = mark{want, hash} // it stood for one
		return
	case v.given:
		v.given, v.begins = false, e.Seq
	case e.Seq < want:
		v.misplaced(e.Seq)
		return
	case e.Seq > want:
		v.miss(want, e.Seq-1)
	case chain(v.head.hash, body) != hash:
		v.find(want, fmt.Sprintf("record %d is altered, or the one before it is", want))
	case want == 1:
		v.named(chainName(line))
	}
	v.head = mark{e.Seq, hash}
}

// named compares the name of the chain with the one that its first record gives it.
func (v *Verifier) named(name string) {
	if v.chain == "" {
		v.chain = name
	}
	if v.chain != name {
		v.find(1, fmt.Sprintf("record 1 is another: it begins the chain %s", name))
	}
}

// miss remembers that records have not come. They may still.
func (v *Verifier) miss(first, last uint64) {
	v.run = ""
	if len(v.gaps) < maxFindings {
		v.gaps = append(v.gaps, gap{v.line, first, last})
		return
	}
	v.more++
	v.begins = last + 1 // nothing is known for certain about what was before
}

// misplaced tells of a record that comes after one with a higher number: it was
// missing, or it has been there before.
func (v *Verifier) misplaced(seq uint64) {
	after := fmt.Sprintf(" after record %d", v.head.seq)
	i := slices.IndexFunc(v.gaps, func(g gap) bool { return g.first <= seq && seq <= g.last })
	if i < 0 && seq >= v.begins {
		v.findRun(seq, "stands twice", "stand twice")
		return
	}
	v.findRun(seq, "stands"+after, "stand"+after)
	if i < 0 {
		return
	}
	g := v.gaps[i]
	parts := []gap{{g.line, g.first, seq - 1}, {g.line, seq + 1, g.last}}
	parts = slices.DeleteFunc(parts, func(g gap) bool { return g.first > g.last })
	v.gaps = slices.Replace(v.gaps, i, i+1, parts...)
}

// findRun tells of one record, together with the one before it if the same is wrong
// with that.
func (v *Verifier) findRun(seq uint64, one, several string) {
	if n := len(v.found); v.run == one && n > 0 && v.found[n-1].To+1 == seq {
		v.found[n-1].To = seq
		v.found[n-1].What = about(one, several, v.found[n-1].Record, seq)
		return
	}
	if v.find(seq, about(one, several, seq, seq)) {
		v.run = one
	}
}

// find tells of one record, unless there are too many already.
func (v *Verifier) find(record uint64, what string) bool {
	v.run = ""
	if len(v.found) >= maxFindings {
		v.more++
		return false
	}
	v.found = append(v.found, Finding{v.line, record, record, what})
	return true
}

// Verify checks every record of the journal in dir against its hash and its
// place, and tells which are altered, missing, out of order or there twice.
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
	err := linesOf(file, func(_ int, line []byte) error {
		v.check(line)
		return nil
	})
	report := v.Report()
	if name, nameErr := chainAt(file); err == nil {
		report.Chain, err = name, nameErr
	}
	return report, err
}

// VerifyEnd is Verify of the last bytes of a journal, at most as many as are
// given: whole tells whether that was all of it. What it finds in a part has no
// line.
func VerifyEnd(dir string, most int64) (report Report, whole bool, err error) {
	file, err := open(dir)
	if err != nil {
		return report, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return report, false, err
	}
	if info.Size() <= most {
		report, err = verifyAll(file)
		return report, true, err
	}
	if _, err := file.Seek(info.Size()-most, io.SeekStart); err != nil {
		return report, false, err
	}
	v := Verifier{given: true}
	err = linesOf(io.LimitReader(file, most), func(n int, line []byte) error {
		if n > 1 { // it begins somewhere
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

// Holds tells whether the journal in dir has a record with this number and this
// hash, such as the newest of a copy. If it has not, its end was cut off, or it is
// another.
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
