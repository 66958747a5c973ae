package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/apps"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// Panels run in the reference host of MCP Apps, in a real browser.

// versions are the versions of MCP that the host speaks.
var versions = []string{"2025-11-25", "2026-07-28"}

// panelPictures writes pictures of the panels to a folder, if one is given.
func panelPictures(h *apps.Host, name string) {
	if dir := os.Getenv("FERRULE_TEST_PICTURES"); dir != "" {
		h.Screenshot(filepath.Join(dir, "panel-"+name+".png"))
	}
}

// TestPanelDevice shows a board: its values move, a form changes an output of the board by
// one call, and the theme follows the host.
func TestPanelDevice(t *testing.T) {
	apps.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]})
	g.online("robot")
	h := apps.Start(t, g.url(""))
	agent := dialAgent(t, g, modern, "/mcp")
	wait.For(t, "the board is measured", func() bool {
		out, err := agent.CallTool(t.Context(), &mcp.CallToolParams{Name: "gateway__show_device", Arguments: map[string]any{"device": "robot"}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(fmt.Sprint(out.StructuredContent), "curve")
	})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			variables := map[string]any{"--color-text-primary": "light-dark(rgb(1, 2, 3), rgb(250, 251, 252))"}
			h.Open(apps.Shown{
				Tool: "gateway__show_device", Args: map[string]any{"device": "robot"}, Version: version, Theme: "light",
				Context: map[string]any{"styles": map[string]any{"variables": variables}, "timeZone": "UTC"},
			})
			h.WaitFor("the panel is drawn", func() bool { return len(h.Find("[data-value]", "")) > 0 && len(h.Find("details.tool", "")) > 0 })
			if text := h.Text(); !strings.Contains(text, "robot") || !strings.Contains(text, "Online") {
				t.Errorf("the panel shows %q", text)
			}
			var document struct {
				URI  string
				Size int
			}
			h.Eval("host.document", &document)
			if document.URI != "ui://ferrule/device" || document.Size > 100<<10 {
				t.Errorf("got %+v", document)
			}
			if got := h.Find("h2", "robot"); len(got) != 1 || got[0].Color != "rgb(1, 2, 3)" {
				t.Errorf("the text of the host has another color than %+v", got)
			}
			panelPictures(h, "device-light")

			moving := func() string { return fmt.Sprint(h.Find("[data-value]", "")) }
			before := moving()
			h.WaitFor("the values move", func() bool { return moving() != before })

			checkPanelCall(t, g, h)

			light := h.Find(".card", "")[0].Background
			h.Eval(`host.bridge.setHostContext({theme: "dark"})`, nil)
			h.WaitFor("the panel is dark", func() bool { return h.Find(".card", "")[0].Background != light })
			if got := h.Find("h2", "robot"); len(got) != 1 || got[0].Color != "rgb(250, 251, 252)" {
				t.Errorf("the text of the host has another color than %+v", got)
			}
			panelPictures(h, "device-dark")
			if blocked := h.Blocked(); len(blocked) > 0 {
				t.Errorf("the policy blocked %q", blocked)
			}
			var sizes []struct{ Height float64 }
			h.Eval("host.sizes", &sizes)
			if len(sizes) == 0 || sizes[len(sizes)-1].Height < 200 {
				t.Errorf("the host got the sizes %v", sizes)
			}
			var left any
			h.Eval("host.teardown()", &left)
			if fmt.Sprint(left) != "map[]" {
				t.Errorf("the panel answered its end with %v", left)
			}
		})
	}
}

