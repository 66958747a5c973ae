package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

const (
	curveWidth  = 40     // characters of a curve in the table
	curvePoints = 1000   // which are made of at most so many
	pagePoints  = 10_000 // of a signal, at once
)

// pastTeller tells what was measured: the gateway.
type pastTeller func(in builtin.HistoryInput) (builtin.HistoryOutput, error)

// tablePast shows a line for each signal.
func (a *app) tablePast(ask pastTeller, in builtin.HistoryInput, signals []builtin.LatestSignal) error {
	if len(signals) == 0 {
		_, err := fmt.Fprintf(a.stdout, "Nothing was measured of %s. A device is measured if it says what it samples, or if an overlay names a tool to be polled.\n", in.Device)
		return err
	}
	var rows [][]string
	in.Points = curvePoints
	for _, s := range signals {
		in.Signals = []string{s.Name}
		out, err := ask(in)
		if err != nil {
			return err
		}
		rows = append(rows, pastRow(s, out))
	}
	return a.table("SIGNAL LAST UNIT AGO LEAST MEAN MOST CURVE", rows, func(_, cell string) string { return cell })
}

// pastRow is the line of a signal.
func pastRow(s builtin.LatestSignal, out builtin.HistoryOutput) []string {
	row := []string{s.Name, number(s.Value), s.Unit, s.Age.String(), "", "", "", ""}
	if len(out.Signals) == 0 || len(out.Signals[0].Points) == 0 {
		return row
	}
	line := out.Signals[0]
	low, high := math.Inf(1), math.Inf(-1)
	var all ferrule.Mean
	for _, p := range line.Points {
		low, high = min(low, p.Value, or(p.Min, p.Value)), max(high, p.Value, or(p.Max, p.Value))
		all.Add(p.Value, max(1, float64(p.Count)))
	}
	row[4], row[5], row[6], row[7] = number(low), number(all.Value()), number(high), strings.TrimRight(curveOf(line, out.From, out.To), " ")
	return row
}

func or(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

// number is a value as people read it.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// curveOf draws a signal in one line: the mean of what lies in each part of the time. A
// part without a value is as the one before, unless samples may be missing there.
func curveOf(line builtin.HistorySeries, from, to time.Time) string {
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
		values[i] = math.NaN() // nothing is known of it
	}
	return sparkline(values, curveWidth)
}

// exportCSV writes all points of each signal, and where some may be missing.
func (a *app) exportCSV(ask pastTeller, in builtin.HistoryInput, signals []builtin.LatestSignal) error {
	out := csv.NewWriter(a.stdout)
	out.Write([]string{"time", "signal", "unit", "value", "within", "min", "max", "count", "missing"})
	for _, s := range signals {
		in.Signals = []string{s.Name}
		if err := pages(ask, in, func(page builtin.HistorySeries) error {
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

// csvRecords are the points and holes of a signal, by time.
func csvRecords(line builtin.HistorySeries) (records [][]string) {
	float := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	stamp := func(t time.Time) string { return t.Local().Format(time.RFC3339Nano) }
	holes := line.Gaps
	tell := func(h builtin.HistoryGap) {
		records = append(records, []string{stamp(h.From), line.Name, line.Unit, "", "", "", "", "", fmt.Sprintf("%s for %v", h.Reason, h.To.Sub(h.From))})
	}
	for _, p := range line.Points {
		for len(holes) > 0 && holes[0].From.Before(p.Time) {
			tell(holes[0])
			holes = holes[1:]
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
	for _, h := range holes {
		tell(h)
	}
	return records
}

// exportJSON writes all points of each signal.
func (a *app) exportJSON(ask pastTeller, in builtin.HistoryInput, signals []builtin.LatestSignal) error {
	all := builtin.HistoryOutput{Device: in.Device, Signals: []builtin.HistorySeries{}}
	var err error
	if all.From, err = time.Parse(time.RFC3339Nano, in.Since); err != nil {
		return err
	}
	if all.To, err = time.Parse(time.RFC3339Nano, in.Until); err != nil {
		return err
	}
	for _, s := range signals {
		in.Signals = []string{s.Name}
		whole := builtin.HistorySeries{Name: s.Name, Unit: s.Unit, Resolution: in.Resolution, Points: []builtin.HistoryPoint{}, Gaps: []builtin.HistoryGap{}}
		if err := pages(ask, in, func(page builtin.HistorySeries) error {
			whole.Resolution = page.Resolution
			whole.Points, whole.Gaps = append(whole.Points, page.Points...), append(whole.Gaps, page.Gaps...)
			return nil
		}); err != nil {
			return err
		}
		all.Signals = append(all.Signals, whole)
	}
	return a.printJSON(all)
}

// pages calls fn with the past of one signal, the oldest first. Where a grain is asked for
// there may be more of it than the gateway tells at once: then it is asked for shorter
// times.
func pages(ask pastTeller, in builtin.HistoryInput, fn func(builtin.HistorySeries) error) error {
	from, err := time.Parse(time.RFC3339Nano, in.Since)
	if err != nil {
		return err
	}
	until, err := time.Parse(time.RFC3339Nano, in.Until)
	if err != nil {
		return err
	}
	in.Points = pagePoints
	var told time.Time // where the last hole begins: it may reach into the next page
	for length := until.Sub(from); from.Before(until); {
		to := from.Add(length)
		if to.After(until) {
			to = until
		}
		in.Since, in.Until = from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano)
		out, err := ask(in)
		if err != nil {
			return err
		}
		if len(out.Signals) != 1 {
			return fmt.Errorf("the gateway told of %d signals", len(out.Signals))
		}
		page := out.Signals[0]
		if page.Truncated && in.Resolution != "" && length > 2*time.Second {
			length = (length / 2).Truncate(time.Millisecond)
			continue
		}
		page.Gaps = slices.DeleteFunc(page.Gaps, func(h builtin.HistoryGap) bool { return !h.From.After(told) && !told.IsZero() })
		if n := len(page.Gaps); n > 0 {
			told = page.Gaps[n-1].From
		}
		if err := fn(page); err != nil {
			return err
		}
		from = to
	}
	return nil
}
