package draw

import (
	"encoding/xml"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var start = time.Date(2026, 3, 1, 13, 32, 0, 0, time.UTC)

// points returns a value for each minute from the start.
func points(values ...float64) (all []ferrule.Point) {
	for i, v := range values {
		all = append(all, ferrule.Sample{Time: start.Add(time.Duration(i) * time.Minute), Value: v}.Point())
	}
	return all
}

// element is an element of an SVG.
type element struct {
	name string
	attr map[string]string
	text string
}

// parse returns the elements of an SVG. It fails if the text is not well formed, or has
// something that the pages forbid.
func parse(t *testing.T, svg template.HTML) (all []element) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(string(svg)))
	var open []int
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{token.Name.Local, map[string]string{}, ""}
			for _, a := range token.Attr {
				if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("attribute %s is forbidden", a.Name.Local)
				}
				if a.Name.Local != "aria-label" && (strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf")) {
					t.Errorf("%s = %s is not a number", a.Name.Local, a.Value)
				}
				e.attr[a.Name.Local] = a.Value
			}
			switch e.name {
			case "svg", "title", "defs", "pattern", "path", "rect", "circle", "text", "g":
			default:
				t.Errorf("element %s is unexpected", e.name)
			}
			open = append(open, len(all))
			all = append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
}

func byClass(all []element, class string) (found []element) {
	for _, e := range all {
		if e.attr["class"] == class {
			found = append(found, e)
		}
	}
	return found
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNumber(t *testing.T) {
	for _, test := range []struct {
		v    float64
		want string
	}{
		{0, "0"}, {math.Copysign(0, -1), "0"}, {1.84, "1.84"}, {-31.5, "−31.5"}, {42, "42"}, {12.02, "12.02"}, {23.456, "23.46"},
		{1013.25, "1013"}, {123456.7, "123457"}, {0.1, "0.1"}, {0.00123, "0.0012"}, {1.0 / 3, "0.3333"}, {999.96, "1000"}, {-0.00001, "−1e−5"},
		{1.5e12, "1.5e12"}, {math.MaxFloat64, "1.798e308"}, {math.NaN(), "–"}, {math.Inf(1), "–"}, {math.Inf(-1), "–"},
	} {
		if got := Number(test.v); got != test.want {
			t.Errorf("Number(%v) = %q, want %q", test.v, got, test.want)
		}
	}
	if got := Value(23.4, "°C"); got != "23.4 °C" {
		t.Error(got)
	}
	if got := Value(12, "°"); got != "12°" {
		t.Error(got)
	}
	if got := Value(1, "a\u202eb\x00"+strings.Repeat("x", 99)); len(got) > 2+ferrule.MaxUnit || strings.ContainsAny(got, "\u202e\x00") {
		t.Errorf("%q", got)
	}
}

func TestLength(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 40 * time.Millisecond: "40 ms", 90 * time.Second: "90 s", 8 * time.Minute: "8 min",
		time.Hour: "1 h", 65 * time.Minute: "1 h 5 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := Length(d); got != want {
			t.Errorf("Length(%v) = %q, want %q", d, got, want)
		}
	}
}

// TestSpark checks that a line breaks at a gap, and that the gap is drawn where it is.
func TestSpark(t *testing.T) {
	all := points(1, 2, 3, 4, 5, 4, 3, 2, 1, 0)
	gap := ferrule.Gap{From: start.Add(4 * time.Minute), To: start.Add(5 * time.Minute)}
	svg := parse(t, Spark(ferrule.Series{Points: all, Gaps: []ferrule.Gap{gap}}, start, start.Add(10*time.Minute)))
	if n := len(byClass(svg, "ln")); n != 2 {
		t.Errorf("%d lines, want one on each side of the gap", n)
	}
	rects := byClass(svg, "gp")
	if len(rects) != 1 || rects[0].attr["x"] != "48" || rects[0].attr["width"] != "12" {
		t.Errorf("gap is %v, want x=48 width=12", rects)
	}
}

