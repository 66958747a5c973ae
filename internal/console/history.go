package console

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/console/api"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// historyRoutes adds the pages of the tabs of a device that show its past: history, events,
// resources, wire.
func (c *Console) historyRoutes() {
	c.page("GET /devices/{device}/history", c.historyPage)
	c.page("GET /devices/{device}/history.csv", c.historyCSV)
	c.page("GET /devices/{device}/chart", c.chartFragment)
	c.livePage("GET /live/devices/{device}/history", func(v *visit) (live, error) {
		f, err := c.openDevice(v, "History")
		return together{&deviceLive{c, v, f.Device.ID, nil}, c.curvesOf(f, v.who)}, err
	})
	c.eventsRoutes()
	c.resourcesRoutes()
	c.wireRoutes()
}

// timeRange is how far back a chart shows.
type timeRange struct {
	// Name is the value of the parameter range, and Words are on the button.
	Name, Words string
	// Title is what the header of a chart says.
	Title  string
	length time.Duration
}

var timeRanges = []timeRange{
	{"15m", "15 min", "last 15 minutes", 15 * time.Minute},
	{"1h", "1 h", "last hour", time.Hour},
	{"24h", "24 h", "last 24 hours", 24 * time.Hour},
	{"7d", "7 d", "last 7 days", 7 * 24 * time.Hour},
}

// rangeOf returns the range that a request names; an hour if it names none.
func rangeOf(v *visit) (timeRange, error) {
	name := v.r.URL.Query().Get("range")
	if name == "" {
		name = "1h"
	}
	if i := slices.IndexFunc(timeRanges, func(r timeRange) bool { return r.Name == name }); i >= 0 {
		return timeRanges[i], nil
	}
	return timeRange{}, ferrule.Errorf(ferrule.Invalid, "range must be 15m, 1h, 24h or 7d, got %q", ferrule.Clean(name, ferrule.MaxWord))
}

// Limits of a page.
const (
	maxSignals     = 8    // in one query
	defaultSignals = 4    // that are drawn unless others are selected
	historyPoints  = 4000 // per signal: the samples of an hour, one each second
	tableRows      = 120  // of a table, about
)

// historyView is what the tab shows.
type historyView struct {
	deviceFrame
	Range   timeRange
	Ranges  []rangeLink
	Signals []signalChoice
	// Charts has one chart for each unit.
	Charts []chartCard
	// Table is set if the values are shown as a table; TableURL leads there or back.
	Table    []tableRow
	Columns  []string
	AsTable  bool
	TableURL string
	CSV      string
	// Empty and Hint say why there is nothing.
	Empty, Hint string
}

// signalChoice is a signal that can be selected.
type signalChoice struct {
	Name, Title, Unit string
	Selected          bool
}

// rangeLink is a button that selects a range.
type rangeLink struct {
	timeRange
	URL string
	// Get is what a script loads in place of the page; it may be empty.
	Get     string
	Current bool
}

// tableRow is one point in time.
type tableRow struct {
	Time   time.Time
	Values []string
	Gap    string
}

func (c *Console) historyPage(v *visit) error {
	f, err := c.openDevice(v, "History")
	if err != nil {
		return err
	}
	p := historyView{deviceFrame: f, AsTable: v.r.URL.Query().Get("view") == "table"}
	if p.Range, err = rangeOf(v); err != nil {
		return err
	}
	latest, err := c.api.Latest(v.ctx(), v.who, builtin.LatestInput{Device: f.Device.ID})
	if err == nil && len(latest.Signals) == 0 {
		err = ferrule.Errorf(ferrule.NotFound, "no measured values of %s", f.Device.ID).
			WithHint("A device is polled if it declares sampling, or if an overlay names a tool to poll.")
	}
	if err == nil {
		err = p.fill(v, c, latest)
	}
	if err != nil {
		if e := ferrule.AsError(err); e.Code != ferrule.Invalid {
			p.Empty, p.Hint = e.Message, e.Hint
		} else {
			return err
		}
	}
	return c.renderDevice(v, http.StatusOK, f, page{Live: "/live" + f.Path + "/history"}, "history", p)
}

// fill reads the values of the selected signals.
func (p *historyView) fill(v *visit, c *Console, latest builtin.LatestOutput) error {
	selected := p.choose(latest, v.r.URL.Query()["signal"])
	query := signalQuery(selected)
	for _, r := range timeRanges {
		url := p.Path + "/history?range=" + r.Name + query
		if p.AsTable {
			url += "&view=table"
		}
		p.Ranges = append(p.Ranges, rangeLink{r, url, "", r == p.Range})
	}
	p.CSV = p.Path + "/history.csv?range=" + p.Range.Name + query
	if p.TableURL = p.Path + "/history?range=" + p.Range.Name + query; !p.AsTable {
		p.TableURL += "&view=table"
	}
	past, err := c.readPast(v.ctx(), v.who, p.deviceFrame, selected, p.Range)
	if err != nil {
		return err
	}
	if p.AsTable {
		p.tabulate(past)
		return nil
	}
	for _, group := range past.byUnit() {
		p.Charts = append(p.Charts, past.card(p.deviceFrame, group, p.Range, true))
	}
	return nil
}

