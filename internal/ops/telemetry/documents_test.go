package telemetry_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocument checks that the reference page lists every metric with its labels, and no other.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	row := regexp.MustCompile("(?m)^\\| `(ferrule_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		labels := strings.Split(strings.ReplaceAll(m[3], "`", ""), ", ")
		slices.Sort(labels)
		documented[m[1]] = m[2] + " " + strings.TrimSpace(strings.Join(labels, ", "))
	}
	exposed := exposedMetrics(t)
	for name, want := range exposed {
		if strings.HasPrefix(name, "ferrule_") && documented[name] != want {
			t.Errorf("%s is %q but documented as %q", name, want, documented[name])
		}
	}
	for name := range documented {
		if exposed[name] == "" {
			t.Errorf("%s is documented but does not exist", name)
		}
	}
}

// dashboard is the part of a Grafana dashboard that is checked.
type dashboard struct {
	Title      string
	Templating struct{ List []struct{ Query string } }
	Panels     []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

// TestDashboard checks that the Grafana dashboard uses existing metrics and labels, and
// that it shows every metric.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../../../packaging/grafana/ferrule.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	exposed, used := exposedMetrics(t), make(map[string]bool)
	for _, v := range board.Templating.List {
		usedIn(t, v.Query, exposed, used)
	}
	ids := make(map[int]bool)
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q is malformed", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if usedIn(t, target.Expr, exposed, used) == 0 {
				t.Errorf("%q queries no metric: %s", p.Title, target.Expr)
			}
		}
	}
	for name := range exposed {
		if strings.HasPrefix(name, "ferrule_") && !used[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

var (
	aMetric   = regexp.MustCompile(`\b(?:ferrule|go|process)_[a-z_]+`)
	aGrouping = regexp.MustCompile(`by \(([a-z, ]+)\)`)
)

// usedIn notes the metrics in a query and returns their number. Each must exist, and one
// of them must have the labels that the query groups by.
func usedIn(t *testing.T, query string, exposed map[string]string, used map[string]bool) int {
	t.Helper()
	names := aMetric.FindAllString(query, -1)
	labels := "le, instance"
	for _, name := range names {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); strings.HasPrefix(exposed[base], "histogram") {
				name = base
			}
		}
		if exposed[name] == "" {
			t.Errorf("%s does not exist: %s", name, query)
			continue
		}
		used[name] = true
		_, has, _ := strings.Cut(exposed[name], " ")
		labels += ", " + has
	}
	for _, m := range aGrouping.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(m[1], ", ") {
			if !slices.Contains(strings.Split(labels, ", "), label) {
				t.Errorf("%q is not a label: %s", label, query)
			}
		}
	}
	return len(names)
}
