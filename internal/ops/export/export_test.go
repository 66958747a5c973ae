package export

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// tape is a signal that was sampled each second. Like the gateway, it returns the newest
// points if there are too many. It counts the queries.
type tape struct {
	t     *testing.T
	start time.Time
	n     int
	gaps  []builtin.HistoryGap
	count int
}

func (p *tape) query(in builtin.HistoryInput) (builtin.HistoryOutput, error) {
	p.count++
	from, err := time.Parse(time.RFC3339Nano, in.Since)
	if err != nil {
		p.t.Fatal(err)
	}
	to, err := time.Parse(time.RFC3339Nano, in.Until)
	if err != nil {
		p.t.Fatal(err)
	}
	line := builtin.HistorySeries{Name: in.Signals[0], Unit: "lx", Resolution: "raw"}
	for i := range p.n {
		if at := p.start.Add(time.Duration(i) * time.Second); !at.Before(from) && at.Before(to) {
			line.Points = append(line.Points, builtin.HistoryPoint{Time: at, Value: float64(i)})
		}
	}
	if n := len(line.Points); n > in.Points {
		line.Points, line.Truncated = line.Points[n-in.Points:], true
	}
	for _, h := range p.gaps {
		if !h.To.Before(from) && h.From.Before(to) {
			line.Gaps = append(line.Gaps, h)
		}
	}
	return builtin.HistoryOutput{Device: in.Device, From: from, To: to, Signals: []builtin.HistorySeries{line}}, nil
}

// whole selects all of a tape.
func (p *tape) whole(each string) builtin.HistoryInput {
	return builtin.HistoryInput{Resolution: each, RangeInput: builtin.RangeInput{
		Device: "robot", Since: p.start.Format(time.RFC3339Nano), Until: p.start.Add(time.Duration(p.n) * time.Second).Format(time.RFC3339Nano),
	}}
}

var tapeStart = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// TestExport checks that all points are written once and in order, over many pages, and
// that a gap across pages is written once.
func TestExport(t *testing.T) {
	const n = 35_000
	p := &tape{t: t, start: tapeStart, n: n, gaps: []builtin.HistoryGap{
		{From: tapeStart.Add(2000500 * time.Millisecond), To: tapeStart.Add(2000700 * time.Millisecond), Reason: "lost", MaxMissing: 3},
		{From: tapeStart.Add(10_000 * time.Second), To: tapeStart.Add(29_000 * time.Second), Reason: "silent"},
	}}
	var out bytes.Buffer
	if err := CSV(&out, p.query, p.whole("raw"), []builtin.LatestSignal{{Name: "light"}}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	next, missing := 0, ""
	var last time.Time
	for _, row := range rows[1:] {
		at, err := time.Parse(time.RFC3339Nano, row[0])
		if err != nil || at.Before(last) {
			t.Fatalf("%q comes after %v: %v", row, last, err)
		}
		last = at
		if row[8] != "" {
			missing += fmt.Sprint(row[3], " ", row[8], ";")
			continue
		}
		if row[1] != "light" || row[2] != "lx" || row[3] != fmt.Sprint(next) {
			t.Fatalf("%d is written as %q", next, row)
		}
		next++
	}
	if next != n || missing != " lost for 200ms; silent for 5h16m40s;" || p.count > 12 {
		t.Errorf("%d samples, gaps %s, %d queries", next, missing, p.count)
	}

	all, err := All(p.query, p.whole("raw"), []builtin.LatestSignal{{Name: "light", Unit: "lx"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := all.Signals[0]; len(s.Points) != n || len(s.Gaps) != 2 || s.Points[n-1].Value != n-1 || s.Truncated || !all.To.Equal(tapeStart.Add(n*time.Second)) {
		t.Errorf("%d points, %d gaps", len(s.Points), len(s.Gaps))
	}

	p.count = 0
	out.Reset()
	if err := CSV(&out, p.query, p.whole(""), []builtin.LatestSignal{{Name: "light"}}); err != nil || p.count != 1 {
		t.Errorf("without a resolution: %d queries, %v", p.count, err)
	}
}

// TestRow checks the row of a signal, and that its curve breaks where samples are missing.
func TestRow(t *testing.T) {
	p := &tape{t: t, start: tapeStart, n: 800, gaps: []builtin.HistoryGap{{From: tapeStart.Add(200 * time.Second), To: tapeStart.Add(399 * time.Second)}}}
	in := p.whole("")
	in.Signals, in.Points = []string{"light"}, curvePoints
	out, err := p.query(in)
	if err != nil {
		t.Fatal(err)
	}
	line := &out.Signals[0]
	line.Points = append(line.Points[:200:200], line.Points[400:]...)
	newer := builtin.LatestSignal{Name: "light", Value: 2000, Unit: "lx", Age: ferrule.Duration(time.Second), Time: tapeStart.Add(800 * time.Second)}
	got := row(newer, out) // a value that was measured after the others were read is not shown
	if got := strings.Join(got[:7], " "); got != "light 799 lx 2s 0 432.833 799" {
		t.Errorf("got %s", got)
	}
	if got := []rune(got[7]); len(got) != curveWidth || strings.TrimSpace(string(got[10:20])) != "" || string(got[:3]) != "▁▁▁" || string(got[37:]) != "███" || strings.ContainsRune(string(got[20:]), ' ') {
		t.Errorf("got %q", string(got))
	}
	empty := row(builtin.LatestSignal{Name: "light", Value: 7}, builtin.HistoryOutput{Signals: []builtin.HistorySeries{{}}})
	if strings.Join(empty, "|") != "light|7||0s||||" {
		t.Errorf("got %q", empty)
	}
	low, high := -5.0, 9.0
	minutes := builtin.HistoryOutput{From: tapeStart, To: tapeStart.Add(time.Hour), Signals: []builtin.HistorySeries{{Points: []builtin.HistoryPoint{
		{Time: tapeStart, Value: 1, Min: &low, Max: &high, Count: 3}, {Time: tapeStart.Add(time.Minute), Value: 5, Min: &low, Max: &high, Count: 1},
	}}}}
	if got := strings.Join(row(builtin.LatestSignal{}, minutes)[4:7], " "); got != "-5 2 9" {
		t.Errorf("got %s", got)
	}
	minutes.Signals[0].Last = &builtin.HistoryPoint{Time: tapeStart.Add(90 * time.Second), Value: 9}
	if got := row(newer, minutes); got[1] != "9" || got[3] != "11m51s" {
		t.Errorf("got %s", got)
	}
}

// TestRowLargest checks numbers whose sum overflows.
func TestRowLargest(t *testing.T) {
	line := builtin.HistorySeries{Name: "light"}
	for i, v := range []float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, -math.MaxFloat64, 0} {
		line.Points = append(line.Points, builtin.HistoryPoint{Time: tapeStart.Add(time.Duration(i) * 500 * time.Millisecond), Value: v})
	}
	out := builtin.HistoryOutput{From: tapeStart, To: tapeStart.Add(curveWidth * time.Second), Signals: []builtin.HistorySeries{line}}
	if got := row(builtin.LatestSignal{Name: "light"}, out); got[5] != "0" || got[7] != "█▁▅" {
		t.Errorf("got %q", got)
	}
}
