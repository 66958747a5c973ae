package builtin_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// fleetOf is a fleet of some devices, sorted by ID.
type fleetOf []*ferrule.Device

func (f fleetOf) Devices() []*ferrule.Device { return append([]*ferrule.Device(nil), f...) }

func (f fleetOf) Lookup(id string) (*ferrule.Device, *ferrule.Manifest, bool) {
	for _, d := range f {
		if d.ID == id {
			return d, &ferrule.Manifest{
				Tools: []ferrule.Tool{
					{Name: "look", Effect: ferrule.Reads, Input: json.RawMessage(`{"type":"object"}`), Poll: ferrule.Duration(2e9), Cache: new(ferrule.Duration(5e9))},
					{Name: "reset", Effect: ferrule.Changes, UserOnly: true},
					{Name: "broken", Effect: ferrule.Changes, Quarantine: "because"},
				},
				Pins: []ferrule.Pin{{Number: 2, Name: "led", Sampling: &ferrule.Sampling{Interval: ferrule.Duration(5e8), Size: 20}}},
			}, true
		}
	}
	return nil, nil, false
}

func someDevices() fleetOf {
	return fleetOf{
		{ID: "a", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Transport: "tcp", Address: "x:1"},
		{ID: "b", State: ferrule.StateOnline, Trust: ferrule.TrustPending, Transport: "tcp", Address: "x:2"},
		{ID: "c", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted, Transport: "tcp", Address: "x:3", Reason: "gone"},
	}
}

type trust struct{ did []string }

func (t *trust) AdoptKind(_ context.Context, id, _ string) (builtin.TrustOutput, error) {
	return builtin.TrustOutput{Device: "kind of " + id}, nil
}

func (t *trust) ForgetKind(id string) (builtin.TrustOutput, error) {
	return builtin.TrustOutput{Device: "kind of " + id}, nil
}

func (t *trust) Adopt(_ context.Context, id, name string) (builtin.TrustOutput, error) {
	t.did = append(t.did, "adopt "+id)
	return builtin.TrustOutput{Device: cmp.Or(name, id), Note: "It is a lamp."}, nil
}

func (t *trust) Forget(id string) (builtin.TrustOutput, error) {
	return builtin.TrustOutput{}, errors.New("cannot forget " + id)
}

func (t *trust) Rename(id, name string) error {
	t.did = append(t.did, "rename "+id+" "+name)
	return nil
}

func (t *trust) Label(id string, set map[string]string, remove []string) (map[string]string, error) {
	t.did = append(t.did, fmt.Sprint("label ", id, set, remove))
	return set, nil
}

func newSet(t *testing.T, tools ...builtin.Tool) *builtin.Set {
	t.Helper()
	b, err := builtin.New("1.0.0", tools...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func call(t *testing.T, b *builtin.Set, role ferrule.Role, tool, args string, out any) error {
	t.Helper()
	result, err := b.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: role}, Tool: tool, Args: json.RawMessage(args)})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result.Value, out); err != nil {
		t.Fatal(err)
	}
	return nil
}

func listed(out builtin.ListDevicesOutput) string {
	var ids []string
	for _, d := range out.Devices {
		ids = append(ids, d.ID)
	}
	return strings.Join(ids, " ") + " next:" + out.Next
}

func TestListDevices(t *testing.T) {
	b := newSet(t, builtin.ListDevices(someDevices(), nil))
	for _, test := range []struct {
		role  ferrule.Role
		args  string
		want  string
		total int
	}{
		{ferrule.Person, `{}`, "a b c next:", 3},
		{ferrule.Agent, `{}`, "a c next:", 2},
		{ferrule.Person, `{"limit":2}`, "a b next:b", 3},
		{ferrule.Person, `{"limit":2,"after":"b"}`, "c next:", 3},
		{ferrule.Person, `{"after":"aa"}`, "b c next:", 3},
		{ferrule.Person, `{"after":"z"}`, " next:", 3},
	} {
		var out builtin.ListDevicesOutput
		if err := call(t, b, test.role, "list_devices", test.args, &out); err != nil || listed(out) != test.want || out.Total != test.total {
			t.Errorf("%s %s: %q, %d, %v", test.role, test.args, listed(out), out.Total, err)
		}
	}
}