// choose returns the names of the selected signals: those that are named, else the first.
func (p *historyView) choose(latest builtin.LatestOutput, named []string) (selected []string) {
	for _, s := range mainFirst(latest.Signals) {
		on := slices.Contains(named, s.Name) || len(named) == 0 && len(selected) < defaultSignals
		if on = on && len(selected) < maxSignals; on {
			selected = append(selected, s.Name)
		}
		p.Signals = append(p.Signals, signalChoice{s.Name, signalName(s.Name), s.Unit, on})
	}
	return selected
}

// mainFirst returns signals that have a unit before others.
func mainFirst(all []builtin.LatestSignal) []builtin.LatestSignal {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b builtin.LatestSignal) int {
		switch {
		case a.Unit != "" && b.Unit == "":
			return -1
		case a.Unit == "" && b.Unit != "":
			return 1
		}
		return 0
	})
	return all
}

// signalQuery returns signals as parameters of a URL. Their names are safe there.
func signalQuery(names []string) (query string) {
	for _, name := range names {
		query += "&signal=" + ferrule.SignalName(name)
	}
	return query
}

// past is what a chart is made of.
type past struct {
	from, to time.Time
	series   []ferrule.Series
	calls    []api.CallMark
	problem  string // why calls are missing
}

// readPast reads signals of a device.
func (c *Console) readPast(ctx context.Context, who ferrule.Principal, f deviceFrame, signals []string, r timeRange) (past, error) {
	out, err := c.api.History(ctx, who, historyInput(f, signals, r))
	if err != nil {
		return past{}, err
	}
	p := past{from: out.From, to: out.To}
	for _, s := range out.Signals {
		p.series = append(p.series, seriesOf(s, f.Device, out.To))
	}
	marks, err := c.api.Calls(ctx, who, api.CallsInput{Device: f.Device.ID, Since: out.From, Until: out.To})
	if err != nil {
		return past{}, err
	}
	p.calls, p.problem = marks.Calls, marks.Problem
	return p, nil
}

// historyInput selects signals of a device.
func historyInput(f deviceFrame, signals []string, r timeRange) builtin.HistoryInput {
	since := strconv.Itoa(int(r.length.Minutes())) + "m"
	return builtin.HistoryInput{RangeInput: builtin.RangeInput{Device: f.Device.ID, Signals: signals, Since: since}, Points: historyPoints}
}

// seriesOf returns a series of the tool history. While a device is not online, nothing is
// known after the last sample.
func seriesOf(s builtin.HistorySeries, dev *ferrule.Device, to time.Time) ferrule.Series {
	series := ferrule.Series{Signal: s.Name, Unit: s.Unit, Resolution: ferrule.Resolution(s.Resolution), State: s.State, Truncated: s.Truncated}
	for _, p := range s.Points {
		point := ferrule.Point{Time: p.Time, Mean: p.Value, Min: p.Value, Max: p.Value, Count: 1}
		if p.Min != nil && p.Max != nil {
			point.Min, point.Max, point.Count = *p.Min, *p.Max, p.Count
		}
		series.Points = append(series.Points, point)
	}
	for _, g := range s.Gaps {
		series.Gaps = append(series.Gaps, ferrule.Gap{From: g.From, To: g.To, Reason: ferrule.GapReason(g.Reason), MaxMissing: g.MaxMissing})
	}
	if s.Last != nil {
		series.Last = &ferrule.Sample{Time: s.Last.Time, Value: s.Last.Value}
	}
	if n := len(series.Points); dev.State != ferrule.StateOnline && n > 0 && series.Points[n-1].Time.Before(to) {
		series.Gaps = append(series.Gaps, ferrule.Gap{From: series.Points[n-1].Time, To: to, Reason: ferrule.Silent})
	}
	return series
}

// byUnit groups the series: those with the same unit are in one chart, and one without a
// unit is alone.
func (p past) byUnit() (groups [][]ferrule.Series) {
	for _, s := range p.series {
		i := slices.IndexFunc(groups, func(g []ferrule.Series) bool {
			return s.Unit != "" && g[0].Unit == s.Unit && g[0].State == s.State && len(g) < 3
		})
		if i < 0 {
			groups = append(groups, []ferrule.Series{s})
		} else {
			groups[i] = append(groups[i], s)
		}
	}
	return groups
}

// historyCSV writes the selected signals as a file for spreadsheets.
func (c *Console) historyCSV(v *visit) error {
	f, err := c.openDevice(v, "History")
	if err != nil {
		return err
	}
	r, err := rangeOf(v)
	if err != nil {
		return err
	}
	out, err := c.api.History(v.ctx(), v.who, historyInput(f, v.r.URL.Query()["signal"], r))
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%s.csv"`, ferrule.SignalName(f.Device.ID), r.Name))
	w := csv.NewWriter(v.w)
	w.Write([]string{"time", "signal", "unit", "value", "min", "max", "count"})
	number := func(n *float64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatFloat(*n, 'g', -1, 64)
	}
	for _, s := range out.Signals {
		for _, p := range s.Points {
			w.Write([]string{p.Time.Format(time.RFC3339Nano), s.Name, plainCell(s.Unit), number(&p.Value), number(p.Min), number(p.Max), strconv.Itoa(max(1, p.Count))})
		}
	}
	w.Flush()
	return w.Error()
}

// plainCell returns a text that no spreadsheet takes for a formula.
func plainCell(text string) string {
	if text != "" && slices.Contains([]byte("=+-@\t\r"), text[0]) {
		return "'" + text
	}
	return text
}
