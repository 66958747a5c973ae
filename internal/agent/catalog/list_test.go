package catalog_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/schema"
)

const searchTools = "__call_many __call_tool __describe_tool __find_devices __find_tools __status"

// shown returns a list as an agent gets it.
func shown(t *testing.T, c *catalog.Catalog) string {
	t.Helper()
	list, shape := c.List()
	data, err := json.Marshal(struct {
		Shape catalog.Shape
		List  []ferrule.Offer
	}{shape, list})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestShapes(t *testing.T) {
	c := some(6)
	if got := names(c); got != "plain: __status" {
		t.Errorf("got %s", got)
	}
	m := manifest("board", "read", "write")
	put(c, "a", 3, m)
	if got := names(c); got != "plain: a-0__read a-0__write a-1__read a-1__write a-2__read a-2__write __status" {
		t.Errorf("got %s", got)
	}
	put(c, "a", 4, m)
	kind := "board--" + string(online("x", m).Kind[:6])
	folded := fmt.Sprintf("folded: %s__read %s__write __find_devices __status", kind, kind)
	if got := names(c); got != folded {
		t.Errorf("got %s", got)
	}
	other := manifest("lamp", "dim", "on", "off")
	c.Put(online("one", other), other)
	if got := names(c); got != fmt.Sprintf("folded: %s__read %s__write __find_devices __status one__dim one__off one__on", kind, kind) {
		t.Errorf("got %s", got)
	}
	third := manifest("fan", "on", "off")
	c.Put(online("two", third), third)
	if got := names(c); got != "search: "+searchTools {
		t.Errorf("got %s", got)
	}
	c.Remove("two")
	c.Remove("one")
	if got := names(c); got != folded {
		t.Errorf("got %s", got)
	}
	c.Remove("a-3")
	if got := names(c); !strings.HasPrefix(got, "plain:") {
		t.Errorf("got %s", got)
	}
}

// TestLarge checks that a Kind above the budget is searchable, and does not displace others.
func TestLarge(t *testing.T) {
	small := manifest("board", "read", "write")
	many := manifest("monster", numbered("tool", 1000)...)
	huge := manifest("novel", "read", "skip")
	huge.Tools[0].Text = strings.Repeat("word ", 20_000)
	for _, large := range []*ferrule.Manifest{many, huge} {
		c := some(40)
		c.Put(online("big", large), large)
		if got := names(c); got != "search: "+searchTools {
			t.Errorf("alone: %s", got)
		}
		c.Put(online("small", small), small)
		if got := names(c); got != "plain: "+searchTools+" small__read small__write" {
			t.Errorf("beside one: %s", got)
		}
		put(c, "small", 50, small)
		put(c, "big", 50, large)
		kind := "board--" + string(online("x", small).Kind[:6])
		if got := names(c); got != fmt.Sprintf("folded: %s__read %s__write %s", kind, kind, searchTools) {
			t.Errorf("beside many: %s", got)
		}
		tool := large.Tools[len(large.Tools)-1].Name
		if found, total := c.All().FindTools("", "big", 2000); total != len(large.Tools) || len(found) != total {
			t.Errorf("%d of %d tools are found", len(found), total)
		}
		if device, got, _, err := c.Resolve("big__"+tool, nil); device != "big" || got != tool || err != nil {
			t.Errorf("%s %s %v", device, got, err)
		}
	}
}

func TestNoBudget(t *testing.T) {
	c := some(0)
	m := manifest("board", "read")
	c.Put(online("a", m), m)
	if got := names(c); got != "search: "+searchTools {
		t.Errorf("got %s", got)
	}
	empty := catalog.New(catalog.Config{})
	if list, shape := empty.List(); list == nil || len(list) != 0 || shape != catalog.Plain {
		t.Errorf("%v %s", list, shape)
	}
}

// TestListIsTheSame checks that the list does not depend on the order or number of devices.
func TestListIsTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, budget := range []int{100, 40, 10} {
		type both struct {
			dev *ferrule.Device
			m   *ferrule.Manifest
		}
		var all []both
		for k := range 4 {
			m := manifest("board", "b", "a.b", "a_b", fmt.Sprint("only", k), strings.Repeat("long", 20))
			for i := range 4 - k {
				all = append(all, both{online(fmt.Sprintf("d%d-%d", k, i), m), m})
			}
		}
		var want string
		for range 20 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			c := some(budget)
			for _, b := range all {
				c.Put(b.dev, b.m)
			}
			if got := shown(t, c); want != "" && got != want {
				t.Fatalf("the list was\n%s\nand is\n%s", want, got)
			} else {
				want = got
			}
		}
	}
}

func TestManyOfOneKind(t *testing.T) {
	c := some(40)
	m := manifest("board", "read", "write")
	put(c, "a", 50, m)
	want := shown(t, c)
	one := online("b", m)
	for n := 51; n <= 10_000; n++ {
		c.Put(named(one, fmt.Sprintf("b-%d", n)), m)
		if n%999 == 0 && shown(t, c) != want {
			t.Fatalf("with %d devices the list is another", n)
		}
	}
	if got := shown(t, c); got != want {
		t.Errorf("the list was\n%s\nand is\n%s", want, got)
	}
	if n := c.Counts(); n != (catalog.Counts{Online: 10_000, Kinds: 1}) {
		t.Errorf("got %+v", n)
	}
}

