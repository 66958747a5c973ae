package console

import (
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/draw"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// chartCard is a chart with its title, range buttons and legend. A script replaces the
// picture by a curve that moves.
type chartCard struct {
	ID, Title, Unit string
	Range           timeRange
	Ranges          []rangeLink
	// Source is what a script loads to draw the chart again.
	Source string
	// Wide and Narrow are the pictures for screens and phones.
	Wide, Narrow template.HTML
	// Data is for the script.
	Data    chartData
	Names   []chartName
	Maybe   bool // a call may have run
	Problem string
	// Empty says why there is no chart.
	Empty string
}

// chartName is an entry of the legend.
type chartName struct{ Name, Class string }

// chartData is a chart for a script. Times are in milliseconds since 1970.
type chartData struct {
	Device string `json:"device"`
	Unit   string `json:"unit"`
	To     int64  `json:"to"`
	Length int64  `json:"length"`
	// Step is the width of a column, in which samples are summarized.
	Step   int64         `json:"step"`
	Series []chartSeries `json:"series"`
	Gaps   [][2]int64    `json:"gaps"`
	Calls  []chartCall   `json:"calls"`
}

// chartSeries has one column for each point. The first time is absolute, others are
// differences. Low and High are left out if they are equal to Values.
type chartSeries struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	State  bool    `json:"state,omitempty"`
	Times  []int64 `json:"t"`
	Values []short `json:"v"`
	Low    []short `json:"lo,omitempty"`
	High   []short `json:"hi,omitempty"`
}

type chartCall struct {
	Time  int64  `json:"t"`
	Tool  string `json:"tool"`
	Maybe bool   `json:"maybe,omitempty"`
}

// short is a number that is written with six digits, which are more than a curve shows.
type short float64

// MarshalJSON implements json.Marshaler.
func (s short) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s), 'g', 6, 64), nil
}

// curveColumns is the number of columns of a curve.
const curveColumns = 600

// card makes a chart of series that have one unit.
func (p past) card(f deviceFrame, group []ferrule.Series, r timeRange, wide bool) chartCard {
	names, titles := make([]string, len(group)), make([]string, len(group))
	for i, s := range group {
		names[i], titles[i] = s.Signal, signalName(s.Signal)
	}
	card := chartCard{ID: "chart-" + strings.Join(names, "-"), Title: strings.Join(titles, ", "), Unit: draw.Unit(group[0].Unit), Range: r, Problem: p.problem}
	chart := draw.Chart{ID: card.ID, Title: card.Title, Unit: card.Unit, From: p.from, To: p.to, Series: group}
	for _, call := range p.calls {
		chart.Calls = append(chart.Calls, draw.Mark{Time: call.Time, MayHaveRun: call.MayHaveRun, Text: call.Tool})
		card.Maybe = card.Maybe || call.MayHaveRun
	}
	width, height := 604, 264
	if wide {
		width, height = 1000, 280
	}
	card.Wide, card.Narrow = chart.SVG(width, height, "only-w"), chart.SVG(340, 250, "only-n")
	card.Data = p.data(f, card, group, r)
	if len(group) > 1 {
		for i := range group {
			card.Names = append(card.Names, chartName{titles[i], []string{"", "b", "c"}[i%3]})
		}
	}
	source := f.Path + "/chart?range=" + r.Name + signalQuery(names)
	if card.Source = source; wide { // the page has the buttons
		card.Source += "&wide=true"
		return card
	}
	for _, each := range timeRanges {
		query := "?range=" + each.Name + signalQuery(names)
		card.Ranges = append(card.Ranges, rangeLink{each, f.Path + "/history" + query, f.Path + "/chart" + query, each == r})
	}
	return card
}

// data returns what a script draws.
func (p past) data(f deviceFrame, card chartCard, group []ferrule.Series, r timeRange) chartData {
	d := chartData{
		Device: f.Device.ID, Unit: card.Unit, To: p.to.UnixMilli(), Length: r.length.Milliseconds(),
		Step: max(1, r.length.Milliseconds()/curveColumns), Gaps: [][2]int64{}, Calls: []chartCall{},
	}
	for _, s := range group {
		step := time.Duration(d.Step) * time.Millisecond
		switch s.Resolution {
		case ferrule.Minutes:
			step = max(step, time.Minute)
		case ferrule.Hours:
			step = max(step, time.Hour)
		}
		d.Step = step.Milliseconds()
		d.Series = append(d.Series, curveOf(s, p.from, p.to))
		for _, g := range s.Gaps {
			d.Gaps = append(d.Gaps, [2]int64{g.From.UnixMilli(), g.To.UnixMilli()})
		}
	}
	for _, call := range p.calls {
		d.Calls = append(d.Calls, chartCall{call.Time.UnixMilli(), call.Tool, call.MayHaveRun})
	}
	return d
}