func TestDescribeDevice(t *testing.T) {
	b := newSet(t, builtin.DescribeDevice(someDevices(), nil))
	var out builtin.DescribeDeviceOutput
	if err := call(t, b, ferrule.Person, "describe_device", `{"device":"b"}`, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Tools) != 3 || out.Tools[0].Poll != "2s" || out.Tools[0].Cache != "5s" || out.Tools[1].Cache != "" || out.Tools[2].Quarantine != "because" || out.Device.Tools != 2 {
		t.Errorf("got %+v", out)
	}
	if len(out.Pins) != 1 || out.Pins[0].Interval != "500ms" || out.Pins[0].Samples != 20 {
		t.Errorf("got %+v", out.Pins)
	}
	if err := call(t, b, ferrule.Agent, "describe_device", `{"device":"a"}`, &out); err != nil || len(out.Tools) != 2 {
		t.Errorf("an agent sees %d tools, %v", len(out.Tools), err)
	}
	for _, test := range []struct {
		role   ferrule.Role
		device string
	}{{ferrule.Agent, "b"}, {ferrule.Person, "x"}} {
		err := call(t, b, test.role, "describe_device", `{"device":"`+test.device+`"}`, &out)
		if err == nil || ferrule.AsError(err).Code != ferrule.NotFound {
			t.Errorf("%s: %v", test.device, err)
		}
	}
}

// offering is a fleet of one device with many resources and prompts.
type offering struct{ resources, prompts int }

func (o offering) Devices() []*ferrule.Device { return nil }

func (o offering) Lookup(string) (*ferrule.Device, *ferrule.Manifest, bool) {
	m := &ferrule.Manifest{}
	for i := range o.resources {
		m.Resources = append(m.Resources, ferrule.Resource{URI: fmt.Sprintf("file:///%d", i), Name: "any"})
	}
	for i := range o.prompts {
		m.Prompts = append(m.Prompts, ferrule.Prompt{Name: fmt.Sprint(strings.Repeat("p", 1000), i)})
	}
	return &ferrule.Device{ID: "robot", Trust: ferrule.TrustAdopted}, m, true
}

// TestDescribeOffers checks that the first resources and prompts are named.
func TestDescribeOffers(t *testing.T) {
	for _, test := range []struct{ resources, prompts, resourcesShown, promptsShown int }{{0, 0, 0, 0}, {1, 2, 1, 2}, {50, 4, 50, 4}, {1000, 1000, 50, 4}} {
		var out builtin.DescribeDeviceOutput
		b := newSet(t, builtin.DescribeDevice(offering{test.resources, test.prompts}, nil))
		if err := call(t, b, ferrule.Agent, "describe_device", `{"device":"robot"}`, &out); err != nil {
			t.Fatal(err)
		}
		if len(out.Resources) != test.resourcesShown || len(out.Prompts) != test.promptsShown ||
			out.MoreResources != test.resources-test.resourcesShown || out.MorePrompts != test.prompts-test.promptsShown ||
			out.Device.Resources != test.resources || out.Device.Prompts != test.prompts {
			t.Errorf("%+v: %d and %d more, %d and %d more", test, len(out.Resources), out.MoreResources, len(out.Prompts), out.MorePrompts)
		}
		if test.resources > 0 && out.Resources[0] != "file:///0" {
			t.Errorf("got %q", out.Resources)
		}
	}
}

