package check

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "rewrite the list of findings")

// allRules are the rules of all protocols.
func allRules() []Rule { return slices.Concat(mcpuRules, xiaozhiRules, mcpRules) }

// anchors are the paragraphs of the pages.
var anchors = map[string]string{
	mcpuPage:    "lines requests-and-answers ids errors long-requests several-requests get_info list_tools names schemas pins sampling thresholds polling speed memory start-and-reset tcp boards",
	mcpPage:     "requests sessions versions errors tools schemas calls streams reconnect",
	xiaozhiPage: "connection hello messages tools schemas calls errors reconnect",
}

// sources returns the text of the files of this package: tests, or others without the rules.
func sources(t *testing.T, tests bool) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") != tests || !tests && strings.HasPrefix(file, "rules") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(data)
	}
	return all
}

// owners are the protocols whose findings a file records without a prefix; a name that is only
// for one of them is in only.
var (
	owners = map[string][]string{"mcp.go": {"mcp"}, "mcp_messages.go": {"mcp"}, "toy.go": {"xiaozhi"}, "service.go": {"mcp", "xiaozhi"}, "talk.go": {"mcp", "xiaozhi"}}
	only   = map[string]string{
		"bare-answer": "xiaozhi", "long-tool": "xiaozhi", "says-false": "xiaozhi", "second-connection": "xiaozhi", "stale-session": "xiaozhi", "wrong-code": "mcp",
	}
)

var (
	wholeID  = regexp.MustCompile(`"((?:mcpu|mcp|xiaozhi)\.[a-z0-9-]+)"`)
	findName = regexp.MustCompile(`(?:finding\(|ignored\(ctx, r, )"([a-z0-9-]+)"|(?m)^\t\t\{"([a-z-]+)", "`)
)

// usedIDs returns the IDs that the code records.
func usedIDs(t *testing.T) map[string]bool {
	used := map[string]bool{"mcpu.out-of-time": true, "mcp.out-of-time": true, "xiaozhi.out-of-time": true}
	for file, text := range sources(t, false) {
		for _, m := range wholeID.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
		for _, m := range findName.FindAllStringSubmatch(text, -1) {
			for _, protocol := range owners[file] {
				if name := m[1] + m[2]; name != "" && (only[name] == "" || only[name] == protocol) {
					used[protocol+"."+name] = true
				}
			}
		}
	}
	return used
}

// TestRules checks that each rule is complete, has an ID of its own, belongs to a paragraph, is
// used, and is the subject of a test; and that the code uses no ID without a rule.
func TestRules(t *testing.T) {
	used := usedIDs(t)
	var tests strings.Builder
	for _, text := range sources(t, true) {
		tests.WriteString(text)
	}
	seen := make(map[string]bool)
	for _, r := range allRules() {
		if seen[r.ID] {
			t.Errorf("%s is there twice", r.ID)
		}
		seen[r.ID] = true
		_, name, _ := strings.Cut(r.ID, ".")
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(name) {
			t.Errorf("%s is not an ID", r.ID)
		}
		if r.Title == "" || r.Fix == "" || r.Step == "" || ranks[r.Severity] == 0 && r.Severity != Fatal {
			t.Errorf("%s is incomplete", r.ID)
		}
		page, anchor, _ := strings.Cut(r.Page, "#")
		if !slices.Contains(strings.Fields(anchors[page]), anchor) {
			t.Errorf("%s belongs to %s, which does not exist", r.ID, r.Page)
		}
		if !used[r.ID] {
			t.Errorf("%s is never found", r.ID)
		}
		if !strings.Contains(tests.String(), `"`+r.ID+`"`) {
			t.Errorf("%s has no test", r.ID)
		}
	}
	for id := range used {
		if !seen[id] {
			t.Errorf("%s has no rule", id)
		}
	}
}

// TestOutOfTime checks that a step which is not done in time is found, with any protocol, and
// that the steps after it are skipped.
func TestOutOfTime(t *testing.T) { synctest.Test(t, testOutOfTime) }

func testOutOfTime(t *testing.T) {
	for id, rules := range map[string][]Rule{"mcpu.out-of-time": mcpuRules, "mcp.out-of-time": mcpRules, "xiaozhi.out-of-time": xiaozhiRules} {
		protocol, _, _ := strings.Cut(id, ".")
		r := newRun(Target{text: "x"}, protocol, rules, Options{})
		r.tooLate = time.Now().Add(time.Millisecond)
		wait := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		if err := r.steps(t.Context(), []step{{"first", wait}, {"second", wait}}); err != nil {
			t.Fatal(err)
		}
		report := r.finish()
		if len(report.Findings) != 1 || report.Findings[0].ID != id || report.Steps[1].State != Skipped {
			t.Errorf("got %+v", report)
		}
	}
}

// TestLimits checks that the memory profiles and the built-in tools are those of the page. The
// protocol's own test compares it with what the gateway uses.
func TestLimits(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("../../..", mcpuPage))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(data)), " ")
	quoted := func(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
	last := len(builtIns) - 1
	for _, want := range []string{
		fmt.Sprintf("| `rich` | ESP32 and larger | %d bytes |", profiles["rich"].line),
		fmt.Sprintf("also any unknown word | %d bytes |", profiles["conservative"].line),
		fmt.Sprintf("| `low` | AVR | %d bytes |", profiles["low"].line),
		fmt.Sprintf("one of %s and `%s` missing", quoted(builtIns[:last]), builtIns[last]),
		"| built-in tools | keep their meaning: " + quoted(slices.Concat(builtIns, []string{"list_tools"}, sampleTools)) + " |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestPages checks that the paragraphs exist.
func TestPages(t *testing.T) {
	for page, all := range anchors {
		data, err := os.ReadFile(filepath.Join("../../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, anchor := range strings.Fields(all) {
			heading := regexp.MustCompile(`(?mi)^#+ ` + strings.NewReplacer("-", "[- ]", "_", "_").Replace(anchor) + `$`)
			if !heading.Match(data) {
				t.Errorf("%s has no paragraph #%s", page, anchor)
			}
		}
	}
}

// findingsPage lists the findings.
const findingsPage = "../../../docs/reference/firmware-findings.md"

// TestFindingsPage checks that the page lists the findings as they are.
func TestFindingsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Findings of ferrule check

What [` + "`ferrule check`" + `](../how-to/check-firmware.md) can find. An ID does not change, so that scripts
can use it. A fatal finding costs 100 points, a fault 15, a weakness 5 and a note nothing. This
page is generated: run ` + "`go test ./internal/ops/check -run TestFindingsPage -update`" + `.
`)
	for _, part := range []struct {
		title string
		rules []Rule
	}{{"MCP/U boards", mcpuRules}, {"Voice toys", xiaozhiRules}, {"MCP servers", mcpRules}} {
		fmt.Fprintf(&b, "\n## %s\n\n| ID | severity | what is wrong | how to fix it | see |\n|---|---|---|---|---|\n", part.title)
		for _, r := range part.rules {
			page, anchor, _ := strings.Cut(r.Page, "#")
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | [%s](%s#%s) |\n", r.ID, r.Severity, r.Title, strings.ReplaceAll(r.Fix, "|", `\|`), anchor, filepath.Base(page), anchor)
		}
	}
	if *update {
		if err := os.WriteFile(findingsPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(findingsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != b.String() {
		t.Error("docs/reference/firmware-findings.md is outdated; run with -update")
	}
}
