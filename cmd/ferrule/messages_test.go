package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/ops/config"
	"github.com/ferrulehq/ferrule/internal/sim"
	"github.com/ferrulehq/ferrule/internal/testenv/wait"
)

// TestMessages checks that every error tells an agent what happened, what it means for
// the hardware, and what to do next with the tools that it sees.
func TestMessages(t *testing.T) {
	robot, silent, bad := startSim(t, sim.Config{}), startSim(t, sim.Config{Misbehave: "silent"}), startSim(t, sim.Config{Misbehave: "bad-tools"})
	pending := startSim(t, sim.Config{})
	lost := newCutter(t, startSim(t, sim.Config{}).Addrs()[0])
	boards := map[string]string{
		"robot": robot.Addrs()[0], "silent": silent.Addrs()[0], "bad": bad.Addrs()[0],
		"gone": lost.Addr().String(), "away": "127.0.0.1:1",
	}
	few := func(c *config.Config) {
		c.Agents.Budget = 1000
		c.Calls.Deadline = config.Interval(short)
		c.Devices.TCP = append(c.Devices.TCP, config.TCPDevice{Name: "pending", Address: pending.Addrs()[0], Pending: true})
	}
	g := startGateway(t, boards, few, unmeasured)
	for _, id := range []string{"robot", "silent", "bad", "gone", "pending"} {
		g.online(id)
	}
	lost.Close()
	lost.cut(false)
	wait.For(t, "gone is offline", func() bool { return g.device("gone").State == ferrule.StateOffline })
	many := startGateway(t, nil)
	many.crowd(200, 1)
	search := startGateway(t, nil)
	search.crowd(200, 100)

	for _, mcpVersion := range mcpVersions {
		fleet, one := dialAgent(t, g, mcpVersion, "/mcp"), dialAgent(t, g, mcpVersion, "/mcp/devices/robot")
		folded, found := dialAgent(t, many, mcpVersion, "/mcp"), dialAgent(t, search, mcpVersion, "/mcp")
		kind := folded.list()[slices.IndexFunc(folded.list(), func(name string) bool { return strings.Contains(name, "--") })]
		for _, test := range []struct {
			agent      *testAgent
			tool, args string
			code       ferrule.Code // empty if it is an error of the request
			want       string
		}{
			{fleet, "gone__gpio_read", `{"pin":2}`, ferrule.Offline, `^gone is offline since \d\d:\d\d:\d\d: .*It was last connected over tcp at 127\.0\.0\.1:\d+\.$`},
			{fleet, "away__gpio_read", `{"pin":2}`, ferrule.Offline, `^away was never reached: .*Check that it is on and that 127\.0\.0\.1:1 is its address\.$`},
			{fleet, "robot__nonsense", `{}`, "", `robot has no tool "nonsense".*It has adc_read, `},
			{fleet, "nobody__gpio_read", `{}`, "", `there is no device "nobody".*[Ll]ist devices with gateway__status`},
			{fleet, "pending__gpio_read", `{}`, "", `there is no device "pending".*[Ll]ist devices with gateway__status`},
			{fleet, "nonsense", `{}`, "", `unknown tool "nonsense".*[Ll]ist devices with gateway__status; the list has all tools`},
			{fleet, "robot__gpio_write", `{"pin":"x","valeu":1}`, ferrule.Invalid, `pin must be .*valeu is unknown.*value is missing.*The schema in the tool list has the arguments`},
			{fleet, "bad__refers_to_itself", `{}`, ferrule.Denied, `refers_to_itself of bad cannot be used: invalid input schema: refers to itself.*Use the tools in the list`},
			{fleet, "silent__gpio_write", `{"pin":2,"value":true}`, ferrule.Unanswered, `silent did not answer gpio_write within 2s\. The action may have run\. Check the device before retrying, for example with gpio_read, adc_read, get_info`},
			{fleet, "gateway__call_tool", `{"name":"nobody__x"}`, ferrule.NotFound, `there is no device "nobody"`},
			{fleet, "gateway__call_tool", `{"tool":"robot__gpio_read"}`, ferrule.Invalid, `takes only name and arguments`},
			{fleet, "gateway__adopt_device", `{"device":"pending"}`, "", `gateway has no tool "adopt_device"`},
			{one, "nonsense", `{}`, "", `robot has no tool "nonsense"`},
			{one, "gateway__status", `{}`, "", `robot has no tool "gateway__status"`},
			{one, "gpio_write", `{"pin":2}`, ferrule.Invalid, `value is missing.*The schema in the tool list has the arguments`},
			{folded, kind, `{"device":"nobody"}`, ferrule.NotFound, `there is no device "nobody".*[Ff]ind devices with gateway__find_devices; the list has all tools`},
			{folded, kind, `{}`, ferrule.Invalid, `needs a device ID in "device".*Find the device with gateway__find_devices`},
			{folded, "sensor-0--000000__read_0", `{"device":"sensor-00000"}`, "", `unknown tool "sensor-0--000000__read_0"`},
			{found, "gateway__call_tool", `{"name":"nonsense"}`, ferrule.NotFound, `unknown tool "nonsense".*Find tools with gateway__find_tools`},
			{found, "gateway__describe_tool", `{"name":"nobody__x"}`, ferrule.NotFound, `there is no device "nobody".*[Ff]ind devices with gateway__find_devices and tools with gateway__find_tools`},
			{found, "gateway__find_tools", `{"limit":"x"}`, ferrule.Invalid, `limit must .*[Rr]ead the arguments of a tool with gateway__describe_tool`},
		} {
			text := test.agent.wants(test.tool, test.args, test.code)
			if !regexp.MustCompile(`(?s)` + test.want).MatchString(text) {
				t.Errorf("%s: %s: %s\nwant %s", test.agent.name, test.tool, text, test.want)
			}
			test.agent.isHelpful(test.tool, text)
		}
	}
}

