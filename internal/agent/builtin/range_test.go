package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// recorded has measured values, and records queries.
type recorded struct {
	series map[string][]ferrule.Series
	asked  *ferrule.HistoryQuery
	now    []ferrule.Latest // signals without stored samples
}

func (r *recorded) Latest(_ context.Context, device string) (all []ferrule.Latest, err error) {
	for _, c := range r.series[device] {
		last := c.Points[len(c.Points)-1]
		all = append(all, ferrule.Latest{Signal: c.Signal, Unit: c.Unit, Sample: ferrule.Sample{Time: last.Time, Value: last.Mean, Within: last.Within}})
	}
	return append(all, r.now...), nil
}

func (r *recorded) Series(_ context.Context, span ferrule.HistoryQuery) (found []ferrule.Series, err error) {
	*r.asked = span
	for _, name := range span.Signals {
		for _, c := range r.series[span.Device] {
			if c.Signal != name {
				continue
			}
			if span.Resolution != "" {
				c.Resolution = span.Resolution
			}
			found = append(found, c)
		}
	}
	return found, nil
}

// someSignals has two signals of a, many of b, and none of c.
func someSignals() *recorded {
	now := time.Now()
	light := ferrule.Series{Signal: "light", Unit: "lx", Resolution: ferrule.Raw, Gaps: []ferrule.Gap{{From: now.Add(-50 * time.Second), To: now.Add(-40 * time.Second), Reason: ferrule.Lost, MaxMissing: 20}}}
	for i := range 100 {
		light.Points = append(light.Points, ferrule.Sample{Time: now.Add(time.Duration(i-100) * time.Second), Value: float64(i), Within: ferrule.Duration(1234567)}.Point())
	}
	warm := ferrule.Series{Signal: "warm", Unit: "°C", Resolution: ferrule.Minutes, Points: []ferrule.Point{{Time: now.Add(-time.Hour), Min: 1, Max: 3, Mean: 2, Count: 120}}, Truncated: true}
	r := &recorded{series: map[string][]ferrule.Series{"a": {light, warm}}, asked: &ferrule.HistoryQuery{}}
	for i := range 9 {
		one := light
		one.Signal = fmt.Sprint("s", i)
		r.series["b"] = append(r.series["b"], one)
	}
	return r
}

// answers returns the same rows for every query.
type answers struct{}

func (answers) Ask(_ context.Context, query string, rows int) ([]string, []json.RawMessage, bool, error) {
	if !strings.HasPrefix(query, "SELECT") {
		return nil, nil, false, ferrule.Errorf(ferrule.Invalid, "a question begins with SELECT")
	}
	return []string{"n", "text"}, []json.RawMessage{json.RawMessage(`[9007199254740993,"a"]`), json.RawMessage(`[null,1.5]`)}, rows == 2, nil
}

// callLog has calls to a device.
type callLog struct {
	calls []ferrule.Entry
	err   error
}

func (d callLog) Calls(context.Context, string, time.Time, time.Time) ([]ferrule.Entry, error) {
	return d.calls, d.err
}

// code returns the code of an error.
func code(err error) ferrule.Code {
	if err == nil {
		return ""
	}
	return ferrule.AsError(err).Code
}

func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		past := someSignals()
		b := newSet(t, builtin.Latest(someDevices(), nil, past))
		time.Sleep(2500 * time.Millisecond)
		var out builtin.LatestOutput
		if err := call(t, b, ferrule.Agent, "latest", `{"device":"a"}`, &out); err != nil {
			t.Fatal(err)
		}
		l := out.Signals[0]
		if len(out.Signals) != 2 || l.Name != "light" || l.Earlier != nil || l.Value != 99 || l.Unit != "lx" || l.Age.String() != "3.5s" || l.Within.String() != "1.235ms" || l.Time.Location() != time.UTC {
			t.Errorf("got %+v", out)
		}
		if out.Signals[1].Age.String() != "1h0m3s" {
			t.Errorf("got %+v", out.Signals[1])
		}
		if err := call(t, b, ferrule.Agent, "latest", `{"device":"c"}`, &out); err != nil || len(out.Signals) != 0 {
			t.Errorf("%+v, %v", out, err)
		}
		if err := call(t, b, ferrule.Agent, "latest", `{"device":"a","signal":"light"}`, &out); err != nil || len(out.Signals) != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
		if l := out.Signals[0]; l.Value != 99 || len(l.Earlier) != 99 || l.Earlier[98].Value != 98 || past.asked.Points != 10 || past.asked.Resolution != ferrule.Raw {
			t.Errorf("%+v", l)
		}
		for _, args := range []string{`{"device":"a","signal":"dark"}`, `{"device":"c","signal":"light"}`} {
			if err := call(t, b, ferrule.Agent, "latest", args, &out); code(err) != ferrule.NotFound {
				t.Errorf("%s: %v", args, err)
			}
		}
	})
}

