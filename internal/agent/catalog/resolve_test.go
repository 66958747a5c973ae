package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// fleet returns a catalog with boards of two Kinds, and some that cannot be called.
func fleet() (c *catalog.Catalog, board, lamp string) {
	c = some(4)
	m := manifest("board", "read", "self.write")
	put(c, "a", 3, m)
	c.Put(as(online("away", m), ferrule.StateOffline, ferrule.TrustAdopted), m)
	c.Put(as(online("lent", m), ferrule.StateReleased, ferrule.TrustAdopted), m)
	c.Put(as(online("held", m), ferrule.StateOnline, ferrule.TrustPending), m)
	c.Put(&ferrule.Device{ID: "expected", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted}, nil)
	other := manifest("lamp", "dim")
	put(c, "l", 2, other)
	renamed := named(online("a", m), "a-2")
	renamed.Aliases = []string{"old-board", "a-1"} // a-1 is another device now
	c.Put(renamed, m)
	return c, "board--" + string(online("x", m).Kind[:6]), "lamp--" + string(online("x", other).Kind[:6])
}

func TestResolve(t *testing.T) {
	c, board, lamp := fleet()
	call := catalog.Name("call_tool")
	for _, test := range []struct {
		name, args string
		want       string // device, tool and arguments; or the code of the error
	}{
		{"a-0__read", `{"pin":1}`, `a-0 read {"pin":1}`},
		{"a-0__self_write", `{"pin":1}`, `a-0 self.write {"pin":1}`},
		{"a-0__self.write", ``, `a-0 self.write `},
		{"a-0__none", `{}`, `a-0 none {}`}, // the road says so
		{"a-0__", `{}`, `a-0  {}`},
		{"nobody__read", `{}`, `nobody read {}`},
		{"old-board__self_write", `{"pin":1}`, `a-2 self.write {"pin":1}`},
		{"a-1__read", `{}`, `a-1 read {}`},
		{"away__read", `{}`, `away read {}`},
		{"held__read", `{}`, `held read {}`},
		{"expected__read", `{}`, `expected read {}`},
		{"gateway__status", `{}`, `gateway status {}`},
		{"gateway__find_tools", `{"query":"x"}`, `gateway find_tools {"query":"x"}`},
		{"read", `{}`, "not_found"},
		{"", `{}`, "not_found"},
		{"a-0_read", `{}`, "not_found"},

		{board + "__read", `{"pin":1.50,"device":"a-1"}`, `a-1 read {"pin":1.50}`},
		{board + "__self_write", `{"device":"a-1","text":"<é>"}`, `a-1 self.write {"text":"<é>"}`},
		{board + "__self.write", `{"device":"a-1"}`, `a-1 self.write {}`},
		{board + "__read", `{"device":"l-0","pin":1}`, "invalid"},
		{lamp + "__dim", `{"device":"a-0"}`, "invalid"},
		{board + "__read", `{"device":"old-board","pin":1}`, `a-2 read {"pin":1}`},
		{board + "__read", `{"device":"gateway"}`, "not_found"},
		{board + "__read", `{"device":"nobody"}`, "not_found"},
		{board + "__read", `{"device":"held"}`, "not_found"},
		{board + "__read", `{"device":"away"}`, "offline"},
		{board + "__read", `{"device":"lent"}`, "busy"},
		{board + "__read", `{"device":"expected"}`, "offline"},
		{board + "__read", `{"pin":1}`, "invalid"},
		{board + "__read", ``, "invalid"},
		{board + "__read", `{"device":7}`, "invalid"},
		{board + "__read", `{"device":["a-0"]}`, "invalid"},
		{board + "__read", `[]`, "invalid"},
		{board + "__read", `{"device":"a-0"`, "invalid"},
		{board + "__none", `{"device":"a-0"}`, `a-0 none {}`}, // the road refuses it
		{board + "__none", `{"device":"nobody"}`, "not_found"},
		{board + "__none", `{}`, "not_found"},
		{"board--000000__read", `{"device":"a-0"}`, "not_found"},
		{"board--000000__read", `{"device":"away"}`, "offline"},
		{"--__read", `{"device":"a-0"}`, "not_found"},
		// Readers disagree on which of two equal members counts.
		{board + "__read", `{"device":"a-0","pin":1,"device":"a-1","pin":2}`, `a-1 read {"pin":2}`},
		{board + "__read", `{"Device":"a-0"}`, "invalid"},

		{call, `{"name":"a-0__read","arguments":{"pin":1}}`, `a-0 read {"pin":1}`},
		{call, `{"name":"a-0__read"}`, `a-0 read `},
		{call, `{"name":"` + board + `__read","arguments":{"pin":1,"device":"a-2"}}`, `a-2 read {"pin":1}`},
		{call, `{"name":"gateway__status","arguments":{}}`, `gateway status {}`},
		{call, `{"name":"` + call + `","arguments":{"name":"a-0__read"}}`, "invalid"},
		{call, `{"arguments":{"pin":1}}`, "invalid"},
		{call, `{"name":"","arguments":{}}`, "invalid"},
		{call, `{"name":7}`, "invalid"},
		{call, `{"NAME":"a-0__read"}`, "invalid"},
		{call, `{"name":"a-0__read","Name":"a-1__read"}`, "invalid"},
		{call, `{"name":"a-0__read","pin":1}`, "invalid"},
		{call, `{"name":"a-0__read","arguments":"{}"}`, "invalid"},
		{call, `{"name":"a-0__read","arguments":[1]}`, "invalid"},
		{call, `{"name":"a-0__read","arguments":null}`, "invalid"},
		{call, `{"name":"a-0__read","arguments":{"pin":1},"arguments":{"pin":2}}`, `a-0 read {"pin":2}`},
		{call, `"a-0__read"`, "invalid"},
		{call, ``, "invalid"},
		{call, `{"name":"read"}`, "not_found"},
	} {
		device, tool, rest, err := c.Resolve(test.name, json.RawMessage(test.args))
		got := fmt.Sprintf("%s %s %s", device, tool, rest)
		if err != nil {
			if got != "  " {
				t.Errorf("%s %s: %s, and an error", test.name, test.args, got)
			}
			got = string(code(err))
		}
		if got != test.want {
			t.Errorf("%s %s: %s, want %s (%v)", test.name, test.args, got, test.want, err)
		}
	}
}