func TestManyOfManyKinds(t *testing.T) {
	c := some(40)
	for k := range 100 {
		put(c, fmt.Sprintf("k%d", k), 100, manifest(fmt.Sprintf("board %d", k), "read", "write"))
	}
	if got := names(c); got != "search: "+searchTools {
		t.Errorf("got %s", got)
	}
	if n := c.Counts(); n.Online != 10_000 || n.Kinds != 100 {
		t.Errorf("got %+v", n)
	}
}

// TestComeAndGo checks that offline and pending devices are not listed.
func TestComeAndGo(t *testing.T) {
	m := manifest("board", "read", "reset", "broken")
	m.Tools[1].UserOnly = true
	m.Tools[2].Quarantine = "because"
	c := some(40)
	robot := online("robot", m)
	there := func() string { return strings.TrimSuffix(strings.TrimPrefix(names(c), "plain: __status"), " ") }
	const listed = " robot__read"
	for _, step := range []struct {
		name   string
		do     func()
		want   string
		counts catalog.Counts
	}{
		{"comes", func() { c.Put(robot, m) }, listed, catalog.Counts{Online: 1, Kinds: 1}},
		{"goes", func() { c.Put(as(robot, ferrule.StateOffline, ferrule.TrustAdopted), m) }, "", catalog.Counts{Offline: 1}},
		{"comes again", func() { c.Put(robot, m) }, listed, catalog.Counts{Online: 1, Kinds: 1}},
		{"is released", func() { c.Put(as(robot, ferrule.StateReleased, ferrule.TrustAdopted), m) }, "", catalog.Counts{Released: 1}},
		{"is held", func() { c.Put(as(robot, ferrule.StateOnline, ferrule.TrustPending), m) }, "", catalog.Counts{Pending: 1}},
		{"is held and goes", func() { c.Put(as(robot, ferrule.StateOffline, ferrule.TrustPending), m) }, "", catalog.Counts{Pending: 1}},
		{"is adopted", func() { c.Put(robot, m) }, listed, catalog.Counts{Online: 1, Kinds: 1}},
		{"becomes another", func() {
			other := manifest("board", "see")
			c.Put(online("robot", other), other)
		}, " robot__see", catalog.Counts{Online: 1, Kinds: 1}},
		{"is removed", func() { c.Remove("robot") }, "", catalog.Counts{}},
		{"is removed again", func() { c.Remove("robot") }, "", catalog.Counts{}},
		{"was never reached", func() {
			c.Put(&ferrule.Device{ID: "robot", State: ferrule.StateOffline, Trust: ferrule.TrustAdopted}, nil)
		}, "", catalog.Counts{Offline: 1}},
	} {
		step.do()
		if got := there(); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		if got := c.Counts(); got != step.counts {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.counts)
		}
	}
}

// TestPending checks that agents see nothing of a pending device but its count.
func TestPending(t *testing.T) {
	c := some(40)
	m := manifest("board", "read")
	put(c, "a", 2, m)
	c.Put(as(online("secret", m), ferrule.StateOnline, ferrule.TrustPending), m)
	if _, _, ok := c.Lookup("secret"); ok {
		t.Error("it is looked up")
	}
	if found, total := c.All().FindDevices("secret", 10); total != 0 {
		t.Errorf("it is found: %v", found)
	}
	if found, total := c.All().FindDevices("", 10); total != 2 || len(found) != 2 {
		t.Errorf("it is found: %v", found)
	}
	if found, total := c.All().FindTools("", "secret", 10); total != 0 {
		t.Errorf("its tools are found: %v", found)
	}
	if found, _ := c.All().FindTools("secret", "", 10); len(found) != 0 {
		t.Errorf("its tools are found: %v", found)
	}
	if ids, total := c.All().Complete("", 10); total != 2 || slices.Contains(ids, "secret") {
		t.Errorf("it completes: %v", ids)
	}
	if all := c.All().Devices(10); len(all) != 2 {
		t.Errorf("it is listed: %v", all)
	}
	if list := c.All().Of("secret"); len(list) != 0 {
		t.Errorf("its tools are listed: %v", list)
	}
	if _, err := c.All().Offer("secret__read"); code(err) != ferrule.NotFound {
		t.Errorf("its tool is told: %v", err)
	}
	folded := "board--" + string(online("x", m).Kind[:6]) + "__read"
	if o, err := c.All().Offer(folded); err != nil || o.Count != 2 || slices.Contains(o.Devices, "secret") {
		t.Errorf("it is told: %+v, %v", o, err)
	}
	if _, _, _, err := c.Resolve(folded, json.RawMessage(`{"device":"secret"}`)); code(err) != ferrule.NotFound {
		t.Errorf("it is resolved: %v", err)
	}
}

