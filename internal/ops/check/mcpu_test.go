package check_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/check"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// boardFindings is what must be found on a simulated board with each misbehavior; "" is the
// good board.
var boardFindings = map[string][]string{
	"":                {},
	"bad-tools":       {"mcpu.bad-name", "mcpu.bad-schema", "mcpu.bad-text", "mcpu.bad-tool", "mcpu.duplicate-tool", "mcpu.no-schemas"},
	"bare-tools":      {"mcpu.undeclared-arguments"},
	"boot-noise":      {"mcpu.boot-noise"},
	"byte-reads":      {"mcpu.no-answer", "mcpu.fragments"},
	"changing":        {"mcpu.changing-list"},
	"chatter":         {"mcpu.debug-lines", "mcpu.unknown-id", "mcpu.boot-noise"},
	"conservative":    {"mcpu.no-voltage"},
	"cut-list":        {"mcpu.cut-list"},
	"deaf":            {"mcpu.no-answer"},
	"endless-line":    {"mcpu.endless-line"},
	"failing":         {"mcpu.failed-call", "mcpu.wrong-code"},
	"fifo":            {"mcpu.split-request", "mcpu.short-buffer"},
	"flood":           {"mcpu.noise-flood"},
	"fragments":       {"mcpu.fragments"},
	"glued":           {"mcpu.glued-answer"},
	"gone-tools":      {"mcpu.unknown-tool", "mcpu.no-schemas"},
	"half-open":       {"mcpu.stopped-answering"},
	"hang-up":         {"mcpu.closed-connection"},
	"hostile":         {"mcpu.long-line", "mcpu.bad-name", "mcpu.bad-schema", "mcpu.bad-tool", "mcpu.too-many-tools", "mcpu.accepted-error", "mcpu.duplicate-tool", "mcpu.bad-text", "mcpu.list-full", "mcpu.undeclared-arguments", "mcpu.no-schemas"},
	"huge-answer":     {"mcpu.long-line"},
	"int16":           {"mcpu.short-ids"},
	"invalid-request": {"mcpu.rejected-request"},
	"late":            {"mcpu.slow-call"},
	"library":         {"mcpu.split-request"},
	"long-list":       {"mcpu.list-full", "mcpu.undeclared-arguments"},
	"missing-method":  {"mcpu.lost-method"},
	"no-buffer":       {"mcpu.no-buffer"},
	"no-schema":       {"mcpu.no-schemas", "mcpu.undeclared-arguments"},
	"not-mcpu":        {"mcpu.not-mcpu"},
	"pieces":          {"mcpu.small-segments"},
	"polled-buffer":   {"mcpu.polled-gap"},
	"reboot":          {"mcpu.closed-connection"},
	"saturated":       {"mcpu.saturated-summary"},
	"short-list":      {"mcpu.incomplete-list", "mcpu.bad-tool"},
	"short-list-once": {"mcpu.incomplete-list", "mcpu.changing-list"},
	"shrinking":       {"mcpu.changing-list"},
	"silent":          {"mcpu.unanswered-call"},
	"slow-line":       {"mcpu.slow-line", "mcpu.small-segments"},
	"small-buffer":    {"mcpu.short-buffer"},
	"string-pin":      {"mcpu.string-pin"},
	"twice":           {"mcpu.answered-twice"},
	"v1.0":            {"mcpu.no-profile"},
	"wrong-id":        {"mcpu.unknown-id"},
}

// boardsMay is what may be found in addition. That depends on the time, and on what is lost.
var boardsMay = map[string][]string{
	"boot-noise":   {"mcpu.deaf-start"}, // if the first request comes while it boots
	"changing":     {"mcpu.no-schemas", "mcpu.no-voltage"},
	"endless-line": {"mcpu.long-line", "mcpu.stopped-answering"},
	"fifo":         {"mcpu.lost-request", "mcpu.fragments"},
	"flood":        {"mcpu.boot-noise", "mcpu.debug-lines", "mcpu.slow-answers", "mcpu.slow-call", "mcpu.slow-line", "mcpu.small-segments"},
	"half-open":    {"mcpu.closed-connection"},
	"library":      {"mcpu.lost-request", "mcpu.fragments"},
	"pieces":       {"mcpu.slow-line", "mcpu.slow-call"},
	"slow-line":    {"mcpu.slow-call"},
	"small-buffer": {"mcpu.fragments", "mcpu.split-request", "mcpu.lost-request"},
	"wrong-id":     {"mcpu.answered-twice"},
}

// startBoard runs a simulated board until the test ends, and returns its target.
func startBoard(t *testing.T, misbehave string) (*sim.Board, check.Target) {
	t.Helper()
	fleet, err := sim.Listen(sim.Config{Addr: "127.0.0.1:0", Count: 1, Misbehave: misbehave})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return fleet.Boards[0], target(t, fleet.Addrs()[0])
}

func target(t *testing.T, text string) check.Target {
	t.Helper()
	target, err := check.ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// ids returns the IDs of the findings of a report.
func ids(r *check.Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, f.ID)
	}
	return all
}

