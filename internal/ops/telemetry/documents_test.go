package telemetry_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocument: docs/reference/telemetry.md has every metric, and no other.
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
	exposed := told(t)
	for name, sort := range exposed {
		if strings.HasPrefix(name, "ferrule_") && documented[name] != sort {
			t.Errorf("%s is %q, and documented as %q", name, sort, documented[name])
		}
	}
	for name := range documented {
		if exposed[name] == "" {
			t.Errorf("%s is documented, and there is none", name)
		}
	}
}

// dashboard is what Grafana reads, as far as it matters here.
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

// TestDashboard: every metric that the Grafana dashboard asks for is told, by labels that
// it has; and every metric is asked for.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../../../packaging/grafana/ferrule.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	exposed, used := told(t), make(map[string]bool)
	for _, v := range board.Templating.List {
		usedIn(t, v.Query, exposed, used)
	}
	ids := make(map[int]bool)
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q is not as it should be", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if usedIn(t, target.Expr, exposed, used) == 0 {
				t.Errorf("%q asks for no metric: %s", p.Title, target.Expr)
			}
		}
	}
	for name := range exposed {
		if strings.HasPrefix(name, "ferrule_") && !used[name] {
			t.Errorf("nothing on the dashboard shows %s", name)
		}
	}
}

var (
	aMetric   = regexp.MustCompile(`\b(?:ferrule|go|process)_[a-z_]+`)
	aGrouping = regexp.MustCompile(`by \(([a-z, ]+)\)`)
)

// usedIn notes which metrics a query asks for, and returns how many: each must be told,
// and one of them must have the labels that it is grouped by.
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
			t.Errorf("%s is not told: %s", name, query)
			continue
		}
		used[name] = true
		_, has, _ := strings.Cut(exposed[name], " ")
		labels += ", " + has
	}
	for _, m := range aGrouping.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(m[1], ", ") {
			if !slices.Contains(strings.Split(labels, ", "), label) {
				t.Errorf("%q is no label: %s", label, query)
			}
		}
	}
	return len(names)
}