// wants calls a tool that fails with a code, or whose request is invalid, and returns
// the message.
func (a *testAgent) wants(tool, args string, code ferrule.Code) string {
	a.t.Helper()
	told, err := a.use(context.Background(), tool, args)
	if code != "" {
		if err != nil || !told.isError || told.code != code {
			a.t.Errorf("%s: %s: %+v, %v", a.name, tool, told, err)
			return ""
		}
		return told.text
	}
	var wrong *jsonrpc.Error
	if !errors.As(err, &wrong) || wrong.Code != jsonrpc.CodeInvalidParams {
		a.t.Errorf("%s: %s: %+v, %v", a.name, tool, told, err)
		return ""
	}
	return wrong.Message
}

var ownTool = regexp.MustCompile(`gateway__[a-z_]+`)

// isHelpful checks that a message says whether the call ran, and names neither a
// terminal nor a tool that the agent does not see.
func (a *testAgent) isHelpful(tool, text string) {
	a.t.Helper()
	if !strings.Contains(text, "Nothing was sent.") && !strings.Contains(text, "The action may have run.") {
		a.t.Errorf("%s: %s: nothing is said about the hardware: %s", a.name, tool, text)
	}
	if strings.Contains(text, "`ferrule") {
		a.t.Errorf("%s: %s: a model is sent to a terminal: %s", a.name, tool, text)
	}
	list := a.list()
	for _, name := range ownTool.FindAllString(text, -1) {
		if !slices.Contains(list, name) && name != tool && !strings.Contains(text, `"`+name+`"`) {
			a.t.Errorf("%s: %s: %s is not in the list: %s", a.name, tool, name, text)
		}
	}
}

// TestResources checks that resources can be read, completed and followed, in both
// versions of MCP, and that a read asks the board.
func TestResources(t *testing.T) {
	boards := startSim(t, sim.Config{Count: 2})
	g := startGateway(t, map[string]string{"robot": boards.Addrs()[0], "roof": boards.Addrs()[1]}, func(c *config.Config) {
		c.Devices.TCP[0].Pending, c.Devices.TCP[1].Pending = false, false
	})
	g.online("robot")
	g.online("roof")
	for _, mcpVersion := range mcpVersions {
		for _, path := range []string{"/mcp", "/mcp/devices/robot"} {
			readResources(t, dialAgent(t, g, mcpVersion, path), path != "/mcp")
		}
	}
	// Reads are in the journal as calls of the board's tools.
	wait.For(t, "the journal has the reads", func() bool { return len(g.outcomes("robot", "get_info")) == 4 })
}