// TestAllOffline checks the error for a folded tool whose devices are all offline.
func TestAllOffline(t *testing.T) {
	m := manifest("board", "read")
	m.Tools[0].Input = json.RawMessage(`{"properties":{"device":{"type":"string"}},"type":"object"}`)
	c := some(1)
	put(c, "a", 2, m)
	list, _ := c.List()
	name := list[0].Name
	for _, id := range []string{"a-0", "a-1"} {
		c.Put(as(online(id, m), ferrule.StateOffline, ferrule.TrustAdopted), m)
	}
	if _, _, _, err := c.Resolve(name, json.RawMessage(`{"device":"/dev/sda","on_device":"a-1"}`)); code(err) != ferrule.Offline || !strings.Contains(err.Error(), "a-1") {
		t.Errorf("%s: %v", name, err)
	}
	if _, err := c.All().Offer(name); code(err) != ferrule.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := c.All().Offer("a-1__read"); code(err) != ferrule.Offline {
		t.Errorf("%v", err)
	}
}

// TestDeviceArguments checks tools that have an argument named device themselves.
func TestDeviceArguments(t *testing.T) {
	for _, test := range []struct{ input, argument string }{
		{``, "device"},
		{`{"type":"object"}`, "device"},
		{`{"properties":{"device":{"type":"string"}},"type":"object"}`, "on_device"},
		{`{"properties":{"device":{},"on_device":{}},"required":["on_device"],"type":"object"}`, "on_device_2"},
		{`{"properties":{"device":{},"on_device":{},"on_device_2":{},"on_device_3":{}},"type":"object"}`, "on_device_4"},
		{`{"properties":{},"required":["device"],"type":"object"}`, "on_device"},
	} {
		m := manifest("board", "read")
		m.Tools[0].Input = json.RawMessage(test.input)
		c := some(1)
		put(c, "a", 2, m)
		list, shape := c.List()
		o := list[0]
		if shape != catalog.Folded || o.Argument != test.argument {
			t.Errorf("%s: %s %q", test.input, shape, o.Argument)
			continue
		}
		var got struct {
			Properties map[string]any
			Required   []string
		}
		if err := json.Unmarshal(o.Input, &got); err != nil || got.Properties[test.argument] == nil || got.Required[0] != test.argument {
			t.Errorf("%s becomes %s: %v", test.input, o.Input, err)
		}
		var before struct {
			Properties map[string]any
			Required   []string
		}
		_ = json.Unmarshal([]byte(test.input), &before)
		if len(got.Properties) != len(before.Properties)+1 || len(got.Required) != len(before.Required)+1 {
			t.Errorf("%s becomes %s", test.input, o.Input)
		}
		args := map[string]any{"device": "mine", "on_device": "mine", test.argument: "a-1"}
		data, _ := json.Marshal(args)
		device, tool, rest, err := c.Resolve(o.Name, data)
		delete(args, test.argument)
		want, _ := json.Marshal(args)
		if device != "a-1" || tool != "read" || string(rest) != string(want) || err != nil {
			t.Errorf("%s: %s %s %s %v, want %s", test.input, device, tool, rest, err, want)
		}
	}
}

