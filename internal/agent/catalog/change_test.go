package catalog_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
)

// TestOrder checks that devices stay sorted by ID while searches use snapshots.
func TestOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	m := manifest("board", "read")
	c := some(40)
	one := online("d", m)
	there := make(map[string]bool)
	check := func() {
		t.Helper()
		want := slices.Sorted(maps.Keys(there))
		var got []string
		for _, dev := range c.All().Devices(len(want) + 1) {
			got = append(got, dev.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d devices are there, %d are listed", len(want), len(got))
		}
		prefix := fmt.Sprintf("d-%d", random.IntN(100))
		want = slices.DeleteFunc(want, func(id string) bool { return !strings.HasPrefix(id, prefix) })
		if ids, total := c.All().Complete(prefix, 3); total != len(want) || !slices.Equal(ids, want[:min(3, len(want))]) {
			t.Fatalf("%s: %q of %d, want %q of %d", prefix, ids, total, want[:min(3, len(want))], len(want))
		}
		if _, total := c.All().FindDevices("board", 1); total != len(there) {
			t.Fatalf("%d devices are there, %d are found", len(there), total)
		}
	}
	for round := range 12 {
		comes := []int{9, 5, 1}[round%3]
		for range 1500 {
			id := fmt.Sprintf("d-%d", random.IntN(5000))
			if random.IntN(10) < comes {
				c.Put(named(one, id), m)
				there[id] = true
			} else {
				c.Remove(id)
				delete(there, id)
			}
			if random.IntN(100) == 0 {
				check()
			}
		}
	}
	for id := range there {
		c.Remove(id)
	}
	clear(there)
	check()
	c.Put(online("d-1", m), m)
	there["d-1"] = true
	check()
}

// TestUnderChange checks concurrent changes and reads: every view is consistent.
func TestUnderChange(t *testing.T) {
	const writers, rounds = 6, 300
	manifests := []*ferrule.Manifest{manifest("board", "read", "self.write"), manifest("lamp", "dim"), manifest("board", "read", "burn")}
	c := some(8)
	stop := make(chan struct{})
	var looking, changing sync.WaitGroup
	for range 2 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				list, shape := c.List()
				if !slices.IsSortedFunc(list, func(a, b ferrule.Offer) int { return strings.Compare(a.Name, b.Name) }) {
					t.Errorf("%s: not in order", shape)
				}
				for _, o := range list {
					args, _ := json.Marshal(map[string]any{"device": "d0-1"})
					if _, _, _, err := c.Resolve(o.Name, args); err != nil && code(err) == ferrule.Internal {
						t.Error(err)
					}
				}
				found, total := c.All().FindDevices("board room", 5)
				if len(found) != min(5, total) {
					t.Errorf("%d of %d", len(found), total)
				}
				tools, total := c.All().FindTools("read attic", "", 5)
				if len(tools) != min(5, total) {
					t.Errorf("%d of %d", len(tools), total)
				}
				for _, o := range tools {
					if o.Count == 0 || len(o.Devices) != min(10, o.Count) {
						t.Errorf("%+v", o)
					}
					_, _ = c.All().Offer(o.Name)
				}
				if ids, total := c.All().Complete("d", 3); len(ids) != min(3, total) || !slices.IsSorted(ids) {
					t.Errorf("%q of %d", ids, total)
				}
				c.All().Devices(4)
				c.All().Of("d0-0")
				c.ResolveOn("d0-0", "self_write")
				c.Lookup("d1-1")
				if n := c.Counts(); n.Online < 0 || n.Offline < 0 || n.Pending < 0 || n.Kinds < 0 {
					t.Errorf("%+v", n)
				}
			}
		})
	}
	last := make([]map[string]*ferrule.Device, writers)
	for w := range writers {
		last[w] = make(map[string]*ferrule.Device)
		changing.Go(func() {
			random := rand.New(rand.NewPCG(9, uint64(w)))
			for range rounds {
				id := fmt.Sprintf("d%d-%d", w, random.IntN(20))
				m := manifests[random.IntN(len(manifests))]
				dev := online(id, m)
				switch random.IntN(6) {
				case 0:
					c.Remove(id)
					delete(last[w], id)
					continue
				case 1:
					dev = as(dev, ferrule.StateOffline, ferrule.TrustAdopted)
				case 2:
					dev = as(dev, ferrule.StateOnline, ferrule.TrustPending)
				case 3:
					dev.Labels = map[string]string{"room": "attic"}
				}
				c.Put(dev, m)
				last[w][id] = dev
			}
		})
	}
	changing.Wait()
	close(stop)
	looking.Wait()

	var want catalog.Counts
	kinds := make(map[ferrule.Kind]bool)
	for _, mine := range last {
		for id, dev := range mine {
			switch got, _, ok := c.Lookup(id); {
			case dev.Trust == ferrule.TrustPending:
				want.Pending++
				if ok {
					t.Errorf("%s is held, and is there", id)
				}
				continue
			case got != dev:
				t.Errorf("%s is %+v, want %+v", id, got, dev)
			}
			if dev.State == ferrule.StateOnline {
				want.Online++
				kinds[dev.Kind] = true
			} else {
				want.Offline++
			}
		}
	}
	want.Kinds = len(kinds)
	if got := c.Counts(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, total := c.All().Complete("", 0); total != want.Online+want.Offline {
		t.Errorf("%d devices are listed, want %d", total, want.Online+want.Offline)
	}
	if _, total := c.All().FindDevices("online", 0); total != want.Online {
		t.Errorf("%d devices are found, want %d", total, want.Online)
	}
	members := 0
	tools, _ := c.All().FindTools("", "", 100)
	for _, o := range tools {
		if o.Tool.Name == "read" || o.Tool.Name == "dim" {
			members += o.Count
		}
	}
	if members != want.Online {
		t.Errorf("%d devices have tools, want %d", members, want.Online)
	}
}
