package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestConsolePairs adopts a toy that has come while the page was open, with a name, then
// gives it another name and a label.
func TestConsolePairs(t *testing.T) {
	browser.Need(t)
	g := startGateway(t, nil, withDialIn)
	d := g.newDesk(t)
	d.at("/devices")
	startToy(t, g)
	d.Until("the toy is on the page", `document.querySelector('form[action="/devices/adopt"]')`)
	d.Clear(`form[action="/devices/adopt"] input[name=name]`)
	d.Type("kitchen")
	d.Click("button", "Adopt")
	wait.For(t, "the toy is adopted", func() bool { return g.device("kitchen").Trust == ferrule.TrustAdopted })
	d.at("/devices/kitchen/settings")
	d.Clear("#s-n")
	d.Type("bedroom")
	d.Click("button", "Rename")
	d.Until("the page has the new name", `location.pathname.startsWith("/devices/bedroom")`)
	d.Clear("#s-k")
	d.Type("room")
	d.Clear("#s-v")
	d.Type("upstairs")
	d.Click("button", "Add label")
	wait.For(t, "the device has the label", func() bool { return g.device("bedroom").Labels["room"] == "upstairs" })
	if got := g.device("bedroom").ID; got != "bedroom" {
		t.Errorf("the device is %s", got)
	}
	d.clean("pairing")
}

// controlled is a device with a tool that has each kind of control. It keeps the arguments
// of the last call.
type controlled struct {
	mu   sync.Mutex
	last map[string]any
}

func (c *controlled) serve() *httptest.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "panel", Version: "1"}, nil)
	input := map[string]any{"type": "object", "required": []string{"text", "level", "on"}, "properties": map[string]any{
		"on": map[string]any{"type": "boolean"}, "level": map[string]any{"type": "integer", "minimum": 0, "maximum": 10},
		"speed": map[string]any{"type": "number"}, "mode": map[string]any{"type": "string", "enum": []string{"slow", "fast"}},
		"color": map[string]any{"type": "string", "format": "color"}, "text": map[string]any{"type": "string", "minLength": 1, "maxLength": 20},
		"file": map[string]any{"type": "string", "contentEncoding": "base64"},
	}}
	server.AddTool(&mcp.Tool{Name: "set", Description: "Set everything", InputSchema: input}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last = nil
		err := json.Unmarshal(r.Params.Arguments, &c.last)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "it is set"}}}, err
	})
	return httptest.NewServer(bothMCPVersions(func(*http.Request) *mcp.Server { return server }))
}