// TestLargeSchema checks that a large schema is listed whole.
func TestLargeSchema(t *testing.T) {
	m := manifest("board", "read")
	deep := `{"type":"string"}`
	for range 40 {
		deep = `{"properties":{"in":` + deep + `},"type":"object"}`
	}
	m.Tools[0].Input = json.RawMessage(`{"properties":{"deep":` + deep + `,"pin":{"description":"` + strings.Repeat("x", 70<<10) + `"}},"type":"object"}`)
	c := some(40)
	put(c, "a", 2, m)
	found, _ := c.All().FindTools("read", "", 1)
	if len(found) != 1 || len(found[0].Input) < len(m.Tools[0].Input) || found[0].Argument != "device" {
		t.Fatalf("%d found", len(found))
	}
}

func TestOffer(t *testing.T) {
	c, board, _ := fleet()
	for _, test := range []struct{ name, want string }{
		{"a-0__read", "a-0__read on [a-0] of 1"},
		{"a-0__self.write", "a-0__self_write on [a-0] of 1"},
		{board + "__self_write", board + "__self_write on [a-0 a-1 a-2] of 3, device"},
		{board + "__self.write", board + "__self_write on [a-0 a-1 a-2] of 3, device"},
		{"gateway__status", "gateway__status on [gateway] of 1"},
		{"gateway__call_tool", "gateway__call_tool on [gateway] of 1"},
		{"gateway__adopt_device", "not_found"}, // it is for people
		{"a-0__none", "not_found"},
		{"none__read", "not_found"},
		{"held__read", "not_found"},
		{"away__read", "offline"},
		{"lent__read", "busy"},
		{"expected__read", "offline"},
		{board + "__none", "not_found"},
		{"board--000000__read", "not_found"},
		{"read", "not_found"},
	} {
		o, err := c.All().Offer(test.name)
		got := fmt.Sprintf("%s on %v of %d", o.Name, o.Devices, o.Count)
		if o.Argument != "" {
			got += ", " + o.Argument
		}
		if err != nil {
			got = string(code(err))
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	put(c, "many", 500, manifest("fan", "on"))
	found, _ := c.All().FindTools("fan", "", 1)
	o, err := c.All().Offer(found[0].Name)
	if err != nil || o.Count != 500 || len(o.Devices) != 10 || o.Devices[9] != "many-106" {
		t.Errorf("%+v %v", o, err)
	}
}

// TestTextOfAName checks that names in errors are cleaned.
func TestTextOfAName(t *testing.T) {
	c, board, _ := fleet()
	for _, name := range []string{"\x1b[2J" + strings.Repeat("x", 1000), board + "__\u202e" + strings.Repeat("x", 1000)} {
		_, _, _, err := c.Resolve(name, json.RawMessage(`{}`))
		if err == nil || len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\x1b\u202e") {
			t.Errorf("got %v", err)
		}
	}
}
