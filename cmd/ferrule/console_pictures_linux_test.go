package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/gateway"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/testenv/browser"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
	"github.com/ferrulehq/ferrule/thing"
	"github.com/ferrulehq/ferrule/thing/mcpserver"
)

var pictures = flag.Bool("pictures", false, "TestConsolePictures writes docs/images/console")

// TestConsolePictures takes the pictures of the console for the documentation, of a simulated
// workshop: in light, in dark, and on a phone.
func TestConsolePictures(t *testing.T) {
	if !*pictures {
		t.Skip("-pictures is not set")
	}
	browser.Need(t)
	d := pictureFleet(t).newDesk(t)
	take := func(view string, shown browser.View, paths ...string) {
		d.Show(shown)
		for _, path := range paths {
			d.at(path)
			d.Until("the page is live", `document.querySelector("#live")`)
			if filepath.Dir(path) == "/devices" {
				d.Until("the curve is drawn", `document.querySelector(".uplot, .chart svg")`)
			}
			d.Screenshot(filepath.Join("../../docs/images/console", filepath.Base(path)+"-"+view+".png"))
		}
	}
	const device = "/devices/greenhouse"
	take("light", browser.View{}, append([]string{device}, sections...)...)
	take("dark", browser.View{Dark: true}, device, "/devices")
	take("phone", browser.View{Width: 390, Height: 844}, device, "/devices")
	d.clean("pictures")
}