// checkPanelCall turns the LED on with the form of gpio_write, and looks for one call of the
// host's agent in the journal.
func checkPanelCall(t *testing.T, g *testGateway, h *apps.Host) {
	t.Helper()
	var tools struct {
		Tools []struct{ Name, Tool string }
	}
	h.Eval("host.result.structuredContent", &tools)
	n := slices.IndexFunc(tools.Tools, func(one struct{ Name, Tool string }) bool {
		return one.Tool == "gpio_write"
	})
	if n < 0 || tools.Tools[n].Name != "robot__gpio_write" {
		t.Fatalf("the panel has %+v", tools)
	}
	const form = "[data-tool=gpio_write] "
	h.SetIn(form+"[name=pin]", "2")
	h.SetIn(form+"[name=value]", "true")
	earlier := len(g.outcomes("robot", "gpio_write"))
	h.PressIn(form+"[data-run]", "Run")
	h.WaitFor("the call is done", func() bool { return len(h.Find("footer .badge", "Done")) == 1 })
	result, err := g.Pipeline.Handle(t.Context(), &ferrule.Call{
		Principal: ferrule.Principal{Role: ferrule.Person, Name: "anna", Auth: ferrule.AuthSocket}, Device: "robot", Tool: "gpio_read", Args: json.RawMessage(`{"pin":2}`),
	})
	if err != nil || !strings.Contains(string(result.Value), `"value":true`) {
		t.Errorf("the board says %v, %v", result, err)
	}
	calls := g.outcomes("robot", "gpio_write")[earlier:]
	if len(calls) != 1 || calls[0].Principal.Role != ferrule.Agent {
		t.Errorf("one press made the calls %+v", calls)
	}
}

// TestPanelHistory draws a curve that breaks while the board was away, and asks for another
// time range.
func TestPanelHistory(t *testing.T) {
	apps.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]})
	g.online("robot")
	h := apps.Start(t, g.url(""))
	agent := dialAgent(t, g, modern, "/mcp")
	var past struct {
		Signals []struct{ Points, Gaps []any }
	}
	measured := func(gaps int) func() bool {
		return func() bool {
			out, err := agent.CallTool(t.Context(), &mcp.CallToolParams{Name: "gateway__history", Arguments: map[string]any{"device": "robot", "signals": []string{"temperature"}, "since": "3m"}})
			if err != nil || out.IsError {
				return false
			}
			data, _ := json.Marshal(out.StructuredContent)
			return json.Unmarshal(data, &past) == nil && len(past.Signals[0].Points) > 5 && len(past.Signals[0].Gaps) >= gaps
		}
	}
	wait.For(t, "the board is measured", measured(0))
	if err := g.person("release_device", `{"device":"robot","for":"16s"}`); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the gap is over", func() bool {
		n := 0
		if measured(1)() {
			n = len(past.Signals[0].Points)
		}
		return n > 10 && g.device("robot").State == ferrule.StateOnline
	})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h.Open(apps.Shown{Tool: "gateway__history", Args: map[string]any{"device": "robot", "signals": []string{"temperature"}, "since": "3m"}, Version: version, Theme: "light"})
			h.WaitFor("the curve is drawn", func() bool { return len(h.Find(".chart .ln", "")) > 0 })
			if lines, gaps := len(h.Find(".chart .ln", "")), len(h.Find(".chart .gp", "")); lines < 2 || gaps < 1 {
				t.Errorf("the curve has %d parts and %d gaps", lines, gaps)
			}
			if label := h.Find("svg.chart", "")[0].Label; !strings.Contains(label, "No data for") {
				t.Errorf("the curve is described as %q", label)
			}
			panelPictures(h, "history-light")
			h.PressIn(".seg button", "1h")
			h.WaitFor("another range is drawn", func() bool {
				return slices.ContainsFunc(h.Find(".seg [aria-pressed=true]", "1h"), func(e apps.Element) bool { return !e.Disabled })
			})
			if blocked := h.Blocked(); len(blocked) > 0 {
				t.Errorf("the policy blocked %q", blocked)
			}
		})
	}
}

