package journal

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Finding is a problem in a journal.
type Finding struct {
	// File is the sealed segment; empty for the active file and for a copy.
	File string `json:"file,omitempty"`
	// Line is the line number in the file, from 1; zero if it is unknown.
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
	// First is the number of the first record, if it is not 1: older segments are not there.
	First uint64 `json:"first,omitempty"`
	// Segments is the number of files; zero for a copy.
	Segments int `json:"segments,omitempty"`
	// Last is the highest record number, and Hash the hash of that record.
	Last     uint64    `json:"last"`
	Hash     string    `json:"hash,omitempty"`
	Findings []Finding `json:"findings"`
	// More is the number of findings that are left out.
	More int `json:"more,omitempty"`
	// Signed is the newest record that a given key has signed; nil if there is none.
	Signed *Signed `json:"signed,omitempty"`
}

// Signed is a record up to which a journal is signed.
type Signed struct {
	Record uint64    `json:"record"`
	Time   time.Time `json:"time"` // by the clock of the node
	Key    PublicKey `json:"key"`
}

const maxFindings = 100

// maxUnsigned is how many records can follow the last checkpoint of a journal in use.
const maxUnsigned = checkpointRecords + 4*maxPending

// Verifier checks the records of one chain: their hashes and their order, and with keys the
// signatures of checkpoints. Feed it the lines in order, in any number of parts.
//
// It cannot detect that the newest records were removed. Holds can, if there is a copy, and
// Verify, if the head file is intact.
type Verifier struct {
	chain      string // the name; empty if it is not known
	keys       []PublicKey
	signed     *Signed
	expected   *ferrule.Checkpoint // a record that must be as it was signed; nil if none
	file       string
	line       int // in the file
	records    int
	first      uint64 // number of the first record, if it is not 1
	sealed     bool   // the last record is a checkpoint
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
	file        string
	line        int
	first, last uint64
}

// NewVerifier returns a Verifier that starts at the first record of a chain. The name may be
// empty. With keys, the records must be signed by one of them.
func NewVerifier(chain string, keys ...PublicKey) *Verifier {
	return &Verifier{chain: chain, keys: keys}
}

// Feed checks the next lines of the chain.
func (v *Verifier) Feed(lines []byte) {
	for line := range bytes.Lines(lines) {
		v.check(bytes.TrimSuffix(line, []byte("\n")))
	}
}

// Report returns the result so far.
func (v *Verifier) Report() Report {
	r := Report{Chain: v.chain, Records: v.records, First: v.first, Last: v.head.seq, Signed: v.signed, Findings: append([]Finding{}, v.findings...), More: v.more}
	if v.head.seq > 0 {
		r.Hash = hex.EncodeToString(v.head.hash[:])
	}
	for _, g := range v.gaps {
		r.Findings = append(r.Findings, Finding{g.file, g.line, g.first, g.last, describe("is missing", "are missing", g.first, g.last)})
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		const active = "~" // after all segments
		return cmp.Or(cmp.Compare(cmp.Or(a.File, active), cmp.Or(b.File, active)), cmp.Compare(a.Line, b.Line))
	})
	if unsigned := v.unsigned(); unsigned != "" {
		r.Findings = append(r.Findings, Finding{Record: v.head.seq, To: v.head.seq, What: unsigned})
	}
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
	hash, body, e, err := parseLine(line)
	if err == nil && e.Seq == 0 {
		err = errors.New("no record number")
	}
	if v.records == 1 && err == nil && !v.unanchored {
		v.anchor(&e)
	}
	want := v.head.seq + 1
	v.sealed = err == nil && e.Checkpoint != nil && e.Seq == want
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
	case e.Checkpoint != nil:
		v.checkpoint(want, e.Checkpoint)
	}
	if e.Phase == ferrule.JournalCut {
		v.add(e.Seq, fmt.Sprintf("record %d says: %s", e.Seq, e.Message))
	}
	v.head = link{e.Seq, hash}
	switch x := v.expected; {
	case x == nil || x.Seq != e.Seq:
	case x.Hash != hex.EncodeToString(hash[:]):
		v.add(e.Seq, fmt.Sprintf("record %d is not the one that was signed at %s", e.Seq, x.Time.Format(time.RFC3339)))
	case len(v.keys) > 0:
		v.signed = &Signed{x.Seq, x.Time, PublicKey(x.Key)}
	}
}

// anchor starts a chain in the middle, at a segment: its first record names the one before.
func (v *Verifier) anchor(e *ferrule.Entry) {
	c := e.Checkpoint
	if c == nil || e.Seq < 2 || c.Seq != e.Seq-1 || !isChainName(c.Chain) {
		return
	}
	var hash [sha256.Size]byte
	if text, err := hex.DecodeString(c.Hash); err != nil || copy(hash[:], text) != len(hash) {
		return
	}
	if v.chain == "" {
		v.chain = c.Chain
	}
	v.head, v.first, v.knownFrom = link{c.Seq, hash}, e.Seq, e.Seq
}

// checkpoint checks a checkpoint against the record before it, and its signature.
func (v *Verifier) checkpoint(record uint64, c *ferrule.Checkpoint) {
	key := PublicKey(c.Key)
	switch {
	case c.Seq != v.head.seq || c.Hash != hex.EncodeToString(v.head.hash[:]) || v.chain != "" && c.Chain != v.chain:
		v.add(record, fmt.Sprintf("the checkpoint in record %d does not match the records before it", record))
	case len(v.keys) == 0:
	case !slices.Contains(v.keys, key):
		v.add(record, fmt.Sprintf("the checkpoint in record %d is signed with another key, %s", record, ferrule.OneLine(ferrule.Clean(c.Key, ferrule.MaxWord), 80)))
	case !hadRecord.isSigned(c):
		v.add(record, fmt.Sprintf("the signature in record %d is wrong: records up to %d were altered", record, c.Seq))
	default:
		v.signed = &Signed{c.Seq, c.Time, key}
	}
}

