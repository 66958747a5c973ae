// Package export shows the recorded measurements of a device: as rows of a table, as CSV
// and as JSON.
//
//	gateway's history tool -> pages -> CSV, JSON
//	                       -> one page -> Row, with a small curve
package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/measure/sparkline"
)

const (
	curveWidth  = 40     // characters
	curvePoints = 1000   // points that a curve is drawn from
	pagePoints  = 10_000 // limit of points per query
)

// Query asks the gateway for measurements.
type Query func(in builtin.HistoryInput) (builtin.HistoryOutput, error)

// Header names the columns of Rows.
const Header = "SIGNAL LAST UNIT AGE MIN MEAN MAX CURVE"

// Rows returns a row for each signal, for a table.
func Rows(query Query, in builtin.HistoryInput, signals []builtin.LatestSignal) (rows [][]string, err error) {
	in.Points = curvePoints
	for _, s := range signals {
		in.Signals = []string{s.Name}
		out, err := query(in)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row(s, out))
	}
	return rows, nil
}

// row returns the row of a signal. If the time range has values, the last one is of the
// range too: it was read together with the minimum and maximum.
func row(s builtin.LatestSignal, out builtin.HistoryOutput) []string {
	cells := []string{s.Name, Number(s.Value), s.Unit, s.Age.String(), "", "", "", ""}
	if len(out.Signals) == 0 || len(out.Signals[0].Points) == 0 {
		return cells
	}
	line := out.Signals[0]
	last := line.Points[len(line.Points)-1]
	if line.Last != nil {
		last = *line.Last
	}
	cells[1], cells[3] = Number(last.Value), age(last.Time, s)
	low, high := math.Inf(1), math.Inf(-1)
	var all ferrule.Mean
	for _, p := range line.Points {
		low, high = min(low, p.Value, valueOr(p.Min, p.Value)), max(high, p.Value, valueOr(p.Max, p.Value))
		all.Add(p.Value, max(1, float64(p.Count)))
	}
	cells[4], cells[5], cells[6], cells[7] = Number(low), Number(all.Value()), Number(high), strings.TrimRight(curve(line, out.From, out.To), " ")
	return cells
}

// age returns how old a value is that was measured at a time, by the gateway's clock.
func age(at time.Time, latest builtin.LatestSignal) string {
	old := max(0, time.Duration(latest.Age)+latest.Time.Sub(at))
	if old > time.Minute {
		return ferrule.Duration(old.Round(time.Second)).String()
	}
	return ferrule.Duration(old.Round(time.Millisecond)).String()
}

func valueOr(v *float64, fallback float64) float64 {
	if v == nil {
		return fallback
	}
	return *v
}

// Number formats a value for people.
func Number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// curve draws a signal in one line. Each character is the mean of its part of the time
// range. A part without samples repeats the value before, unless samples may be missing.
func curve(line builtin.HistorySeries, from, to time.Time) string {
	var means [curveWidth]ferrule.Mean
	part := func(t time.Time) int {
		return int(float64(t.Sub(from)) / float64(to.Sub(from)) * curveWidth)
	}
	for _, p := range line.Points {
		means[min(max(part(p.Time), 0), curveWidth-1)].Add(p.Value, 1)
	}
	var gaps [curveWidth]bool
	for _, h := range line.Gaps {
		for i := max(part(h.From), 0); i <= min(part(h.To), curveWidth-1); i++ {
			gaps[i] = true
		}
	}
	values, last := make([]float64, curveWidth), math.NaN()
	for i := range values {
		switch {
		case means[i].Count() > 0:
			last = means[i].Value()
		case gaps[i]:
			last = math.NaN()
		}
		values[i] = last
	}
	for i := curveWidth - 1; i >= 0 && means[i].Count() == 0; i-- {
		values[i] = math.NaN() // after the last sample
	}
	return sparkline.Draw(values, curveWidth)
}

