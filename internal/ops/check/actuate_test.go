package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ops/check"
)

// TestActuators checks that only outputs that were set are counted, and that the step fails
// otherwise. The board has a digital output and a PWM output.
func TestActuators(t *testing.T) {
	slow(t)
	t.Parallel()
	failing := func(tool, answer string) boardFault {
		return boardFault{actuate: true, answer: func(request, good string) string {
			if !strings.Contains(request, tool) || !strings.Contains(request, `"pin":`) {
				return good
			}
			_, end, _ := strings.Cut(good, `,"jsonrpc"`)
			return "{" + answer + `,"jsonrpc"` + end
		}}
	}
	tests := map[string]struct {
		fault  boardFault
		state  check.State
		detail string
		found  string
	}{
		"good":       {boardFault{actuate: true}, check.Passed, "2 of 2 outputs set", ""},
		"read fails": {failing("gpio_read", `"error":{"code":-32000,"message":"no LED"}`), check.Failed, "1 of 2 outputs could be set", "mcpu.failed-call"},
		"refuses":    {failing("gpio_read", `"error":{"code":-32602,"message":"no LED"}`), check.Failed, "1 of 2 outputs could be set", "mcpu.refused-call"},
		"no value":   {failing("gpio_read", `"result":{"pin":2}`), check.Failed, "1 of 2 outputs could be set", "mcpu.wrong-result"},
		"no output": {boardFault{actuate: true, request: func(_ *faultyConn, request string) string {
			return strings.Replace(request, `_write","params":{"pin":`, `_write","params":{"pin":10`, 1)
		}}, check.Failed, "0 of 2 outputs could be set", "mcpu.refused-call"},
	}
	var names []string
	for name := range tests {
		names = append(names, name)
	}
	reports := checkAll(t, names, func(name string) (*check.Report, error) {
		return check.Run(t.Context(), target(t, serveFaulty(t, tests[name].fault)), check.Options{Actuate: true})
	})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := reports[name]
			i := slices.IndexFunc(report.Steps, func(s check.Step) bool { return s.Name == "actuators" })
			if s := report.Steps[i]; s.State != test.state || s.Detail != test.detail {
				t.Errorf("got %s %q, want %s %q", s.State, s.Detail, test.state, test.detail)
			}
			if test.found != "" && !slices.Contains(ids(report), test.found) {
				t.Errorf("%s was not found, only %v", test.found, ids(report))
			}
		})
	}
}

// TestToolsWithoutPins checks that built-in tools without a pin are counted.
func TestToolsWithoutPins(t *testing.T) {
	slow(t)
	t.Parallel()
	report := run(t, serveFaulty(t, replace(`"type":"pwm_output"`, `"type":"digital_input"`)))
	if s := report.Steps[1]; s.Name != "list" || !strings.HasPrefix(s.Detail, "12 tools (1 of them for pins that it does not have), 5 pins, ") {
		t.Errorf("got %+v", s)
	}
}

// TestActuateOthers checks that --actuate says that it does nothing for an MCP server.
func TestActuateOthers(t *testing.T) {
	slow(t)
	t.Parallel()
	report, err := check.Run(t.Context(), target(t, "http://"+serve(t, lamp(t).Serve)+"/mcp"), check.Options{Actuate: true})
	if err != nil {
		t.Fatal(err)
	}
	if s := report.Steps[len(report.Steps)-1]; s.Name != "actuators" || s.State != check.Skipped || !strings.Contains(s.Detail, "--actuate is for MCP/U boards") {
		t.Errorf("the last step is %+v", s)
	}
	if report.Actuated || report.Score != 100 {
		t.Errorf("actuated is %t, the score is %d", report.Actuated, report.Score)
	}
}