// TestConsoleControls fills in each kind of control with mouse and keys, and calls the tool.
func TestConsoleControls(t *testing.T) {
	browser.Need(t)
	var c controlled
	server := c.serve()
	t.Cleanup(server.Close)
	g := startGateway(t, nil, func(cfg *config.Config) {
		cfg.Devices.HTTP = []config.HTTPDevice{{URL: server.URL, Name: "panel"}}
		cfg.Policy.Preset = "open"
	})
	g.online("panel")
	file := filepath.Join(t.TempDir(), "song.txt")
	if err := os.WriteFile(file, []byte("la la"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := g.newDesk(t)
	d.at("/devices/panel")
	run := func() { d.Click(`form:has(input[value="set"]) .run button`, "") }
	// A wrong value is explained at its field, and nothing is sent.
	run()
	d.Until("the missing text is explained", `document.querySelector('[name="arg.text"][aria-invalid=true]')`)
	d.Click(`[name="arg.on"]`, "")
	d.Eval(`document.querySelector('[name="arg.level"]').focus()`, nil)
	d.Keys("Home", "ArrowRight", "ArrowRight", "ArrowRight")
	d.Clear(`[name="arg.speed"]`)
	d.Type("2.5")
	d.Eval(`document.querySelector('[name="arg.mode"]').focus()`, nil)
	d.Keys("f")
	d.Clear(`[name="arg.color"]`)
	d.Type("#12ab34")
	d.Clear(`[name="arg.text"]`)
	d.Type(`hello <b>"you"</b>`)
	d.Choose(`[name="arg.file"]`, file)
	run()
	d.Until("the result is shown", `[...document.querySelectorAll(".out")].some(e => e.innerText.includes("Done") && e.innerText.includes("it is set"))`)
	want := map[string]any{"on": true, "level": 3.0, "speed": 2.5, "mode": "fast", "color": "#12ab34", "text": `hello <b>"you"</b>`, "file": "bGEgbGE="}
	c.mu.Lock()
	got := c.last
	c.mu.Unlock()
	if !maps.Equal(got, want) {
		t.Errorf("the device got %v, want %v", got, want)
	}
	if all := g.outcomes("panel", "set"); len(all) != 1 || !strings.HasPrefix(all[0].Principal.String(), "person:") || all[0].Client.Name != "console" {
		t.Errorf("the journal has %+v", all)
	}
	d.clean("controls")
}

// TestConsoleDecides lets an agent call a tool that needs approval. A person allows the call,
// denies the next, and presses Stop; then the agent can change nothing.
func TestConsoleDecides(t *testing.T) {
	browser.Need(t)
	boards := startSim(t, sim.Config{})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0]}, unmeasured, withGuarded(t, "pulse"))
	g.online("robot")
	d, agent := g.newDesk(t), dialAgent(t, g, modern, "/mcp")
	d.at("/approvals")
	for _, c := range []struct {
		button, token string
		runs          int
	}{{"Allow once", "first", 1}, {"Deny", "second", 0}} {
		answers := make(chan *agentOutcome, 1)
		go func() {
			told, err := agent.use(t.Context(), "robot__pulse", fmt.Sprintf(`{"token":%q}`, c.token))
			if err != nil {
				told = &agentOutcome{isError: true, text: err.Error()}
			}
			answers <- told
		}()
		d.Until("the call is on the page", fmt.Sprintf(`document.querySelector("main").innerText.includes(%q)`, c.token))
		d.Click("button", c.button)
		told := <-answers
		if told.isError != (c.runs == 0) || boards.Boards[0].Runs()[c.token] != c.runs {
			t.Errorf("%s: %+v, runs %v", c.button, told, boards.Boards[0].Runs())
		}
		d.Until("it waits no longer", `![...document.querySelectorAll("button")].some(b => b.innerText.trim() === "Deny")`)
	}
	agent.mustUse("robot__gpio_write", `{"pin":2,"value":true}`, nil)
	d.at("/devices/robot")
	d.Keys("Ctrl+.")
	d.Until("the page says so", `document.querySelector(".banner")`)
	told, err := agent.use(t.Context(), "robot__gpio_write", `{"pin":2,"value":false}`)
	if err != nil || !told.isError || !strings.Contains(told.text, "stopped") || boards.Boards[0].Level(sim.PinLED) != 1 {
		t.Errorf("after Stop: %+v, %v, the LED is at %d", told, err, boards.Boards[0].Level(sim.PinLED))
	}
	if told, err := agent.use(t.Context(), "robot__gpio_read", `{"pin":2}`); err != nil || told.isError {
		t.Errorf("reading after Stop: %+v, %v", told, err)
	}
	d.at("/resume")
	d.Click("main button", "Resume")
	wait.For(t, "changes are allowed", func() bool { return g.Stop.Stopped().String() == "" })
	d.clean("deciding")
}