// CSV writes all points and gaps of each signal.
func CSV(w io.Writer, query Query, in builtin.HistoryInput, signals []builtin.LatestSignal) error {
	out := csv.NewWriter(w)
	out.Write([]string{"time", "signal", "unit", "value", "within", "min", "max", "count", "missing"})
	for _, s := range signals {
		in.Signals = []string{s.Name}
		if err := pages(query, in, func(page builtin.HistorySeries) error {
			for _, record := range csvRecords(page) {
				out.Write(record)
			}
			out.Flush()
			return out.Error()
		}); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// csvRecords returns the points and gaps of a signal, in order of time.
func csvRecords(line builtin.HistorySeries) (records [][]string) {
	float := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	stamp := func(t time.Time) string { return t.Local().Format(time.RFC3339Nano) }
	gaps := line.Gaps
	addGap := func(h builtin.HistoryGap) {
		records = append(records, []string{stamp(h.From), line.Name, line.Unit, "", "", "", "", "", fmt.Sprintf("%s for %v", h.Reason, h.To.Sub(h.From))})
	}
	for _, p := range line.Points {
		for len(gaps) > 0 && gaps[0].From.Before(p.Time) {
			addGap(gaps[0])
			gaps = gaps[1:]
		}
		within, count := "", ""
		if p.Within > 0 {
			within = p.Within.String()
		}
		if p.Count > 0 {
			count = strconv.Itoa(p.Count)
		}
		records = append(records, []string{stamp(p.Time), line.Name, line.Unit, float(&p.Value), within, float(p.Min), float(p.Max), count, ""})
	}
	for _, h := range gaps {
		addGap(h)
	}
	return records
}

// All returns all points and gaps of each signal.
func All(query Query, in builtin.HistoryInput, signals []builtin.LatestSignal) (builtin.HistoryOutput, error) {
	all := builtin.HistoryOutput{Device: in.Device, Signals: []builtin.HistorySeries{}}
	var err error
	if all.From, err = time.Parse(time.RFC3339Nano, in.Since); err != nil {
		return all, err
	}
	if all.To, err = time.Parse(time.RFC3339Nano, in.Until); err != nil {
		return all, err
	}
	for _, s := range signals {
		in.Signals = []string{s.Name}
		whole := builtin.HistorySeries{Name: s.Name, Unit: s.Unit, Resolution: in.Resolution, Points: []builtin.HistoryPoint{}, Gaps: []builtin.HistoryGap{}}
		if err := pages(query, in, func(page builtin.HistorySeries) error {
			whole.Resolution = page.Resolution
			whole.Points, whole.Gaps = append(whole.Points, page.Points...), append(whole.Gaps, page.Gaps...)
			return nil
		}); err != nil {
			return all, err
		}
		all.Signals = append(all.Signals, whole)
	}
	return all, nil
}

// pages calls fn with the measurements of one signal, the oldest first. If a resolution
// is requested and a page has more points than the gateway returns at once, it queries
// shorter time ranges.
func pages(query Query, in builtin.HistoryInput, fn func(builtin.HistorySeries) error) error {
	from, err := time.Parse(time.RFC3339Nano, in.Since)
	if err != nil {
		return err
	}
	until, err := time.Parse(time.RFC3339Nano, in.Until)
	if err != nil {
		return err
	}
	in.Points = pagePoints
	var lastGap time.Time // a gap that reaches into the next page is reported once
	for length := until.Sub(from); from.Before(until); {
		to := from.Add(length)
		if to.After(until) {
			to = until
		}
		in.Since, in.Until = from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano)
		out, err := query(in)
		if err != nil {
			return err
		}
		if len(out.Signals) != 1 {
			return fmt.Errorf("the gateway returned %d signals instead of 1", len(out.Signals))
		}
		page := out.Signals[0]
		if page.Truncated && in.Resolution != "" && length > 2*time.Second {
			length = (length / 2).Truncate(time.Millisecond)
			continue
		}
		page.Gaps = slices.DeleteFunc(page.Gaps, func(h builtin.HistoryGap) bool { return !h.From.After(lastGap) && !lastGap.IsZero() })
		if n := len(page.Gaps); n > 0 {
			lastGap = page.Gaps[n-1].From
		}
		if err := fn(page); err != nil {
			return err
		}
		from = to
	}
	return nil
}
