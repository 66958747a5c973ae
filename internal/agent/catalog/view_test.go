package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

var (
	anybody = ferrule.Principal{Role: ferrule.Agent, Name: "anybody"}
	limited = ferrule.Principal{Role: ferrule.Agent, Name: "limited"}
)

// hide makes a catalog hide from limited what a function selects.
func hide(c *catalog.Catalog, version string, hidden func(dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) bool) {
	c.ShowTo(func(who ferrule.Principal) ferrule.Visibility {
		if who != limited {
			return ferrule.Visibility{}
		}
		return ferrule.Visibility{Version: version, Shows: func(dev *ferrule.Device, op ferrule.Operation, tool *ferrule.Tool) bool {
			return !hidden(dev, op, tool)
		}}
	})
}

// listOf returns the names in the list of a caller.
func listOf(c *catalog.Catalog, who ferrule.Principal) string {
	list, shape := c.As(who).List()
	all := []string{string(shape) + ":"}
	for _, o := range list {
		all = append(all, strings.TrimPrefix(o.Name, ferrule.GatewayID))
	}
	return strings.Join(all, " ")
}

// TestHiddenTools checks that a hidden tool is absent from the list, the search and the
// descriptions of one caller, in every shape, and present for another.
func TestHiddenTools(t *testing.T) {
	m := manifest("board", "read", "write")
	for n, shape := range map[int]catalog.Shape{2: catalog.Plain, 5: catalog.Folded} {
		c := some(6)
		put(c, "a", n, m)
		hide(c, "1", func(_ *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool { return tool.Name == "write" })
		whole, _ := c.List()
		if got, is := c.As(anybody).List(); is != shape || &got[0] != &whole[0] {
			t.Errorf("%s: the list of everybody is not shared", shape)
		}
		if got := listOf(c, limited); strings.Contains(got, "write") || !strings.Contains(got, "__read") {
			t.Errorf("%s: got %s", shape, got)
		}
		for _, o := range whole {
			_, err := c.As(limited).Offer(o.Name)
			if hidden := strings.HasSuffix(o.Name, "write"); (err != nil) != hidden {
				t.Errorf("%s is described: %v", o.Name, err)
			}
		}
		if found, total := c.As(limited).FindTools("", "", 10); total != len(found) || slices.ContainsFunc(found, func(o ferrule.Offer) bool { return o.Tool.Name == "write" }) {
			t.Errorf("%s: found %v of %d", shape, found, total)
		}
		if found, _ := c.As(limited).FindTools("write", "a-0", 10); len(found) != 0 {
			t.Errorf("%s: found %v", shape, found)
		}
		if of := c.As(limited).Of("a-0"); len(of) != 1 || of[0].Name != "read" {
			t.Errorf("%s: got %v", shape, of)
		}
		if of := c.As(anybody).Of("a-0"); len(of) != 2 {
			t.Errorf("%s: got %v", shape, of)
		}
	}
}

// TestHiddenDevices checks that a device is absent for an agent that may use nothing of
// it, and that a folded tool names only devices for which it is shown.
func TestHiddenDevices(t *testing.T) {
	c := some(6)
	m := manifest("board", "read", "write")
	m.Prompts, m.Operations = []ferrule.Prompt{{Name: "greet"}}, []ferrule.Operation{ferrule.GetPrompt}
	put(c, "a", 5, m)
	hide(c, "1", func(dev *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool {
		return dev.ID == "a-1" || dev.ID == "a-2" && tool.Name == "write"
	})
	see := c.As(limited)
	if _, _, ok := see.Lookup("a-1"); ok {
		t.Error("a hidden device is shown")
	}
	if _, _, ok := see.Lookup("a-2"); !ok {
		t.Error("a device is hidden although one of its tools may be used")
	}
	if ids, total := see.Complete("a", 10); strings.Join(ids, " ") != "a-0 a-2 a-3 a-4" || total != 4 {
		t.Errorf("completed %v of %d", ids, total)
	}
	if ids, total := see.Complete("a", 2); len(ids) != 2 || total <= 2 {
		t.Errorf("completed %v of %d", ids, total)
	}
	for query, want := range map[string]int{"": 4, "board": 4, "1": 0} {
		if found, total := see.FindDevices(query, 10); total != want || len(found) != want {
			t.Errorf("%q: found %d of %d", query, len(found), total)
		}
	}
	if found, _ := c.As(anybody).FindDevices("1", 10); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	found, _ := see.FindTools("write", "", 10)
	if len(found) != 1 || found[0].Count != 3 || strings.Join(found[0].Devices, " ") != "a-0 a-3 a-4" {
		t.Errorf("found %v", found)
	}
	if len(see.Prompts("a-1"))+len(see.PromptsOf("a-1")) != 0 || len(see.Prompts("a-2")) != 1 {
		t.Error("wrong prompts")
	}
}

// TestShownAgain checks that a caller's list follows devices, labels and the policy.
func TestShownAgain(t *testing.T) {
	c := some(6)
	m := manifest("board", "read", "write")
	put(c, "a", 5, m)
	kitchenOnly := func(dev *ferrule.Device, _ ferrule.Operation, _ *ferrule.Tool) bool {
		return dev.ID != ferrule.GatewayID && dev.Labels["room"] != "kitchen"
	}
	hide(c, "1", kitchenOnly)
	if got := listOf(c, limited); strings.Contains(got, "read") {
		t.Errorf("got %s", got)
	}
	dev := *online("a-3", m)
	dev.Labels = map[string]string{"room": "kitchen"}
	c.Put(&dev, m)
	if got := listOf(c, limited); !strings.Contains(got, "read") {
		t.Errorf("with a label: got %s", got)
	}
	hide(c, "2", func(_ *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool { return tool.Name == "read" })
	if got := listOf(c, limited); strings.Contains(got, "read") || !strings.Contains(got, "write") {
		t.Errorf("with another policy: got %s", got)
	}
	c.ShowTo(nil)
	if listOf(c, limited) != listOf(c, anybody) {
		t.Error("something is hidden without a policy")
	}
}

// TestHiddenInCrowd checks that a caller from whom most is hidden costs a bounded number
// of questions to the policy, and that a list is made once.
func TestHiddenInCrowd(t *testing.T) {
	const n = 50_000
	c := some(6)
	m := manifest("board", "read", "write")
	one := online("d", m)
	for i := range n {
		c.Put(named(one, fmt.Sprintf("d-%05d", i)), m)
	}
	asked := 0
	hide(c, "1", func(dev *ferrule.Device, _ ferrule.Operation, _ *ferrule.Tool) bool {
		asked++
		return dev.ID != "d-00500"
	})
	see := c.As(limited)
	if got := listOf(c, limited); !strings.Contains(got, "read") || asked > 3000 {
		t.Errorf("got %s after %d questions", got, asked)
	}
	if before := asked; listOf(c, limited) == "" || asked != before {
		t.Error("the list was made again")
	}
	asked = 0
	start := time.Now()
	if found, _ := see.FindDevices("d 00500", 5); len(found) != 1 || found[0].ID != "d-00500" {
		t.Errorf("found %v", found)
	}
	if ids, _ := see.Complete("d-005", 5); strings.Join(ids, " ") != "d-00500" {
		t.Errorf("completed %v", ids)
	}
	if found, _ := see.FindTools("write", "", 5); len(found) != 1 || strings.Join(found[0].Devices, " ") != "d-00500" {
		t.Errorf("found %v", found)
	}
	t.Logf("%d questions in %v", asked, time.Since(start))
	if asked > 30_000 {
		t.Errorf("asked %d times", asked)
	}
}

// TestResolveHidden checks that calls by names that a caller does not see still lead to the
// pipeline, which refuses and records them. The catalog of a proxy has only what is shown.
func TestResolveHidden(t *testing.T) {
	c := some(2)
	whole := manifest("board", "read", "write")
	part := manifest("board", "read")
	kind := online("x", whole).Kind
	for i, m := range []*ferrule.Manifest{whole, part, part} {
		dev := *online(fmt.Sprint("d-", i), m)
		dev.Kind = kind
		c.Put(&dev, m)
	}
	prefix := "board--" + string(kind[:6])
	for _, test := range []struct{ name, args, want string }{
		{"__write", `{"device":"d-1","on":true}`, `d-1 write {"on":true}`},
		{"__write", `{"device":"d-0"}`, `d-0 write {}`},
		{"__read", `{"device":"d-0"}`, `d-0 read {}`},
		{"__read", `{"device":"d-2"}`, `d-2 read {}`},
		{"__none", `{"device":"d-0","on_device":"d-1"}`, `d-1 none {"device":"d-0"}`},
	} {
		device, tool, rest, err := c.Resolve(prefix+test.name, []byte(test.args))
		if got := fmt.Sprintf("%s %s %s", device, tool, rest); got != test.want || err != nil {
			t.Errorf("%s %s: got %s, %v", test.name, test.args, got, err)
		}
	}
}