// curveOf returns a series with at most curveColumns columns.
func curveOf(s ferrule.Series, from, to time.Time) chartSeries {
	out := chartSeries{Name: s.Signal, Title: signalName(s.Signal), State: s.State, Times: []int64{}, Values: []short{}}
	before, same := int64(0), true
	for _, p := range draw.Reduce(s, from, to, curveColumns) {
		at := p.Time.UnixMilli()
		out.Times, before = append(out.Times, at-before), at
		out.Values, out.Low, out.High = append(out.Values, short(p.Mean)), append(out.Low, short(p.Min)), append(out.High, short(p.Max))
		same = same && p.Min == p.Max
	}
	if same {
		out.Low, out.High = nil, nil
	}
	return out
}

// controlChart returns the chart of the Control tab: the main signal of the device. ok is
// false if nothing is measured.
func (c *Console) controlChart(v *visit, f deviceFrame, latest builtin.LatestOutput) (card chartCard, ok bool) {
	if len(latest.Signals) == 0 {
		return card, false
	}
	r := timeRanges[1]
	main := mainFirst(latest.Signals)[0]
	past, err := c.readPast(v.ctx(), v.who, f, []string{main.Name}, r)
	if err == nil && len(past.series) > 0 {
		return past.card(f, past.series, r, false), true
	}
	empty := "no values"
	if err != nil {
		empty = ferrule.AsError(err).Message
	}
	return chartCard{ID: "chart-" + main.Name, Title: signalName(main.Name), Range: r, Empty: empty}, true
}

// chartFragment writes one chart with another range.
func (c *Console) chartFragment(v *visit) error {
	f, err := c.openDevice(v, "History")
	if err != nil {
		return err
	}
	r, err := rangeOf(v)
	if err != nil {
		return err
	}
	signals := v.r.URL.Query()["signal"]
	if len(signals) == 0 || len(signals) > maxSignals {
		return ferrule.Errorf(ferrule.Invalid, "signal must be given once to %d times", maxSignals)
	}
	past, err := c.readPast(v.ctx(), v.who, f, slices.Compact(signals), r)
	if err != nil {
		return err
	}
	return c.fragment(v, http.StatusOK, "chart-card", past.card(f, past.series, r, v.r.URL.Query().Get("wide") == "true"))
}

// tabulate shows the values as a table with one row for each part of the range.
func (p *historyView) tabulate(past past) {
	step := max(time.Second, past.to.Sub(past.from)/tableRows).Truncate(time.Second)
	rows := make(map[time.Time]*tableRow)
	row := func(t time.Time) *tableRow {
		if t = t.Truncate(step); rows[t] == nil {
			rows[t] = &tableRow{Time: t, Values: make([]string, len(past.series))}
		}
		return rows[t]
	}
	for i, s := range past.series {
		name := signalName(s.Signal)
		if unit := draw.Unit(s.Unit); unit != "" {
			name += ", " + unit
		}
		p.Columns = append(p.Columns, name)
		for _, point := range draw.Columns(s, past.from, past.to, step) {
			text := draw.Number(point.Mean)
			if point.Min != point.Max {
				text += " (" + draw.Number(point.Min) + " to " + draw.Number(point.Max) + ")"
			}
			row(point.Time).Values[i] = text
		}
		for _, g := range s.Gaps {
			if g.From.Before(past.to) && g.To.After(past.from) && g.To.Sub(g.From) >= step {
				row(g.From).Gap = "No data for " + draw.Length(g.To.Sub(g.From))
			}
		}
	}
	for _, r := range rows {
		p.Table = append(p.Table, *r)
	}
	slices.SortFunc(p.Table, func(a, b tableRow) int { return b.Time.Compare(a.Time) })
}