// TestConsoleCurve checks that the curve of a page gets each sample, by the times and values of
// the points that are drawn. .ci/measure checks that it is drawn within a second.
func TestConsoleCurve(t *testing.T) {
	browser.Need(t)
	dir := t.TempDir()
	overlay := "match: {device: robot}\npolls:\n  volts: {tool: adc_read, args: {pin: 34}, every: 2s}\n"
	if err := os.WriteFile(filepath.Join(dir, "robot.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, map[string]string{"robot": startSim(t, sim.Config{}).Addrs()[0]}, func(c *config.Config) { c.Overlays = dir })
	g.online("robot")
	samples := make(chan ferrule.Sample, 100)
	stop := g.Cluster.Samples("robot", "volts_volts", func(r ferrule.Reading) {
		for _, s := range r.Batches[0].Samples {
			select {
			case samples <- s:
			default: // nobody counts so many
			}
		}
	})
	defer stop()
	<-samples
	<-samples
	d := g.newDesk(t)
	d.at("/devices/robot/history?signal=volts_volts&range=15m")
	d.Until("there is a curve", `document.querySelector("canvas")`)
	// Each column of 15 minutes is shorter than the time between samples.
	d.Eval(`(() => {
		window.drawn = [] // times of points, their values, and when they were drawn
		const look = () => {
			const plot = document.querySelector("[data-chart]").curve.plot, newest = drawn.at(-1)?.t ?? 0
			plot.data[0].forEach((x, i) => {
				const t = Math.round(x * 1000)
				if (t > newest && plot.scales.x.min * 1000 < t && t <= plot.scales.x.max * 1000) drawn.push({t, v: plot.data[1][i], at: Date.now()})
			})
			requestAnimationFrame(look)
		}
		look()
	})()`, nil)
	for len(samples) > 0 {
		<-samples
	}
	var slowest time.Duration
	for range 4 {
		s := <-samples
		at := s.Time.UnixMilli()
		d.Until("the sample is drawn", fmt.Sprintf(`drawn.some(p => p.t === %d)`, at))
		var point struct {
			V  float64
			At int64
		}
		d.Eval(fmt.Sprintf(`drawn.find(p => p.t === %d)`, at), &point)
		if point.V != s.Value {
			t.Errorf("%v is drawn as %v", s.Value, point.V)
		}
		slowest = max(slowest, time.UnixMilli(point.At).Sub(s.Time))
	}
	figure.AtMost(t, "time from a sample to its point", slowest, time.Second)
	d.clean("the curve")
}

// TestConsoleFinds finds one of ten thousand devices with the keyboard.
func TestConsoleFinds(t *testing.T) {
	browser.Need(t)
	g := startGateway(t, nil)
	g.crowd(10_000, 100)
	d := g.newDesk(t)
	start := time.Now()
	d.at("/devices")
	t.Logf("the page of 10,000 devices is there after %v", time.Since(start).Round(time.Millisecond))
	var rows int
	d.Eval(`document.querySelectorAll('main tbody tr').length`, &rows)
	if rows == 0 || rows > 300 {
		t.Errorf("%d rows are on the page", rows)
	}
	d.Keys("/")
	if f := d.Focused(); f.Name != "q" {
		t.Fatalf("the focus is on %+v", f)
	}
	start = time.Now()
	d.Type("sensor-04711")
	d.Keys("Enter")
	d.Until("it is found", `document.querySelector('main a[href="/devices/sensor-04711"]') && !document.querySelector('main a[href="/devices/sensor-00001"]')`)
	t.Logf("one of 10,000 devices is found after %v", time.Since(start).Round(time.Millisecond))
	d.Click(`main a[href="/devices/sensor-04711"]`, "")
	d.Until("its page is open", `location.pathname === "/devices/sensor-04711"`)
	d.clean("searching")
}

// TestConsoleKeys uses the console without a mouse: it reaches each control of each page with
// Tab, sees where the focus is, and calls a tool.
func TestConsoleKeys(t *testing.T) {
	g := consoleHome(t)
	d := g.newDesk(t)
	d.at("/devices")
	d.Keys("Tab")
	if f := d.Focused(); f.Label != "Skip to content" || !f.Shown {
		t.Errorf("the first Tab leads to %+v", f)
	}
	d.Keys("Enter")
	if d.Focused().ID != "main" {
		t.Errorf("skipping leads to %+v", d.Focused())
	}
	for key, section := range map[string]string{"d": "/devices", "a": "/approvals", "c": "/activity", "g": "/agents", "r": "/rules", "s": "/system"} {
		d.Eval(`document.activeElement.blur()`, nil)
		d.Keys("g", key)
		d.Until(section+" is open", fmt.Sprintf(`location.pathname === %q && document.readyState === "complete"`, section))
	}
	d.Keys("?")
	d.Until("the keys are listed", `document.querySelector("dialog[open]")`)
	d.Keys("Escape")
	d.Until("the list is closed", `!document.querySelector("dialog[open]")`)
	for _, path := range append([]string{"/devices/robot", "/devices/robot/settings"}, sections...) {
		d.at(path)
		d.reachesAll(path)
	}
	d.at("/devices/robot")
	d.TabTo("the button of a tool", 120, func(f browser.Focused) bool { return f.Tag == "button" && strings.HasPrefix(f.Label, "Run") })
	d.Keys("Enter")
	d.Until("the tool has run", `document.querySelector(".out")`)
	d.clean("keys")
}

// reachesAll presses Tab until the focus has been everywhere, and checks that it is visible.
func (d *desk) reachesAll(path string) {
	d.t.Helper()
	var want int
	d.Eval(`[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')].filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled && !e.closest('fieldset[disabled]') && e.type !== 'hidden' && e.tabIndex >= 0 && !(e.type === 'radio' && !e.checked)).length`, &want)
	d.Eval(`window.reached = new Set(); document.addEventListener("focusin", e => reached.add(e.target)); document.activeElement.blur(); 0`, nil)
	var invisible []string
	for range want + 5 {
		d.Keys("Tab")
		if f := d.Focused(); !f.Shown && f.Tag != "body" && !slices.Contains(invisible, f.Tag+" "+f.Label) {
			invisible = append(invisible, f.Tag+" "+f.Label)
		}
	}
	var reached int
	if d.Eval(`reached.size`, &reached); reached < want {
		d.t.Errorf("%s: Tab reaches %d of %d controls", path, reached, want)
	}
	if len(invisible) > 0 {
		d.t.Errorf("%s: the focus is not visible at %q", path, invisible)
	}
}