// pictureFleet runs a gateway with devices that are good to look at: they have measured for an
// hour, agents have called them, one has changed, and one call waits.
func pictureFleet(t *testing.T) *testGateway {
	t.Helper()
	broker := startBroker(t, 100*time.Millisecond)
	overlays := t.TempDir()
	for name, text := range pictureOverlays {
		if err := os.WriteFile(filepath.Join(overlays, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, stop := serveOnce(t, kiln("1.8.2"), "127.0.0.1:0")
	g := startGatewayWith(t, nil, seedPictures(t), withDialIn, func(c *config.Config) {
		c.Overlays, c.Cluster.Node = overlays, "workshop"
		c.Devices.MQTT = []config.Broker{{URL: broker, Name: "house", Adopt: "all", Prefix: "homeassistant"}}
		c.Devices.HTTP = []config.HTTPDevice{
			{URL: "http://" + at + "/mcp", Name: "kiln"}, {URL: serveThing(t, greenhouse()), Name: "greenhouse"}, {URL: serveThing(t, arm()), Name: "arm"},
		}
	})
	for _, name := range []string{"kiln", "greenhouse", "arm", "front-door", "living-room"} {
		g.online(name)
	}
	stop()
	_, stop = serveOnce(t, kiln("1.9.0"), at)
	t.Cleanup(stop)
	startToy(t, g)
	agent := dialAgent(t, g, modern, "/mcp")
	for _, call := range [][2]string{{"arm__set_gripper", `{"percent":42}`}, {"greenhouse__open_vent", `{"percent":35}`}} {
		if _, err := agent.use(t.Context(), call[0], call[1]); err != nil {
			t.Fatal(err)
		}
	}
	g.asksFor(t, "front-door", "lock_unlock", `{}`)
	wait.For(t, "the home has measured", func() bool {
		for _, id := range []string{"living-room", "kettle-plug", "back-door"} {
			if all, err := g.History.Latest(t.Context(), id); err != nil || len(all) == 0 {
				return false
			}
		}
		return true
	})
	wait.For(t, "the kiln has changed", func() bool { return g.device("kiln").Waiting > 0 })
	return g
}

// pictureOverlays have what the devices of the pictures cannot say.
var pictureOverlays = map[string]string{
	"greenhouse": `match: {device: greenhouse}
tools:
  open_vent: {input: {properties: {percent: {type: integer, minimum: 0, maximum: 100}}}}
  water: {input: {properties: {seconds: {type: integer, minimum: 1, maximum: 60}}}}
  set_mode: {input: {properties: {mode: {type: string, enum: [day, night, away]}}}}
polls:
  air: {unit: °C}
  soil: {unit: "%"}
  light: {unit: lx}
  tank: {unit: l}
`,
	"kiln": "match: {device: kiln}\npolls:\n  chamber: {unit: °C}\n  target: {unit: °C}\n",
	"arm":  "match: {device: arm}\npolls:\n  current: {unit: A}\n  gripper: {unit: \"%\"}\n",
}

// number is a tool that is polled.
func number(board *thing.Device, name, text string, value float64) {
	thing.Tool(board, name, text, func(context.Context, struct{}) (float64, error) { return value, nil }, thing.Reads(), thing.Polled(30*time.Second))
}

// act is a tool that does nothing but answer.
func act[In any](board *thing.Device, name, text string, options ...thing.ToolOption) {
	thing.Tool(board, name, text, func(_ context.Context, in In) (In, error) { return in, nil }, options...)
}

type percent struct {
	Percent int `json:"percent" jsonschema:"0 is closed, 100 is open"`
}

func greenhouse() *mcpserver.Device {
	board := thing.New("gh-control", "3.0.2")
	act[percent](board, "open_vent", "Open the roof vent.", thing.Titled("Open vent"), thing.Idempotent())
	act[struct {
		On bool `json:"on" jsonschema:"true switches the lamps on"`
	}](board, "grow_lights", "Switch the grow lights.", thing.Titled("Grow lights"), thing.Idempotent())
	act[struct {
		Seconds int `json:"seconds" jsonschema:"how long"`
	}](board, "water", "Run the pump, then stop it.", thing.Titled("Water"))
	act[struct {
		Mode string `json:"mode" jsonschema:"what the controller does by itself"`
	}](board, "set_mode", "Choose the program.", thing.Titled("Set mode"), thing.Idempotent())
	number(board, "air", "Air temperature", 23.4)
	number(board, "soil", "Soil moisture", 34)
	number(board, "light", "Light under the roof", 8030)
	number(board, "tank", "Water in the tank", 64)
	act[struct{}](board, "drain_tank", "Drain the tank. It cannot be stopped.", thing.Titled("Drain tank"), thing.Endangers())
	return mcpserver.New(board, mcpserver.Config{})
}

func arm() *mcpserver.Device {
	board := thing.New("arm-6dof", "2.4.1")
	act[percent](board, "set_gripper", "Open the gripper.", thing.Titled("Set gripper"), thing.Idempotent())
	act[struct{}](board, "home", "Move to the home position.", thing.Titled("Home"))
	number(board, "current", "Motor current", 1.84)
	number(board, "gripper", "How far the gripper is open", 42)
	return mcpserver.New(board, mcpserver.Config{})
}

func kiln(version string) *mcpserver.Device {
	board := thing.New("kiln-pid", version)
	text := "Set the target temperature."
	if version != "1.8.2" {
		text = "Set the target temperature, and begin to heat."
		act[struct{}](board, "boost", "Heat with full power.", thing.Titled("Boost"))
	}
	act[struct {
		Celsius int `json:"celsius" jsonschema:"20 to 1250"`
	}](board, "set_target", text, thing.Titled("Set target"))
	number(board, "chamber", "Chamber temperature", 612)
	number(board, "target", "Target temperature", 640)
	return mcpserver.New(board, mcpserver.Config{})
}

// serveOnce serves a device at an address until stop is called.
func serveOnce(t *testing.T, d *mcpserver.Device, address string) (at string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, ln) }()
	return ln.Addr().String(), func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the device: %v", err)
		}
	}
}