// TestSparkKeepsNoiseFlat checks that noise below 3 % of the value does not fill the height.
func TestSparkKeepsNoiseFlat(t *testing.T) {
	for _, test := range []struct {
		values  []float64
		minHigh float64
		maxHigh float64
	}{
		{[]float64{100, 100.1, 99.9, 100}, 0, 3},
		{[]float64{100, 110, 90, 100}, 21.9, 22},
		{[]float64{5, 5, 5}, 0, 0},
		{[]float64{0, 0, 0}, 0, 0},
		{[]float64{-math.MaxFloat64, math.MaxFloat64}, 21.9, 22},
	} {
		svg := parse(t, Spark(ferrule.Series{Points: points(test.values...)}, start, start.Add(time.Hour)))
		low, high := 99.0, -1.0
		for _, line := range byClass(svg, "ln") {
			for _, pair := range strings.FieldsFunc(line.attr["d"], func(r rune) bool { return r == 'M' || r == 'L' }) {
				_, y, _ := strings.Cut(pair, " ")
				low, high = min(low, number(t, y)), max(high, number(t, y))
			}
		}
		if got := high - low; got < test.minHigh || got > test.maxHigh {
			t.Errorf("%v fills %v of 22 pixels, want %v to %v", test.values, got, test.minHigh, test.maxHigh)
		}
	}
}

// TestSparkIsBounded checks that many samples make a small picture.
func TestSparkIsBounded(t *testing.T) {
	var many []ferrule.Point
	for i := range 36000 {
		many = append(many, ferrule.Sample{Time: start.Add(time.Duration(i) * 100 * time.Millisecond), Value: math.Sin(float64(i))}.Point())
	}
	svg := Spark(ferrule.Series{Points: many}, start, start.Add(time.Hour))
	parse(t, svg)
	if len(svg) > 2000 {
		t.Errorf("a sparkline has %d bytes", len(svg))
	}
	gaps := make([]ferrule.Gap, len(many))
	for i := range gaps {
		gaps[i] = ferrule.Gap{From: many[i].Time, To: many[i].Time.Add(time.Millisecond)}
	}
	broken := ferrule.Series{Points: many[:2000], Gaps: gaps[:2000]}
	if n := len(Reduce(broken, start, start.Add(time.Hour), 100)); n > 200 {
		t.Errorf("%d points for 100 columns", n)
	}
	for name, svg := range map[string]template.HTML{"sparkline": Spark(broken, start, start.Add(time.Hour)), "chart": Chart{From: start, To: start.Add(time.Hour), Series: []ferrule.Series{broken}}.SVG(600, 264, "")} {
		if len(svg) > 40_000 {
			t.Errorf("a %s with many gaps has %d bytes", name, len(svg))
		}
	}
	c := Chart{From: start, To: start.Add(time.Hour), Series: []ferrule.Series{{Points: many}}}.SVG(600, 264, "")
	parse(t, c)
	if len(c) > 20_000 {
		t.Errorf("a chart has %d bytes", len(c))
	}
}

// TestOddValues checks that numbers that cannot be drawn are left out.
func TestOddValues(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 0}
	for i := range odd {
		for j := range odd {
			all := points(odd[i], odd[j], odd[i])
			parse(t, Spark(ferrule.Series{Points: all}, start, start.Add(time.Hour)))
			for _, state := range []bool{false, true} {
				c := Chart{From: start, To: start.Add(time.Hour), Series: []ferrule.Series{{Points: all, State: state, Last: &ferrule.Sample{Value: odd[j]}}}}
				parse(t, c.SVG(600, 264, ""))
			}
		}
	}
	parse(t, Spark(ferrule.Series{}, start, start))
	parse(t, Chart{}.SVG(340, 250, ""))
	parse(t, Spark(ferrule.Series{Points: points(1), Gaps: []ferrule.Gap{{}}}, start, start.Add(-time.Hour)))
}

