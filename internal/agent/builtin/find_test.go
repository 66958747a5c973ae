package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/builtin"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

// finder is a catalog that records its queries.
type finder struct {
	asked  string
	offers []ferrule.Offer
}

func (f *finder) FindDevices(query string, limit int) ([]*ferrule.Device, int) {
	f.asked = fmt.Sprintf("devices %q %d", query, limit)
	found := []*ferrule.Device{
		{ID: "a", Model: "board", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted, Address: "x:1", Labels: map[string]string{"room": "attic"}},
		{ID: "c", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted, Reason: "gone"},
	}
	return found[:min(limit, 2)], 7
}

func (f *finder) FindTools(query, device string, limit int) ([]ferrule.Offer, int) {
	f.asked = fmt.Sprintf("tools %q %q %d", query, device, limit)
	return f.offers, len(f.offers)
}

func (f *finder) Offer(name string) (ferrule.Offer, error) {
	f.asked = fmt.Sprintf("offer %q", name)
	for _, o := range f.offers {
		if o.Name == name {
			return o, nil
		}
	}
	return ferrule.Offer{}, ferrule.Errorf(ferrule.NotFound, "there is no tool %q", name)
}

// seenByAll returns a catalog that is the same for every caller.
func seenByAll(c builtin.Catalog) builtin.CatalogFor {
	return func(ferrule.Principal) builtin.Catalog { return c }
}

func someOffers() *finder {
	look := &ferrule.Tool{Name: "self.look", Effect: ferrule.Reads, Idempotent: true, Output: json.RawMessage(`{"type":"object"}`)}
	return &finder{offers: []ferrule.Offer{
		{Name: "a__self_look", Text: strings.Repeat("long ", 100), Input: json.RawMessage(`{"type":"object"}`), Tool: look, Devices: []string{"a"}, Count: 1},
		{Name: "board--1__self_look", Text: "Looks.", Input: json.RawMessage(`{"type":"object"}`), Tool: look, Devices: []string{"a", "b"}, Count: 2, Argument: "device"},
		{Name: "none__look", Text: "Looks.", Input: json.RawMessage(`{"type":"object"}`), Tool: &ferrule.Tool{Name: "look", Effect: ferrule.Changes}},
	}}
}

func TestFindDevices(t *testing.T) {
	f := someOffers()
	b := newSet(t, builtin.FindDevices(seenByAll(f)))
	for _, test := range []struct{ args, asked string }{
		{`{}`, `devices "" 20`},
		{`{"query":"attic","limit":3}`, `devices "attic" 3`},
		{`{"limit":-1}`, `devices "" 20`},
		{`{"limit":100000}`, `devices "" 100`},
	} {
		var out builtin.FindDevicesOutput
		if err := call(t, b, ferrule.Agent, "find_devices", test.args, &out); err != nil || f.asked != test.asked {
			t.Errorf("%s: asked for %s, %v", test.args, f.asked, err)
		}
		if len(out.Devices) != 2 || out.Total != 7 || out.Devices[0].ID != "a" || out.Devices[0].Labels["room"] != "attic" || out.Devices[1].Reason != "gone" {
			t.Errorf("got %+v", out)
		}
	}
}

func TestFindTools(t *testing.T) {
	f := someOffers()
	b := newSet(t, builtin.FindTools(seenByAll(f)))
	var out builtin.FindToolsOutput
	if err := call(t, b, ferrule.Agent, "find_tools", `{"query":"look","device":"a","limit":5}`, &out); err != nil || f.asked != `tools "look" "a" 5` {
		t.Fatalf("%s %v", f.asked, err)
	}
	if out.Total != 3 || len(out.Tools) != 3 {
		t.Fatalf("got %+v", out)
	}
	if got := out.Tools[0]; got.Name != "a__self_look" || got.Tool != "self.look" || got.Effect != "reads" || len(got.Text) > 200 || got.Devices != 1 {
		t.Errorf("got %+v", got)
	}
	f.offers = nil
	result, err := b.Handle(t.Context(), &ferrule.Call{Tool: "find_tools", Args: json.RawMessage(`{}`)})
	if err != nil || string(result.Value) != `{"tools":[],"total":0}` {
		t.Errorf("%s %v", result.Value, err)
	}
}

func TestDescribeTool(t *testing.T) {
	b := newSet(t, builtin.DescribeTool(seenByAll(someOffers())))
	var out builtin.DescribeToolOutput
	if err := call(t, b, ferrule.Agent, "describe_tool", `{"name":"board--1__self_look"}`, &out); err != nil {
		t.Fatal(err)
	}
	if out.Name != "board--1__self_look" || out.Tool != "self.look" || out.Effect != "reads" || !out.Idempotent ||
		strings.Join(out.Devices, " ") != "a b" || out.Count != 2 || string(out.Output) != `{"type":"object"}` {
		t.Errorf("got %+v", out)
	}
	if err := call(t, b, ferrule.Agent, "describe_tool", `{"name":"nothing"}`, &out); err == nil || ferrule.AsError(err).Code != ferrule.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		seen builtin.StatusOutput
		want string
	}{
		{builtin.StatusOutput{}, "No devices. A person has to connect one:"},
		{builtin.StatusOutput{Online: 1}, "1 device is online."},
		{builtin.StatusOutput{Online: 3, Offline: 2, Released: 1}, "3 devices are online."},
		{builtin.StatusOutput{Online: 3, Pending: 1}, "3 devices are online. 1 device is pending:"},
		{builtin.StatusOutput{Pending: 2, Offline: 1}, "No device can be used. 2 devices are pending:"},
		{builtin.StatusOutput{Released: 1, Offline: 4}, "No device can be used now. 1 device is released"},
		{builtin.StatusOutput{Offline: 2}, "No device is online. 2 devices are offline:"},
	} {
		b := newSet(t, builtin.Status("1.2.3", func(ferrule.Principal) builtin.StatusOutput { return test.seen }))
		var out builtin.StatusOutput
		if err := call(t, b, ferrule.Agent, "status", `{}`, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.Summary, test.want) || out.Version != "1.2.3" || out.Online != test.seen.Online || out.Pending != test.seen.Pending {
			t.Errorf("got %+v, want %s", out, test.want)
		}
	}
}

// TestSchemasAreReadable checks that every client can read the schemas: the root is an
// object, types are single, and there are no references or boolean schemas.
func TestSchemasAreReadable(t *testing.T) {
	var readable func(where string, v any)
	readable = func(where string, v any) {
		part, ok := v.(map[string]any)
		if !ok {
			t.Errorf("%s is %v", where, v)
			return
		}
		if _, refers := part["$ref"]; refers {
			t.Errorf("%s is a reference", where)
		}
		if typ, given := part["type"]; given {
			if _, one := typ.(string); !one {
				t.Errorf("%s has the types %v", where, typ)
			}
		}
		properties, _ := part["properties"].(map[string]any)
		for name, p := range properties {
			readable(where+"."+name, p)
		}
		if items, given := part["items"]; given {
			readable(where+"[]", items)
		}
		if more, given := part["additionalProperties"]; given && more != false {
			readable(where+".*", more)
		}
	}
	for _, tool := range everyTool(t).Manifest().Tools {
		for what, raw := range map[string]json.RawMessage{"input": tool.Input, "output": tool.Output} {
			if raw == nil { // not described
				continue
			}
			root, _, err := schema.DecodeArgs(raw)
			if err != nil || root["type"] != "object" {
				t.Errorf("%s: %v %s", tool.Name, err, raw)
			}
			readable(tool.Name+" "+what, root)
		}
	}
}