// unsigned returns what is wrong if nothing is signed, or not enough; else "".
func (v *Verifier) unsigned() string {
	switch {
	case len(v.keys) == 0 || v.records == 0 || v.expected != nil:
		return "" // a signed head is compared
	case v.signed == nil:
		return "no record is signed with a given key"
	case v.signed != nil && v.head.seq-v.signed.Record > maxUnsigned:
		return fmt.Sprintf("records %d to %d are not signed with a given key", v.signed.Record+1, v.head.seq)
	}
	return ""
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
		v.gaps = append(v.gaps, gap{v.file, v.line, first, last})
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
	parts := []gap{{g.file, g.line, g.first, seq - 1}, {g.file, g.line, seq + 1, g.last}}
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
	v.findings = append(v.findings, Finding{v.file, v.line, record, record, what})
	return true
}

// Verify checks the journal in dir. It finds records that are altered, missing, out of order
// or duplicated. With keys, it also finds that all of it was written again with new hashes, or
// that its end was cut off, up to the newest signature of one of the keys.
func Verify(dir string, keys ...PublicKey) (Report, error) {
	files, err := openChain(dir)
	if err != nil {
		return Report{Findings: []Finding{}}, err
	}
	defer files.active.Close()
	v := NewVerifier(files.chain, keys...)
	signed, problem := v.expectHead(dir)
	segments := 0
	err = files.each(func(name string, file *os.File) error {
		segments++
		v.file, v.line = name, 0
		return v.read(file)
	})
	if problem == "" && signed != nil && signed.Seq > v.head.seq {
		v.file, v.line = "", 0
		if v.add(v.head.seq+1, fmt.Sprintf("the end was cut off: record %d was signed at %s", signed.Seq, signed.Time.Format(time.RFC3339))) {
			v.findings[len(v.findings)-1].To = signed.Seq
		}
	}
	if head, missing := readHead(dir); missing == nil && v.records == 0 {
		v.file, v.line = "", 0
		v.add(1, fmt.Sprintf("the journal is empty: record %d of chain %s was signed at %s", head.Seq, head.Chain, head.Time.Format(time.RFC3339)))
	}
	if problem != "" && v.records > 0 {
		v.file, v.line = "", 0
		v.add(v.head.seq, problem)
	}
	report := v.Report()
	report.Chain, report.Segments = files.chain, segments
	return report, err
}

// expectHead reads the head file. The record in it must be in the chain. Without keys it is
// compared if it is there; with keys it must be there, and signed by one of them.
func (v *Verifier) expectHead(dir string) (signed *ferrule.Checkpoint, problem string) {
	signed, err := readHead(dir)
	switch {
	case len(v.keys) == 0 && (err != nil || signed.Chain != v.chain):
		return nil, ""
	case errors.Is(err, os.ErrNotExist):
		return nil, HeadFile + " is missing: the end may have been cut off"
	case err != nil:
		return nil, err.Error()
	case signed.Chain != v.chain:
		return nil, fmt.Sprintf("%s belongs to another journal, %s with %d records", HeadFile, signed.Chain, signed.Seq)
	case len(v.keys) > 0 && !slices.Contains(v.keys, PublicKey(signed.Key)):
		return nil, fmt.Sprintf("%s is signed with another key, %s", HeadFile, ferrule.OneLine(ferrule.Clean(signed.Key, ferrule.MaxWord), 80))
	case len(v.keys) > 0 && !newestHead.isSigned(signed):
		return nil, "the signature in " + HeadFile + " is wrong"
	}
	v.expected = signed
	return signed, ""
}

// read checks the lines of a file.
func (v *Verifier) read(file io.Reader) error {
	return eachLine(file, func(_ int, line []byte) error {
		v.check(line)
		return nil
	})
}

// VerifySegment checks one sealed segment, for example in an archive. With keys, it must end
// with a signature of one of them.
func VerifySegment(path string, keys ...PublicKey) (Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return Report{Findings: []Finding{}}, err
	}
	defer file.Close()
	v := NewVerifier("", keys...)
	if err := v.read(file); err != nil {
		return v.Report(), err
	}
	chain, first, named := parseSegmentName(filepath.Base(path))
	v.line = 0
	switch begins := max(v.first, 1); {
	case !v.sealed:
		v.add(v.head.seq, "the segment is not sealed: its end may be missing")
	case named && (chain != v.chain || first != begins):
		v.add(begins, fmt.Sprintf("the segment begins with record %d of chain %s, not as its name says", begins, v.chain))
	}
	report := v.Report()
	report.Segments = 1
	return report, nil
}

// VerifyEnd verifies at most the last limit bytes of a journal, and reports whether that is
// all of it. Findings in a part have no line number.
func VerifyEnd(dir string, limit int64) (report Report, whole bool, err error) {
	files, err := openChain(dir)
	if err != nil {
		return report, false, err
	}
	file := files.active
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return report, false, err
	}
	if info.Size() <= limit {
		v := NewVerifier(files.chain)
		err = v.read(file)
		return v.Report(), len(files.sealed) == 0, err
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
	files, err := openChain(dir)
	if err != nil {
		return false, err
	}
	defer files.active.Close()
	if seq < files.first && len(files.sealed) > 0 {
		has, err := sealedHolds(files.sealed, seq, hash)
		return has, ignore(err, os.ErrNotExist)
	}
	info, err := files.active.Stat()
	if err != nil {
		return false, err
	}
	return holds(files.active, info.Size(), seq, hash)
}