// TestVisible checks that agents cannot see values of a pending device.
func TestVisible(t *testing.T) {
	past := someSignals()
	b := newSet(t, builtin.Latest(someDevices(), nil, past), builtin.History(someDevices(), nil, past), builtin.Plot(someDevices(), nil, past, callLog{}, func(builtin.Chart) ([]byte, error) { return nil, nil }))
	for _, tool := range []string{"latest", "history", "plot"} {
		args := `{"device":"b","signals":["s1"]}`
		if tool == "latest" {
			args = `{"device":"b"}`
		}
		for _, test := range []struct {
			role   ferrule.Role
			device string
			want   ferrule.Code
		}{{ferrule.Agent, "b", ferrule.NotFound}, {ferrule.Person, "b", ""}, {ferrule.Person, "nobody", ferrule.NotFound}, {ferrule.Person, "gateway", ferrule.NotFound}} {
			_, err := b.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: test.role}, Tool: tool, Args: json.RawMessage(strings.Replace(args, `"b"`, `"`+test.device+`"`, 1))})
			if code(err) != test.want {
				t.Errorf("%s of %s for %s: %v", tool, test.device, test.role, err)
			}
		}
	}
}

// TestHistory checks time ranges, selected signals and results.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		past := someSignals()
		b := newSet(t, builtin.History(someDevices(), nil, past))
		now := time.Now()
		var out builtin.HistoryOutput
		for _, test := range []struct {
			args     string
			from, to time.Time
			want     string
		}{
			{`{"device":"a"}`, now.Add(-time.Hour), now, "light warm raw/100/1 minute/1/0 100"},
			{`{"device":"a","signals":["warm"],"since":"2h","points":7}`, now.Add(-2 * time.Hour), now, "warm minute/1/0 7"},
			{`{"device":"a","signals":["warm","light"],"since":"7d","until":"1h30m"}`, now.AddDate(0, 0, -7), now.Add(-90 * time.Minute), "warm light minute/1/0 raw/100/1 100"},
			{`{"device":"a","until":"1h","resolution":"hour"}`, now.Add(-2 * time.Hour), now.Add(-time.Hour), "light warm hour/100/1 hour/1/0 100"},
			{`{"device":"a","signals":["light"],"since":"1999-12-31T23:00:00Z","until":"1999-12-31T23:30:00+00:00"}`, time.Date(1999, 12, 31, 23, 0, 0, 0, time.UTC), time.Date(1999, 12, 31, 23, 30, 0, 0, time.UTC), "light raw/100/1 100"},
		} {
			if err := call(t, b, ferrule.Agent, "history", test.args, &out); err != nil {
				t.Errorf("%s: %v", test.args, err)
				continue
			}
			got := slices.Clone(past.asked.Signals)
			for _, s := range out.Signals {
				got = append(got, fmt.Sprintf("%s/%d/%d", s.Resolution, len(s.Points), len(s.Gaps)))
			}
			got = append(got, fmt.Sprint(past.asked.Points))
			if !past.asked.From.Equal(test.from) || !past.asked.To.Equal(test.to) || !out.From.Equal(test.from) || strings.Join(got, " ") != test.want {
				t.Errorf("%s: from %v to %v, %q", test.args, past.asked.From, past.asked.To, got)
			}
		}
		out = builtin.HistoryOutput{}
		if err := call(t, b, ferrule.Agent, "history", `{"device":"a"}`, &out); err != nil {
			t.Fatal(err)
		}
		raw, rows := out.Signals[0], out.Signals[1]
		if p := raw.Points[0]; p.Value != 0 || p.Min != nil || p.Count != 0 || raw.Truncated {
			t.Errorf("%+v", p)
		}
		if p := rows.Points[0]; p.Value != 2 || *p.Min != 1 || *p.Max != 3 || p.Count != 120 || !rows.Truncated {
			t.Errorf("%+v", p)
		}
		if h := raw.Gaps[0]; h.Reason != "lost" || h.MaxMissing != 20 || h.To.Sub(h.From) != 10*time.Second {
			t.Errorf("%+v", h)
		}
		for args, want := range map[string]ferrule.Code{
			`{"device":"a","signals":["dark"]}`:          ferrule.NotFound,
			`{"device":"a","signals":["light","light"]}`: ferrule.Invalid,
			`{"device":"c"}`:                             ferrule.NotFound,
			`{"device":"a","since":"yesterday"}`:         ferrule.Invalid,
			`{"device":"a","since":"-1h"}`:               ferrule.Invalid,
			`{"device":"a","since":"1h","until":"2h"}`:   ferrule.Invalid,
			`{"device":"a","points":-1}`:                 ferrule.Invalid,
			`{"device":"a","points":1001}`:               ferrule.Invalid,
			`{"device":"a","resolution":"day"}`:          ferrule.Invalid,
		} {
			if err := call(t, b, ferrule.Agent, "history", args, &out); code(err) != want {
				t.Errorf("%s: %v", args, err)
			}
		}
		if err := call(t, b, ferrule.Person, "history", `{"device":"a","points":10000}`, &out); err != nil {
			t.Errorf("a person cannot have many points: %v", err)
		}
		err := call(t, b, ferrule.Person, "history", `{"device":"b"}`, &out)
		if code(err) != ferrule.Invalid || !strings.Contains(ferrule.AsError(err).Hint, "s0, s1") {
			t.Errorf("all of nine signals: %v", err)
		}
	})
}

