package catalog_test

import (
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// recording returns a catalog of a gateway with a history.
func recording(budget int) *catalog.Catalog {
	c := catalog.New(catalog.Config{Budget: budget})
	_, m := gateway()
	m.Tools = append(m.Tools, manifest("ferrule", "sql", "plot", "history", "latest").Tools...)
	c.Put(online(ferrule.GatewayID, m), m)
	return c
}

// TestMeasureTools checks that tools for measured values are listed while there are any,
// and can be searched otherwise.
func TestMeasureTools(t *testing.T) {
	c := recording(6)
	lamp := manifest("lamp", "on", "off")
	c.Put(online("lamp", lamp), lamp)
	const without = "plain: __status lamp__off lamp__on"
	if got := names(c); got != without {
		t.Errorf("nothing is measured: %s", got)
	}
	if found, _ := c.All().FindTools("history plot", "", 10); len(found) > 0 {
		t.Errorf("nothing is measured: found %+v", found)
	}
	pin := manifest("board", "read")
	pin.Pins = []ferrule.Pin{{Number: 34, Sampling: &ferrule.Sampling{Interval: 5e8, Size: 120}}}
	polled := manifest("board", "read")
	polled.Tools[0].Poll = 1e9
	laid := manifest("board", "read")
	laid.Polls = []ferrule.Poll{{Name: "read", Tool: "read"}}
	broken := manifest("board", "read")
	broken.Tools[0].Poll, broken.Tools[0].Quarantine = 1e9, "because"
	for name, m := range map[string]*ferrule.Manifest{"pin": pin, "polled": polled, "laid": laid} {
		board := online("board", m)
		c.Put(board, m)
		const with = "plain: board__read __history __latest __plot __sql __status lamp__off lamp__on"
		if got := names(c); got != with {
			t.Errorf("%s: %s", name, got)
		}
		c.Put(as(board, ferrule.StateOffline, ferrule.TrustAdopted), m)
		if got := names(c); got != "plain: __history __latest __plot __sql __status lamp__off lamp__on" {
			t.Errorf("%s, offline: %s", name, got)
		}
		c.Put(as(board, ferrule.StateOnline, ferrule.TrustPending), m)
		if got := names(c); got != without {
			t.Errorf("%s, held: %s", name, got)
		}
		c.Put(board, m)
		c.Put(board, m)
		c.Remove("board")
		if got := names(c); got != without {
			t.Errorf("%s, gone: %s", name, got)
		}
	}
	c.Put(online("board", broken), broken)
	if got := names(c); got != without {
		t.Errorf("a tool that cannot be used: %s", got)
	}
	c.Remove("board")
	put(c, "board", 9, pin)
	if got := names(c); got != "folded: "+toolPrefix(c, "read")+"__read __find_devices __latest __plot __sql __status lamp__off lamp__on" {
		t.Errorf("folded: %s", got)
	}
	many := manifest("many", numbered("tool", 6)...)
	c.Put(online("many", many), many)
	if got := names(c); got != "search: "+searchTools {
		t.Errorf("search: %s", got)
	}
	found, total := c.All().FindTools("history", "", 10)
	if total != 1 || found[0].Name != "gateway__history" || found[0].Count != 1 {
		t.Errorf("found %+v", found)
	}
	for _, name := range []string{"gateway__history", "gateway__plot"} {
		if device, _, _, err := c.Resolve(name, nil); err != nil || device != ferrule.GatewayID {
			t.Errorf("%s is %s, %v", name, device, err)
		}
	}
}