func readResources(t *testing.T, a *testAgent, alone bool) {
	t.Helper()
	ctx := context.Background()
	uris := a.uris()
	if slices.Contains(uris, "ferrule://devices") == alone || slices.Contains(uris, "ferrule://devices/roof") == alone ||
		!slices.Contains(uris, "ferrule://devices/robot") || !slices.Contains(uris, "ferrule://devices/robot/state") || !slices.Contains(uris, "ferrule://devices/robot/readings/get_info") {
		t.Errorf("%s sees %q", a.name, uris)
	}
	for _, test := range []struct{ uri, part string }{
		{"ferrule://devices/robot", `"gpio_write"`},
		{"ferrule://devices/robot/state", `{"device":"robot","state":"online",`},
		{"ferrule://devices/robot/pins/2", `"name":"led"`},
		{"ferrule://devices/robot/readings/get_info", `"device":"sim-board"`},
	} {
		got, err := a.ReadResource(ctx, &mcp.ReadResourceParams{URI: test.uri})
		if err != nil || len(got.Contents) != 1 || got.Contents[0].URI != test.uri || got.Contents[0].MIMEType != "application/json" ||
			!json.Valid([]byte(got.Contents[0].Text)) || !strings.Contains(got.Contents[0].Text, test.part) {
			t.Errorf("%s: %s: %+v, %v", a.name, test.uri, got, err)
		}
	}
	devices, err := a.ReadResource(ctx, &mcp.ReadResourceParams{URI: "ferrule://devices"})
	if alone == (err == nil) || err == nil && !strings.Contains(devices.Contents[0].Text, `"id":"roof"`) {
		t.Errorf("%s: %+v, %v", a.name, devices, err)
	}
	missing := []string{
		"ferrule://any", "ferrule://devices/", "ferrule://devices/nobody", "ferrule://devices/robot/pins/99", "ferrule://devices/robot/pins/x",
		"ferrule://devices/robot/readings/gpio_read", "ferrule://devices/robot/readings/gpio_write", "ferrule://devices/robot/readings/",
		"ferrule://devices/robot/nonsense/2", "ferrule://devices/robot/nonsense", "ferrule://devices/nobody/state", "ferrule://devices/robot/state/x",
		"ferrule://devices/%zz", "http://127.0.0.1/", "ferrule://devices/gateway/readings/list_devices/x",
	}
	if alone {
		missing = append(missing, "ferrule://devices/roof", "ferrule://devices/roof/state", "ferrule://devices/roof/pins/2")
	}
	for _, uri := range missing {
		_, err := a.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		var wrong *jsonrpc.Error
		var data struct{ URI string }
		if !errors.As(err, &wrong) || wrong.Code != jsonrpc.CodeInvalidParams || json.Unmarshal(wrong.Data, &data) != nil || data.URI != uri {
			t.Errorf("%s: %s: %v", a.name, uri, err)
		}
	}
	templates, err := a.ListResourceTemplates(ctx, nil)
	want := 7
	if alone {
		want = 5 // no watches, and resources of the device have their own URIs
	}
	if err != nil || len(templates.ResourceTemplates) != want {
		t.Errorf("%s: %+v, %v", a.name, templates, err)
	}
	for _, test := range []struct {
		argument, value string
		want            []string
	}{
		{"device", "ro", []string{"robot", "roof"}},
		{"device", "rob", []string{"robot"}},
		{"pin", "3", []string{"34", "35"}},
		{"reading", "get", []string{"get_info"}},
		{"reading", "gpio", []string{}},
		{"nonsense", "", []string{}},
	} {
		if alone && test.argument == "device" {
			test.want = []string{"robot"}
		}
		got, err := a.Complete(ctx, &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: "ferrule://devices/{device}/pins/{pin}"},
			Argument: mcp.CompleteParamsArgument{Name: test.argument, Value: test.value},
			Context:  &mcp.CompleteContext{Arguments: map[string]string{"device": "robot"}},
		})
		if err != nil || !slices.Equal(got.Completion.Values, test.want) || got.Completion.Total != len(test.want) {
			t.Errorf("%s: %s %s: %+v, %v", a.name, test.argument, test.value, got, err)
		}
	}
}

// quiet drops notifications of changed lists, such as those of the start, until none have
// arrived for a second.
func quiet(t *testing.T, agents []*testAgent) {
	t.Helper()
	wait.For(t, "no more notifications arrive", func() bool {
		time.Sleep(time.Second)
		arrived := false
		for _, a := range agents {
			for ; len(a.tools) > 0; arrived = true {
				<-a.tools
			}
			for ; len(a.resources) > 0; arrived = true {
				<-a.resources
			}
		}
		return !arrived
	})
}

// TestResourcesOfMany checks that agents are told of a new device even if the tool list
// does not change, and of nothing else.
func TestResourcesOfMany(t *testing.T) {
	for _, kinds := range []int{1, 60} {
		g := startGateway(t, nil)
		g.crowd(120, kinds)
		var agents []*testAgent
		for _, mcpVersion := range mcpVersions {
			agents = append(agents, dialAgent(t, g, mcpVersion, "/mcp"))
		}
		quiet(t, agents)
		dev, manifest, _ := g.Fleet.Lookup("sensor-00000")
		more := *dev
		more.ID = "another"
		g.Fleet.Put(&more, manifest, func(context.Context, *ferrule.Call) (*ferrule.Result, error) {
			return nil, errors.New("not to be called")
		})
		for _, a := range agents {
			select {
			case <-a.resources:
			case <-time.After(ample):
				t.Fatalf("%s is not notified of a new device", a.name)
			}
			if !slices.Contains(a.uris(), "ferrule://devices/another") || len(a.tools) > 0 {
				t.Errorf("%s sees %q and was notified of %d changes of tools", a.name, a.uris(), len(a.tools))
			}
		}
	}
}