// TestPlot checks that the result is an image with a description, sized by its units.
func TestPlot(t *testing.T) {
	past := someSignals()
	var drawn builtin.Chart
	var wrong error
	book := &callLog{calls: []ferrule.Entry{{Tool: "gpio_write"}}}
	b := newSet(t, builtin.Plot(someDevices(), nil, past, book, func(p builtin.Chart) ([]byte, error) {
		drawn = p
		return []byte("a picture"), wrong
	}))
	if out := b.Manifest().Tool("plot").Output; out != nil {
		t.Errorf("it declares %s", out)
	}
	plot := func(args string) (*ferrule.Result, error) {
		return b.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Agent}, Tool: "plot", Args: json.RawMessage(args)})
	}
	result, err := plot(`{"device":"a"}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Content) != 2 || result.Value != nil {
		t.Fatalf("got %+v", result)
	}
	image, text := result.Content[0], result.Content[1].Text
	if image.Type != ferrule.ImageContent || image.MIME != "image/png" || string(image.Data) != "a picture" {
		t.Errorf("got %+v", image)
	}
	for _, want := range []string{"a from ", "light in lx: min 0, max 99, mean 49.5, last 99; one point per sample, gaps 1.", "warm in °C: min 1, max 3, mean 2, last 2; one point per minute, older points left out.", "Marked calls: 1."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if gaps := drawn.Series[1].Gaps; len(gaps) != 1 || !gaps[0].From.Equal(drawn.From) || !gaps[0].To.Equal(drawn.Series[1].Points[0].Time) {
		t.Errorf("what is left out looks as if it had not been measured: %+v", gaps)
	}
	if drawn.Width != 1000 || drawn.Height != 520 || len(drawn.Series) != 2 || len(drawn.Calls) != 1 || drawn.Title != "a" {
		t.Errorf("drawn %dx%d, %d curves, %d calls", drawn.Width, drawn.Height, len(drawn.Series), len(drawn.Calls))
	}
	book.calls, book.err = nil, errors.New("the disk is slow")
	if result, err = plot(`{"device":"a","signals":["light"],"width":700,"height":300}`); err != nil || drawn.Width != 700 || drawn.Height != 300 {
		t.Errorf("%dx%d, %v", drawn.Width, drawn.Height, err)
	} else if text := result.Content[1].Text; !strings.Contains(text, "Some calls are not marked: the disk is slow.") {
		t.Errorf("got %s", text)
	}
	delete(past.series, "a") // it was measured just now
	past.now = []ferrule.Latest{{Signal: "light"}}
	if result, err = plot(`{"device":"a"}`); err != nil || len(drawn.Series) != 1 || !strings.Contains(result.Content[1].Text, "light: no values.") {
		t.Errorf("%+v, %v", drawn.Series, err)
	}
	wrong = errors.New("it is too small")
	if _, err := plot(`{"device":"a"}`); code(err) != ferrule.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestSQL(t *testing.T) {
	b := newSet(t, builtin.SQL(someDevices(), nil, answers{}, "samples(value)"))
	result, err := b.Handle(t.Context(), &ferrule.Call{Tool: "sql", Args: json.RawMessage(`{"query":"SELECT 1","rows":2}`)})
	if want := `{"columns":["n","text"],"rows":[[9007199254740993,"a"],[null,1.5]],"more":true}`; err != nil || string(result.Value) != want {
		t.Errorf("%s, %v", result.Value, err)
	}
	if _, err := b.Handle(t.Context(), &ferrule.Call{Tool: "sql", Args: json.RawMessage(`{"query":"DROP"}`)}); code(err) != ferrule.Invalid {
		t.Errorf("got %v", err)
	}
	if text := b.Manifest().Tool("sql").Text; !strings.Contains(text, "samples(value)") {
		t.Errorf("it says %s", text)
	}
}