func TestChart(t *testing.T) {
	values := make([]float64, 61)
	for i := range values {
		values[i] = 1 + float64(i%7)/4
	}
	values[10], values[20] = 0.3, 3.05
	gap := ferrule.Gap{From: start.Add(31 * time.Minute), To: start.Add(39 * time.Minute), Reason: ferrule.Silent}
	all := points(values...)
	all = append(all[:32:32], all[39:]...)
	c := Chart{ID: "a", Title: "Motor current", Unit: "A", From: start, To: start.Add(time.Hour), Zone: time.UTC,
		Series: []ferrule.Series{{Signal: "current", Points: all, Gaps: []ferrule.Gap{gap}}},
		Calls:  []Mark{{Time: start.Add(6 * time.Minute)}, {Time: start.Add(45 * time.Minute), MayHaveRun: true}, {Time: start.Add(-time.Minute)}},
	}
	svg := parse(t, c.SVG(604, 264, "sw"))
	if n := len(byClass(svg, "ln")); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
	if n, q := len(byClass(svg, "mk")), len(byClass(svg, "mk q")); n != 1 || q != 1 {
		t.Errorf("%d calls and %d that may have run, want 1 and 1", n, q)
	}
	rects := byClass(svg, "gp")
	if len(rects) != 1 {
		t.Fatalf("%d gaps, want 1", len(rects))
	}
	if x, w := number(t, rects[0].attr["x"]), number(t, rects[0].attr["width"]); math.Abs(x-(38+508*31.0/60)) > 0.1 || math.Abs(w-508*8.0/60) > 0.1 {
		t.Errorf("the gap is at %v, %v wide", x, w)
	}
	var texts []string
	for _, e := range svg {
		texts = append(texts, e.text)
	}
	said := strings.Join(texts, "|")
	for _, want := range []string{"No data|8 min", "max 3.05", "min 0.3|", "|0|", "|3|", "13:32", "14:32"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %s", want, said)
		}
	}
	if want := "Motor current over 1 h: minimum 0.3 A, maximum 3.05 A, last 2 A. No data from 14:03 to 14:11."; c.Summary() != want {
		t.Errorf("summary is %q, want %q", c.Summary(), want)
	}
}

// TestHostileTexts checks that names and units cannot add elements.
func TestHostileTexts(t *testing.T) {
	evil := `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\u202e"
	c := Chart{ID: evil, Title: evil, Unit: evil, From: start, To: start.Add(time.Hour), Series: []ferrule.Series{{Signal: evil, Unit: evil, Points: points(1, 2)}, {Signal: evil, Points: points(3, 4)}}, Calls: []Mark{{Time: start, Text: evil}}}
	svg := c.SVG(600, 264, "only-w")
	for _, e := range parse(t, svg) {
		if e.name == "script" || e.name == "img" {
			t.Error("a name added an element")
		}
	}
	if strings.Contains(string(svg), "\u202e") {
		t.Error("a name changed the direction of text")
	}
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		wanted    int
		want      string
	}{
		{0, 3.05, 3, "0 2"}, {0, 3.05, 4, "0 1 2 3"}, {20.1, 20.9, 4, "20.2 20.4 20.6 20.8"}, {-5, 5, 4, "−5 0 5"},
	} {
		ticks, decimals := Ticks(test.low, test.high, test.wanted)
		var got []string
		for _, v := range ticks {
			got = append(got, fixed(v, decimals))
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("ticks of %v to %v: %s, want %s", test.low, test.high, s, test.want)
		}
	}
	for _, v := range []float64{math.MaxFloat64, math.Inf(1), math.NaN(), math.SmallestNonzeroFloat64} {
		if ticks, _ := Ticks(-v, v, 4); len(ticks) > 8 {
			t.Errorf("%d ticks for %v", len(ticks), v)
		}
	}
}