func dump(t *testing.T, r *check.Report) {
	t.Helper()
	t.Logf("score %d, %.1f s, called %s", r.Score, r.Took, strings.Join(r.Called, ", "))
	for _, s := range r.Steps {
		t.Logf("%-8s %-17s %6.2f s  %s", s.State, s.Name, s.Took, s.Detail)
	}
	for _, f := range r.Findings {
		t.Logf("%s (%s, %d times): %s\n\tsent %s\n\treceived %s", f.ID, f.Severity, f.Count, f.Detail, f.Sent, f.Received)
	}
}

// TestBoards checks that each misbehavior of the simulated boards is found, and that nothing
// is found on the good board. No board is changed.
func TestBoards(t *testing.T) {
	slow(t)
	t.Parallel()
	names := []string{""}
	for _, b := range sim.Behaviors() {
		if names = append(names, b.Name); boardFindings[b.Name] == nil {
			t.Errorf("the table does not say what is found on a board that %s (%s)", b.Text, b.Name)
		}
	}
	reports := checkAll(t, names, func(name string) (*check.Report, error) {
		board, target := startBoard(t, name)
		report, err := check.Run(t.Context(), target, check.Options{})
		if n := len(board.Runs()); n > 0 {
			t.Errorf("%s: pulse ran %d times", name, n)
		}
		return report, err
	})
	for _, name := range names {
		t.Run("board "+name, func(t *testing.T) { judgeExact(t, reports[name], boardFindings[name], readers, boardsMay[name]...) })
	}
}

// checkAll runs checks concurrently: they wait most of the time.
func checkAll(t *testing.T, names []string, run func(name string) (*check.Report, error)) map[string]*check.Report {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	reports := make(map[string]*check.Report)
	slots := make(chan struct{}, 20)
	for _, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			report, err := run(name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				report = &check.Report{}
			}
			mu.Lock()
			defer mu.Unlock()
			reports[name] = report
		})
	}
	wg.Wait()
	return reports
}

// slow skips a test that takes more than some seconds, or needs real parts.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
}

// busyMachine are findings that a device may have because the machine is slow.
var busyMachine = []string{"mcpu.slow-answers", "mcpu.slow-call", "mcpu.slow-line", "mcpu.sampling-interval", "mcpu.small-segments", "mcp.slow-answers", "mcp.slow-call", "xiaozhi.slow-answers", "xiaozhi.slow-call", "mcpu.out-of-time", "mcp.out-of-time", "xiaozhi.out-of-time"}

// judgeExact is like judge, and rejects further findings, except for some that there may be.
func judgeExact(t *testing.T, report *check.Report, want, harmless []string, may ...string) {
	t.Helper()
	judge(t, report, want, harmless)
	if !figure.Measuring() {
		may = append(slices.Clip(may), busyMachine...)
	}
	for _, id := range ids(report) {
		if !slices.Contains(want, id) && !slices.Contains(may, id) {
			t.Errorf("%s was found, only %v is expected", id, want)
		}
	}
}

// judge checks that all findings that are expected are in a report.
func judge(t *testing.T, report *check.Report, want, harmless []string) {
	t.Helper()
	dump(t, report)
	got := ids(report)
	for _, id := range want {
		if !slices.Contains(got, id) {
			t.Errorf("%s was not found, only %v", id, got)
		}
	}
	certain := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return !figure.Measuring() && slices.Contains(busyMachine, id) })
	if len(want) == 0 && (len(certain) > 0 || len(got) == 0 && report.Score != 100) {
		t.Errorf("a good device has the findings %v and the score %d", got, report.Score)
	}
	if report.Protocol == "" || slices.Contains(got, report.Protocol+".out-of-time") && figure.Measuring() {
		t.Errorf("the check was not done: %v", got)
	}
	figure.AtMost(t, "seconds of a check", report.Took, 60)
	for _, tool := range report.Called {
		if !slices.Contains(harmless, tool) {
			t.Errorf("%s was called without --actuate", tool)
		}
	}
}

// readers are the tools of simulated boards that only read.
var readers = []string{"gpio_read", "adc_read", "get_pin_summary", "get_pin_buffer", "get_pin_events", "read_climate", "i2c_scan"}

// TestNoSamples checks that a sensor that cannot be read is one finding: a summary without
// samples is correct, and says nothing about the interval.
func TestNoSamples(t *testing.T) {
	slow(t)
	t.Parallel()
	report := run(t, serveFaulty(t, boardFault{answer: func(request, answer string) string {
		_, end, _ := strings.Cut(answer, `,"jsonrpc"`)
		switch {
		case strings.Contains(request, "adc_read") && strings.Contains(answer, `"result"`):
			return `{"error":{"code":-32000,"message":"The pin cannot be read"},"jsonrpc"` + end
		case strings.Contains(request, "get_pin_summary") && strings.Contains(answer, `"result"`):
			return `{"result":{"pin":34,"name":"temperature","latest":null,"min":0,"max":0,"avg":0.00,"samples":0},"jsonrpc"` + end
		}
		return answer
	}}))
	judgeExact(t, report, []string{"mcpu.failed-call"}, readers)
}