func TestTrust(t *testing.T) {
	var tr trust
	b := newSet(t, builtin.AdoptDevice(&tr), builtin.ForgetDevice(&tr), builtin.RenameDevice(&tr), builtin.LabelDevice(&tr))
	var out builtin.TrustOutput
	if err := call(t, b, ferrule.Person, "adopt_device", `{"device":"a"}`, &out); err != nil || out.Device != "a" || tr.did[0] != "adopt a" {
		t.Errorf("%+v, %q, %v", out, tr.did, err)
	}
	if err := call(t, b, ferrule.Person, "adopt_device", `{"device":"a","name":"b"}`, &out); err != nil || out.Device != "b" || out.Note == "" {
		t.Errorf("%+v, %v", out, err)
	}
	var renamed builtin.RenameOutput
	if err := call(t, b, ferrule.Person, "rename_device", `{"device":"a","name":"b"}`, &renamed); err != nil || renamed.Device != "b" || renamed.Alias != "a" || tr.did[2] != "rename a b" {
		t.Errorf("%+v, %q, %v", renamed, tr.did, err)
	}
	var labeled builtin.LabelOutput
	if err := call(t, b, ferrule.Person, "label_device", `{"device":"a","set":{"room":"kitchen"},"remove":["floor"]}`, &labeled); err != nil || labeled.Labels["room"] != "kitchen" || tr.did[3] != "label amap[room:kitchen] [floor]" {
		t.Errorf("%+v, %q, %v", labeled, tr.did, err)
	}
	if err := call(t, b, ferrule.Person, "forget_device", `{"device":"a"}`, &out); err == nil || err.Error() != "cannot forget a" {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"adopt_device", "forget_device"} {
		if err := call(t, b, ferrule.Person, name, `{"device":"a","kind":true}`, &out); err != nil || out.Device != "kind of a" {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	for _, tool := range b.Manifest().Tools {
		if !tool.UserOnly || tool.Effect != ferrule.Changes {
			t.Errorf("%+v", tool)
		}
	}
}

// TestSet checks that tools get schemas and argument checks.
func TestSet(t *testing.T) {
	b := newSet(t, builtin.ListDevices(someDevices(), nil), builtin.DescribeDevice(someDevices(), nil))
	dev := b.Device()
	if dev.ID != ferrule.GatewayID || dev.Kind == "" || dev.State != ferrule.StateOnline {
		t.Errorf("%+v", dev)
	}
	describe := b.Manifest().Tool("describe_device")
	if got := strings.Join(describe.Check(map[string]any{"devise": "a"}), "; "); got != "device is missing; devise is unknown" {
		t.Errorf("got %s", got)
	}
	if !json.Valid(describe.Output) || !strings.Contains(string(describe.Input), "ID of the device") {
		t.Errorf("%s\n%s", describe.Input, describe.Output)
	}
	if _, err := b.Handle(t.Context(), &ferrule.Call{Tool: "nonsense"}); ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("got %v", err)
	}
}

// everyTool returns a Set with all tools for agents.
func everyTool(t *testing.T) *builtin.Set {
	t.Helper()
	road := func(_ context.Context, c *ferrule.Call) (*ferrule.Result, error) {
		switch c.Device {
		case "c":
			return nil, ferrule.Errorf(ferrule.Offline, "gone")
		case "eye":
			return &ferrule.Result{Content: []ferrule.Content{{Type: ferrule.ImageContent}}}, nil
		}
		return &ferrule.Result{Value: json.RawMessage(`{"pin":1}`)}, nil
	}
	var tr trust
	return newSet(t, builtin.ListDevices(someDevices(), nil), builtin.DescribeDevice(someDevices(), nil), builtin.DeviceState(talkative{someDevices()}, nil), builtin.AdoptDevice(&tr), builtin.RenameDevice(&tr), builtin.LabelDevice(&tr),
		builtin.FindDevices(seenByAll(someOffers())), builtin.FindTools(seenByAll(someOffers())), builtin.DescribeTool(seenByAll(someOffers())), builtin.CallMany(road),
		builtin.Status("1", func(ferrule.Principal) builtin.StatusOutput { return builtin.StatusOutput{Online: 1, List: "plain"} }),
		builtin.Latest(someDevices(), nil, someSignals()), builtin.History(someDevices(), nil, someSignals()), builtin.SQL(someDevices(), nil, answers{}, "samples(value)"), builtin.ListTokens(logins{}), builtin.RevokeToken(logins{}))
}

// logins implements builtin.Tokens.
type logins struct{ builtin.Tokens }

func (logins) URL() string { return "http://127.0.0.1:3377/mcp" }

func (logins) List() []ferrule.Token {
	return []ferrule.Token{{Name: "claude", Scopes: []string{"read"}, Devices: []string{}}, {Name: "grant-a", Scopes: []string{"read"}, Devices: []string{}, Login: &ferrule.TokenLogin{Person: "anna"}}}
}

func (l logins) Revoke(ferrule.Principal, builtin.RevokeTokenInput) (builtin.TokenOutput, error) {
	return builtin.TokenOutput{Token: l.List()[1]}, nil
}

// TestOutputsFitTheirSchemas checks results against the declared output schemas.
func TestOutputsFitTheirSchemas(t *testing.T) {
	b := everyTool(t)
	for _, test := range []struct{ tool, args string }{
		{"list_devices", `{}`},
		{"list_devices", `{"after":"z"}`},
		{"describe_device", `{"device":"a"}`},
		{"device_state", `{"device":"a"}`},
		{"adopt_device", `{"device":"a"}`},
		{"rename_device", `{"device":"a","name":"b"}`},
		{"label_device", `{"device":"a","set":{"room":"kitchen"}}`},
		{"find_devices", `{}`},
		{"find_tools", `{}`},
		{"describe_tool", `{"name":"a__self_look"}`},
		{"describe_tool", `{"name":"board--1__self_look"}`},
		{"describe_tool", `{"name":"none__look"}`},
		{"call_many", `{"tool":"look","devices":["a","c","eye"]}`},
		{"latest", `{"device":"a"}`},
		{"latest", `{"device":"c"}`},
		{"latest", `{"device":"a","signal":"light"}`},
		{"history", `{"device":"a"}`},
		{"history", `{"device":"a","resolution":"minute"}`},
		{"sql", `{"query":"SELECT 1"}`},
		{"list_tokens", `{}`},
		{"revoke_token", `{"name":"grant-a"}`},
	} {
		declared, err := schema.Compile(b.Manifest().Tool(test.tool).Output)
		if err != nil {
			t.Fatal(err)
		}
		result, err := b.Handle(t.Context(), &ferrule.Call{Principal: ferrule.Principal{Role: ferrule.Person}, Tool: test.tool, Args: json.RawMessage(test.args)})
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := schema.DecodeArgs(result.Value)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := declared.Check(out); wrong != nil {
			t.Errorf("%s: %q", test.tool, wrong)
		}
	}
}

// TestWrongArgument checks that the path of an argument that cannot be decoded is in the error, as
// the caller wrote it.
func TestWrongArgument(t *testing.T) {
	type input struct {
		Deadline ferrule.Duration `json:"deadline,omitempty"`
		Name     string           `json:"name,omitempty"`
		When     *struct {
			For ferrule.Duration `json:"for,omitempty"`
		} `json:"when,omitempty"`
		Any []struct {
			For ferrule.Duration `json:"for,omitempty"`
		} `json:"any,omitempty"`
	}
	set := newSet(t, builtin.Typed("wait", "Wait", ferrule.Reads, func(context.Context, *ferrule.Call, input) (struct{}, error) { return struct{}{}, nil }))
	for args, want := range map[string]string{
		`{"name":"x","deadline":"soon"}`:             "invalid arguments for wait: deadline must be a duration such as",
		`{"name":"x","when":{"for":"soon"}}`:         "invalid arguments for wait: when.for must be a duration such as",
		`{"any":[{"for":"1s"},{},{"for":"soon"}]}`:   "invalid arguments for wait: any[2].for must be a duration such as",
		`{"any":[{"for":[[{"for":[["soon"]]}]]}]}`:   "invalid arguments for wait: any[0].for json: cannot unmarshal",
		`{"any":{"for":"soon"},"when":{"for":"1s"}}`: "invalid arguments for wait: any json: cannot unmarshal",
	} {
		_, err := set.Handle(t.Context(), &ferrule.Call{Tool: "wait", Args: json.RawMessage(args)})
		if e := ferrule.AsError(err); e.Code != ferrule.Invalid || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestTypesThatHaveNoSchema(t *testing.T) {
	bad := builtin.Typed("bad", "", ferrule.Reads, func(context.Context, *ferrule.Call, struct{ C chan int }) (int, error) { return 0, nil })
	if _, err := builtin.New("1", bad); err == nil {
		t.Error("a channel has a schema")
	}
	if _, err := builtin.New("1", builtin.Tool{}); err == nil {
		t.Error("a tool without a type has a schema")
	}
}