func TestOf(t *testing.T) {
	c := some(1)
	m := manifest("board", "self.read", "write", "reset")
	m.Tools[2].UserOnly = true
	put(c, "a", 2, m)
	var got []string
	for _, o := range c.All().Of("a-1") {
		got = append(got, o.Name+" on "+strings.Join(o.Devices, ","))
	}
	if want := []string{"self_read on a-1", "write on a-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]string{"self_read": "self.read", "self.read": "self.read", "write": "write", "reset": "reset", "x": "x"} {
		if got := c.ResolveOn("a-1", name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	c.Put(as(online("a-1", m), ferrule.StateOffline, ferrule.TrustAdopted), m)
	if list := c.All().Of("a-1"); list == nil || len(list) != 0 {
		t.Errorf("got %v", list)
	}
	if got := c.ResolveOn("nobody", "write"); got != "write" {
		t.Errorf("got %s", got)
	}
}

func TestLookup(t *testing.T) {
	c := some(40)
	m := manifest("board", "read")
	first := online("a", m)
	c.Put(first, m)
	second := online("a", m)
	second.Labels = map[string]string{"room": "attic"}
	c.Put(second, m)
	if dev, laid, ok := c.Lookup("a"); dev != second || laid != m || !ok {
		t.Errorf("%+v %+v %t", dev, laid, ok)
	}
	if found, total := c.All().FindDevices("attic", 1); total != 1 || found[0] != second {
		t.Errorf("%v %d", found, total)
	}
	if dev, _, ok := c.Lookup(ferrule.GatewayID); !ok || dev.ID != ferrule.GatewayID {
		t.Errorf("%+v %t", dev, ok)
	}
	if _, _, ok := c.Lookup("b"); ok {
		t.Error("b is there")
	}
}

// TestOffersAreReadable checks that every client can read the schemas: the root is an
// object, types are single, and there are no references or boolean schemas.
func TestOffersAreReadable(t *testing.T) {
	raw := `{"type":"object","$defs":{"p":{"type":["integer","null"]}},"properties":{"pin":{"$ref":"#/$defs/p"},
		"any":true,"deep":{"type":"array","items":{"type":"object","additionalProperties":true}}},"required":["pin"]}`
	s, err := schema.Compile([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	m := manifest("board", "known", "unknown")
	m.Tools[0].Input = s.Portable()
	m.Tools[1].Input = nil
	c := some(40)
	c.Put(online("a", m), m)
	check := func(offers []ferrule.Offer) {
		t.Helper()
		for _, o := range offers {
			readable(t, o.Name, o.Input)
			if strings.TrimSpace(o.Text) == "" || o.Tool == nil {
				t.Errorf("%s says nothing: %+v", o.Name, o)
			}
		}
	}
	list, _ := c.List()
	check(list)
	check(c.All().Of("a"))
	c.Put(online("b", m), m)
	found, _ := c.All().FindTools("", "", 10)
	check(found)
	callTool, err := c.All().Offer(catalog.Name("call_tool"))
	if err != nil {
		t.Fatal(err)
	}
	check([]ferrule.Offer{callTool})
}

func readable(t *testing.T, name string, raw json.RawMessage) {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil || root["type"] != "object" {
		t.Errorf("%s: %v %s", name, err, raw)
	}
	var look func(v any)
	look = func(v any) {
		part, ok := v.(map[string]any)
		if !ok {
			t.Errorf("%s: a schema that is %v in %s", name, v, raw)
			return
		}
		if _, refers := part["$ref"]; refers {
			t.Errorf("%s: a reference in %s", name, raw)
		}
		if typ, given := part["type"]; given && reflect.TypeOf(typ).Kind() != reflect.String {
			t.Errorf("%s: several types in %s", name, raw)
		}
		properties, _ := part["properties"].(map[string]any)
		for _, p := range properties {
			look(p)
		}
		if items, given := part["items"]; given {
			look(items)
		}
		if more, given := part["additionalProperties"]; given && more != false {
			look(more)
		}
		required, _ := part["required"].([]any)
		seen := make(map[any]bool)
		for _, r := range required {
			if seen[r] || properties[r.(string)] == nil {
				t.Errorf("%s: %v is required twice, or not told, in %s", name, r, raw)
			}
			seen[r] = true
		}
	}
	look(root)
}

// TestOfInOrder checks that tools are sorted by the names that agents see, because
// agents page by them.
func TestOfInOrder(t *testing.T) {
	c := catalog.New(catalog.DefaultConfig())
	m := &ferrule.Manifest{Model: "board"}
	for i := range 100 {
		m.Tools = append(m.Tools, ferrule.Tool{Name: fmt.Sprintf("t.%03d", i+100), Effect: ferrule.Reads}, ferrule.Tool{Name: fmt.Sprintf("t_%03d", i), Effect: ferrule.Reads})
	}
	c.Put(&ferrule.Device{ID: "robot", Kind: "k", State: ferrule.StateOnline, Trust: ferrule.TrustAdopted}, m)
	of := c.All().Of("robot")
	if len(of) != 200 || !slices.IsSortedFunc(of, func(a, b ferrule.Offer) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d tools, the first are %s, %s", len(of), of[0].Name, of[1].Name)
	}
}