// TestPanelApproval shows a call that waits for a person. The panel leads to the console.
// A view cannot answer: neither by a button, nor by the tool that people use.
func TestPanelApproval(t *testing.T) {
	apps.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	h := apps.Start(t, g.url(""))
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h.Open(apps.Shown{Tool: "gateway__approval_status", Version: version, Theme: "light"})
			h.WaitFor("nothing waits", func() bool { return strings.Contains(h.Text(), "No call of yours waits") })
			h.Eval(`void (host.waits = host.client.callTool({name: "robot__pulse", arguments: {token: "<b>x\u202e</b>"}}).catch(String))`, nil)
			wait.For(t, "a call waits", func() bool { return len(g.Approvals.List()) == 1 })
			id := g.Approvals.List()[0].ID
			h.Eval(`host.client.callTool({name: "gateway__approval_status", arguments: {}}).then(r => host.bridge.sendToolResult(r))`, nil)
			h.WaitFor("the request is shown", func() bool { return len(h.Find(fmt.Sprintf("[data-approval=%q]", id), "")) == 1 })
			text := h.Text()
			for _, want := range []string{"pulse on robot?", "Endangers", `pulse {"token":"<b>x\u202e</b>"}`, "agent:local/apps-host", "You decide in the console", " left"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in %q", want, text)
				}
			}
			panelPictures(h, "approval-light")
			if buttons := h.Find("button, input, a", ""); len(buttons) != 1 || buttons[0].Text != "Open" {
				t.Errorf("the panel has the buttons %+v", buttons)
			}
			h.PressIn("button", "Open")
			var links []string
			h.WaitFor("the host opens the console", func() bool {
				h.Eval("host.links", &links)
				return len(links) == 1
			})
			if links[0] != g.url("/approvals") {
				t.Errorf("the host opened %q", links)
			}
			checkViewCannotApprove(t, g, h, id)

			g.answers(false)
			h.WaitFor("the panel says that it is over", func() bool { return strings.Contains(h.Text(), "no longer waits") })
			var result string
			h.Eval("host.waits.then(JSON.stringify)", &result)
			if !strings.Contains(result, "denied") || len(boards.Boards[0].Runs()) != 0 {
				t.Errorf("the call got %s", result)
			}
		})
	}
}

// checkViewCannotApprove calls the tools for people as a view can.
func checkViewCannotApprove(t *testing.T, g *testGateway, h *apps.Host, id string) {
	t.Helper()
	for _, call := range []string{
		fmt.Sprintf(`host.fromView("gateway__answer_approval", {id: %q, allow: true})`, id),
		fmt.Sprintf(`host.fromView("gateway__call_tool", {name: "gateway__answer_approval", arguments: {id: %q, allow: true}})`, id),
	} {
		var result string
		h.Eval(call+".then(JSON.stringify)", &result)
		if !strings.Contains(result, "error") && !strings.Contains(result, `"isError":true`) {
			t.Errorf("%s: %s", call, result)
		}
	}
	if all := g.Approvals.List(); len(all) != 1 || all[0].State != ferrule.ApprovalWaiting {
		t.Errorf("the request is %+v", all)
	}
}

// TestPanelText checks with the official inspector that tools name their panels, and that
// programs without views get text.
func TestPanelText(t *testing.T) {
	dir := mcpTools(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, withGuarded(t, "pulse"))
	g.online("robot")
	for _, era := range []string{"legacy", "modern"} {
		ask := inspect(dir, []string{g.url("/mcp"), "--protocol-era", era}, nil)
		var infos []string
		for _, name := range []string{"gateway__show_device", "gateway__approval_status", "gateway__history"} {
			args := `{}`
			if name != "gateway__approval_status" {
				args = `{"device":"robot"}`
			}
			out := ask(t, "tools/call", "--tool-name", name, "--tool-args-json", args, "--app-info", "--advertise-apps")
			if !strings.Contains(out, "ui://ferrule/") || !strings.Contains(out, "text/html;profile=mcp-app") {
				t.Errorf("%s: %s: got %s", era, name, out)
			}
			infos = append(infos, out)
		}
		t.Logf("%s: %s", era, infos)
		if out := ask(t, "tools/call", "--tool-name", "gateway__show_device", "--tool-args-json", `{"device":"robot"}`); !strings.Contains(out, "robot is online since") {
			t.Errorf("%s: got %s", era, out)
		}
		if out := ask(t, "tools/call", "--tool-name", "gateway__approval_status"); !strings.Contains(out, "No call waits for approval.") {
			t.Errorf("%s: got %s", era, out)
		}
	}
}
