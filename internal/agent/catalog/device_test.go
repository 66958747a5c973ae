package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestOffersOn checks that the tools of one device have the names of the list, in each shape.
func TestOffersOn(t *testing.T) {
	m := manifest("board", "read", "write")
	kind := "board--" + string(online("x", m).Kind[:6])
	for _, test := range []struct {
		budget, devices int
		want, through   string
	}{
		{10, 2, "a-1__read() a-1__write()", ""},
		{2, 2, kind + "__read(device) " + kind + "__write(device)", ""},
		{1, 2, "a-1__read() a-1__write()", "gateway__call_tool"},
	} {
		c := some(test.budget)
		put(c, "a", test.devices, m)
		offers, through := c.All().OffersOn("a-1")
		var got []string
		for _, o := range offers {
			got = append(got, fmt.Sprintf("%s(%s)", o.Name, o.Argument))
		}
		if strings.Join(got, " ") != test.want || through != test.through {
			t.Errorf("budget %d: got %q through %q", test.budget, got, through)
		}
		if offers, _ := c.All().OffersOn("nobody"); offers != nil {
			t.Errorf("got %v", offers)
		}
	}
	c := some(10)
	put(c, "a", 1, m)
	c.ShowTo(func(ferrule.Principal) ferrule.Visibility {
		return ferrule.Visibility{Shows: func(_ *ferrule.Device, _ ferrule.Operation, tool *ferrule.Tool) bool { return tool.Name == "read" }}
	})
	if offers, _ := c.As(ferrule.Principal{Role: ferrule.Agent, Name: "x"}).OffersOn("a-0"); len(offers) != 1 || offers[0].Name != "a-0__read" {
		t.Errorf("got %v", offers)
	}
	if list, _ := c.List(); len(list) != 3 {
		t.Errorf("the list has changed: %v", list)
	}
}
