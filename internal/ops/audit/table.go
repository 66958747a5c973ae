package audit

import (
	"cmp"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// Table prints calls in columns, one line each. The first lines decide the widths.
type Table struct {
	Out io.Writer
	// Style is applied to cells after they are aligned.
	Style func(column, cell string) string

	columns []string
	width   []int
	waiting [][]string
	live    bool // lines are printed as they come
}

// The limits of a table. Longer arguments are cut; --json has all of them.
const (
	tableRows  = 1000 // that decide the widths
	maxArgCell = 48
	maxCell    = 40
)

// Add adds a call. It may be printed later.
func (t *Table) Add(r Record, nodes bool) error {
	if t.columns == nil {
		t.columns = []string{"TIME", "CALLER", "DEVICE", "TOOL", "ARGUMENTS", "OUTCOME", "TOOK"}
		if nodes {
			t.columns = append([]string{"NODE"}, t.columns...)
		}
	}
	row := cells(r)
	if t.columns[0] == "NODE" {
		row = append([]string{cell(r.Node, maxCell)}, row...)
	}
	t.waiting = append(t.waiting, row)
	if !t.live && len(t.waiting) < tableRows {
		return nil
	}
	return t.print()
}

// cells returns the cells of a call. A record that is not of a call has a text instead.
func cells(r Record) []string {
	at := r.Began.Local().Format(time.DateTime)
	switch r.Phase {
	case ferrule.Intent, ferrule.Outcome:
	case ferrule.JournalCheckpoint:
		return []string{at, "checkpoint"}
	case ferrule.Access:
		return []string{at, cell(strings.TrimSuffix(r.Principal.String(), ":"), maxCell), "-", cell(r.Tool, maxCell), accessText(r.Entry)}
	default:
		return []string{at, ferrule.OneLine(ferrule.Clean(r.Message, ferrule.MaxText), ferrule.MaxText)}
	}
	tool := r.Tool
	if r.Operation != ferrule.CallTool {
		tool = string(r.Operation) + " " + tool
	}
	took := ""
	if r.Took != 0 {
		took = round(time.Duration(r.Took)).String()
	}
	caller := r.Principal.String()
	if id := ferrule.WatchOf(r.Call, r.Client); id != "" {
		caller = ferrule.OneLine(caller, max(1, maxCell-len(", watch ")-len(id))) + ", watch " + id
	}
	return []string{at, cell(caller, maxCell), cell(r.Device, maxCell), cell(tool, maxCell), cell(string(r.Args), maxArgCell), r.Outcome(), took}
}

// accessText says whether somebody was let in, from where, and what there is to know.
func accessText(e ferrule.Entry) string {
	text := cmp.Or(string(e.Code), outcomeOK)
	if e.From != "" {
		text += ", from " + e.From
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), ferrule.MaxText)
}

// cell returns a text for one cell: clean, short, and never empty.
func cell(text string, limit int) string {
	if text = ferrule.OneLine(ferrule.Clean(text, ferrule.MaxText), limit); text == "" {
		return "-"
	}
	return text
}

// round leaves about three digits of a duration.
func round(d time.Duration) time.Duration {
	for unit := time.Microsecond; unit < time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

// Flush prints the calls that were added. From now on, each is printed at once.
func (t *Table) Flush() error {
	t.live = true
	return t.print()
}

func (t *Table) print() error {
	if len(t.waiting) == 0 {
		return nil
	}
	var out strings.Builder
	if t.width == nil {
		t.width = make([]int, len(t.columns))
		for _, row := range append([][]string{t.columns}, t.waiting...) {
			for i, text := range row {
				if len(row) == len(t.columns) {
					t.width[i] = max(t.width[i], utf8.RuneCountInString(text))
				}
			}
		}
		t.line(&out, t.columns, func(_, cell string) string { return cell })
	}
	for _, row := range t.waiting {
		t.line(&out, row, t.Style)
	}
	t.waiting = t.waiting[:0]
	_, err := io.WriteString(t.Out, out.String())
	return err
}

func (t *Table) line(out *strings.Builder, row []string, style func(column, cell string) string) {
	var line strings.Builder
	for i, text := range row {
		padding := max(0, t.width[i]-utf8.RuneCountInString(text))
		line.WriteString(style(t.columns[i], text) + strings.Repeat(" ", padding+2))
	}
	out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// ChainHeader names the columns of ChainRows.
const ChainHeader = "NODE JOURNAL CHAIN RECORDS STATE"

// ChainRows returns the rows of a table of verified chains.
func ChainRows(chains []Verified) (rows [][]string) {
	for _, c := range chains {
		kind := "local file"
		if c.Copy {
			kind = "copy"
		} else if c.Segment != "" {
			kind = filepath.Base(c.Segment)
		}
		rows = append(rows, []string{cmp.Or(c.Node, "-"), kind, cmp.Or(c.Chain, "-"), strconv.Itoa(c.Records), c.State()})
	}
	return rows
}