// seedPictures gives the devices an hour that has passed: measurements with a gap, and calls.
func seedPictures(t *testing.T) func(*gateway.Gateway) {
	const step = 30 * time.Second
	start := time.Now().Add(-time.Hour).Truncate(step)
	curves := map[string]map[string]func(x float64) float64{
		"greenhouse": {
			"air":   func(x float64) float64 { return 22.6 + 1.2*math.Sin(7.2*x) + 0.2*math.Sin(61*x) },
			"soil":  func(x float64) float64 { return 41 - 14*math.Mod(x+0.35, 0.8) + 0.4*math.Sin(83*x) },
			"light": func(x float64) float64 { return 8100 + 900*math.Sin(3*x) + 300*math.Sin(37*x) },
			"tank":  func(x float64) float64 { return 74 - 5*math.Floor(3*x) },
		},
		"arm": {
			"current": func(x float64) float64 { return 0.6 + 1.3*math.Round(math.Mod(6*x, 1)) + 0.1*math.Sin(90*x) },
			"gripper": func(x float64) float64 { return 60 - 20*x + 6*math.Sin(14*x) },
		},
		"kiln": {
			"chamber": func(x float64) float64 { return 420 + 190*x + 6*math.Sin(20*x) },
			"target":  func(x float64) float64 { return 640 },
		},
	}
	units := map[string]string{"air": "°C", "soil": "%", "light": "lx", "tank": "l", "current": "A", "gripper": "%", "chamber": "°C", "target": "°C"}
	return func(g *gateway.Gateway) {
		for device, signals := range curves {
			for signal, curve := range signals {
				seedCurve(g, device, signal, units[signal], start, step, curve)
			}
		}
		seedCalls(t, g)
	}
}

// seedCurve records an hour of a signal. Eight minutes of it are missing.
func seedCurve(g *gateway.Gateway, device, signal, unit string, start time.Time, step time.Duration, curve func(x float64) float64) {
	batch := ferrule.SampleBatch{Signal: signal, Unit: unit}
	from, to := start.Add(31*time.Minute), start.Add(39*time.Minute)
	for at := start; at.Before(time.Now().Add(-step)); at = at.Add(step) {
		if at.After(from) && at.Before(to) {
			continue
		}
		value := math.Round(curve(at.Sub(start).Hours())*100) / 100
		batch.Samples = append(batch.Samples, ferrule.Sample{Time: at, Value: value})
	}
	batch.Gaps = []ferrule.Gap{{From: from, To: to, Reason: ferrule.Lost}}
	g.Cluster.Measured(ferrule.Reading{Device: device, Poll: signal, Time: time.Now(), Batches: []ferrule.SampleBatch{batch}})
}

// seedCalls records calls of the last hour, one with each result.
func seedCalls(t *testing.T, g *gateway.Gateway) {
	claude := ferrule.Principal{Role: ferrule.Agent, Name: "claude-code"}
	codex := ferrule.Principal{Role: ferrule.Agent, Name: "codex"}
	anna := ferrule.Principal{Role: ferrule.Person, Name: "anna"}
	for i, e := range []ferrule.Entry{
		{Time: ago(54), Principal: claude, Device: "greenhouse", Tool: "open_vent", Args: json.RawMessage(`{"percent":60}`)},
		{Time: ago(47), Principal: codex, Device: "arm", Tool: "home", Code: ferrule.Refused, Message: "the gripper holds something"},
		{Time: ago(41), Principal: claude, Device: "greenhouse", Tool: "water", Args: json.RawMessage(`{"seconds":20}`)},
		{Time: ago(30), Principal: codex, Device: "greenhouse", Tool: "open_vent", Args: json.RawMessage(`{"percent":20}`), Code: ferrule.Unanswered, Message: "no answer within 10s", MayHaveRun: true},
		{Time: ago(18), Principal: anna, Device: "kiln", Tool: "set_target", Args: json.RawMessage(`{"celsius":640}`)},
		{Time: ago(12), Principal: claude, Device: "greenhouse", Tool: "water", Args: json.RawMessage(`{"seconds":45}`)},
		{Time: ago(7), Principal: codex, Device: "greenhouse", Tool: "drain_tank", Code: ferrule.Denied, Message: "anna denied it"},
	} {
		e.Call, e.Verdict, e.Took = fmt.Sprintf("seeded-%d", i), ferrule.Permit, ferrule.Duration(38*time.Millisecond)
		if e.Code != ferrule.Denied {
			intent := e
			intent.Phase, intent.Code, intent.Message, intent.MayHaveRun, intent.Took = ferrule.Intent, "", "", false, 0
			if err := g.Journal.Append(intent, false); err != nil {
				t.Fatal(err)
			}
		}
		e.Phase = ferrule.Outcome
		if err := g.Journal.Append(e, false); err != nil {
			t.Fatal(err)
		}
	}
}

func ago(minutes int) time.Time { return time.Now().Add(-time.Duration(minutes) * time.Minute) }
