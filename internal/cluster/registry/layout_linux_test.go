//go:build bench

package registry

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/testenv/natscluster"
)

var (
	layoutDevices = flag.Int("devices", 50_000, "how many devices TestLayouts registers in each layout")
	layoutNodes   = flag.Int("nodes", 10, "how many nodes TestLayouts has")
	layoutRounds  = flag.Int("rounds", 1, "how often TestLayouts measures each layout")
	layoutRest    = flag.Duration("rest", 15*time.Second, "how long TestLayouts leaves servers alone before it measures memory at rest")
	manyDevices   = flag.Int("many", 200_000, "how many devices TestManyRecords registers")
)

// recordLayout is a way to store device records in buckets.
type recordLayout struct {
	name  string
	page  int // size of a page in bytes, 0 for one key per device
	claim claims
}

// claims are how a node takes a device, so that another node cannot take it under the
// same epoch.
type claims int

const (
	noClaims      claims = iota // nothing is claimed, or the record itself is
	shortClaims                 // a key per device, deleted once the record is in its page
	lastingClaims               // a key per device
	pagedClaims                 // pages by hash of the device, which every node writes
)

const claimedPage = 16 << 10 // the size of pages in layouts with claims

var layouts = []recordLayout{
	{name: "one key per device"},
	{name: "pages of 4 KiB", page: 4 << 10},
	{name: "pages of 16 KiB", page: 16 << 10},
	{name: "pages of 64 KiB", page: 64 << 10},
	{name: "pages and short claims", page: claimedPage, claim: shortClaims},
	{name: "pages and lasting claims", page: claimedPage, claim: lastingClaims},
	{name: "pages and claims in pages", page: claimedPage, claim: pagedClaims},
}

// figures are what one layout costs.
type figures struct {
	load, view   time.Duration
	memory, rest int // bytes per device, of all servers together, soon after loading and later
	disk         int // bytes per device

	change, move             cost // of one device
	changes, moves, failover cost // of many devices at once
}

// cost is the time of an operation, what its nodes wrote, and how often a write failed
// because another node was faster.
type cost struct {
	time                     time.Duration
	writes, bytes, conflicts int
}

// TestLayouts compares ways to store device records on three real servers. It fails if a layout
// with claims loads in half the time with half the memory: then the decision in
// docs/explanation/registry-layout.md is to be made again.
func TestLayouts(t *testing.T) {
	all := make([][]figures, len(layouts))
	for round := range *layoutRounds {
		for i := range layouts {
			k := (i + round) % len(layouts) // none is always first
			t.Run(fmt.Sprint(layouts[k].name, " ", round), func(t *testing.T) {
				all[k] = append(all[k], measureLayout(t, layouts[k]))
			})
		}
	}
	n := *layoutDevices
	t.Logf("%d devices of %d nodes, %d shards of three replicas; a record is %d bytes; medians of %d rounds; ratios to one key per device; memory and disk are bytes per device",
		n, *layoutNodes, layoutShards, len(deviceRecord(0, 0, 1)), *layoutRounds)
	t.Logf("%-27s %8s %10s %6s %8s %6s %8s %6s %8s %8s %6s", "", "loading", "records/s", "ratio", "memory", "ratio", "at rest", "ratio", "disk", "view", "ratio")
	base := medianOf(all[0])
	rows := func(print func(name string, f figures)) {
		for i, l := range layouts {
			if len(all[i]) > 0 {
				print(l.name, medianOf(all[i]))
			}
		}
	}
	rows(func(name string, f figures) {
		t.Logf("%-27s %8s %10.0f %6.2f %8d %6.2f %8d %6.2f %8d %8s %6.2f", name, short(f.load), float64(n)/f.load.Seconds(), ratio(f.load, base.load),
			f.memory, ratio(f.memory, base.memory), f.rest, ratio(f.rest, base.rest), f.disk, short(f.view), ratio(f.view, base.view))
	})
	for i, l := range layouts {
		if len(all[i]) == 0 || len(all[0]) == 0 || l.claim == noClaims {
			continue
		}
		if f := medianOf(all[i]); ratio(f.load, base.load) <= 0.5 && ratio(f.memory, base.memory) <= 0.5 {
			t.Errorf("%s: loading and memory are at most half of those of one key per device", l.name)
		}
	}
	t.Logf("%-27s %26s %26s", "one device, of any node", "changes", "connects elsewhere")
	rows(func(name string, f figures) { t.Logf("%-27s %26s %26s", name, f.change.one(), f.move.one()) })
	t.Logf("%-27s %28s %28s %29s %9s", "many devices at once", "1 % change", "1 % connect elsewhere", "a node fails", "conflicts")
	rows(func(name string, f figures) {
		t.Logf("%-27s %28s %28s %29s %9d", name, f.changes.many(), f.moves.many(), f.failover.many(), f.moves.conflicts+f.failover.conflicts)
	})
}

func (c cost) one() string {
	return fmt.Sprintf("%s, %d writes, %.1f KB", short(c.time), c.writes, float64(c.bytes)/1e3)
}

func (c cost) many() string {
	return fmt.Sprintf("%s, %d writes, %.1f MB", short(c.time), c.writes, float64(c.bytes)/1e6)
}

func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2fms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}

func ratio[T ~int | ~int64](got, base T) float64 { return float64(got) / float64(base) }

// medianOf returns the median of each figure.
func medianOf(all []figures) figures {
	costs := func(pick func(figures) cost) cost {
		var picked []cost
		for _, f := range all {
			picked = append(picked, pick(f))
		}
		return medianCost(picked)
	}
	return figures{
		load: middle(all, func(f figures) time.Duration { return f.load }), view: middle(all, func(f figures) time.Duration { return f.view }),
		memory: middle(all, func(f figures) int { return f.memory }), rest: middle(all, func(f figures) int { return f.rest }), disk: middle(all, func(f figures) int { return f.disk }),
		change: costs(func(f figures) cost { return f.change }), move: costs(func(f figures) cost { return f.move }),
		changes: costs(func(f figures) cost { return f.changes }), moves: costs(func(f figures) cost { return f.moves }),
		failover: costs(func(f figures) cost { return f.failover }),
	}
}

func medianCost(all []cost) cost {
	return cost{
		middle(all, func(c cost) time.Duration { return c.time }), middle(all, func(c cost) int { return c.writes }),
		middle(all, func(c cost) int { return c.bytes }), middle(all, func(c cost) int { return c.conflicts }),
	}
}

// middle returns the median of one figure.
func middle[A any, T cmp.Ordered](all []A, pick func(A) T) (m T) {
	var values []T
	for _, a := range all {
		values = append(values, pick(a))
	}
	slices.Sort(values)
	if len(values) > 0 {
		m = values[len(values)/2]
	}
	return m
}

// measureLayout measures one layout on servers of its own.
func measureLayout(t *testing.T, l recordLayout) (f figures) {
	s := newLayoutSide(t, l, natscluster.Start(t, natscluster.Options{}), 3)
	s.addDevices(*layoutDevices)
	memory, disk := settledMemory(s.servers), writtenBytes(t, s.servers)
	stop, seen := s.watchAll()
	for n := range s.nodes {
		f.load += s.load(n)
	}
	seen(len(s.devices))
	stop()
	f.disk = (writtenBytes(t, s.servers) - disk) / len(s.devices)
	f.memory = (settledMemory(s.servers) - memory) / len(s.devices)
	time.Sleep(*layoutRest)
	f.rest = (settledMemory(s.servers) - memory) / len(s.devices)
	f.view = middle([]int{0, 1, 2}, func(int) time.Duration { return s.readAll() })

	const single = 100
	one := func(do func(devices []int)) cost {
		var all []cost
		for _, i := range rand.Perm(len(s.devices))[:single] {
			all = append(all, s.cost(func() { do([]int{i}) }))
		}
		time.Sleep(3 * time.Second) // until marks of deleted claims have expired
		return medianCost(all)
	}
	some := rand.Perm(len(s.devices))[:len(s.devices)/100]
	f.change, f.changes = one(s.change), s.cost(func() { s.change(some) })
	f.move, f.moves = one(s.move), s.cost(func() { s.move(some) })
	time.Sleep(3 * time.Second)
	f.failover = s.cost(func() { s.fail(0) })
	s.readAll() // checks that every device is at its last node
	return f
}

// settledMemory returns the memory of servers after they had time to release some.
func settledMemory(c *natscluster.Cluster) (sum int) {
	time.Sleep(2 * time.Second)
	for _, s := range c.Servers {
		sum += int(s.RSS())
	}
	return sum
}

// writtenBytes returns how much servers have written to their disks.
func writtenBytes(t *testing.T, c *natscluster.Cluster) (sum int) {
	t.Helper()
	for _, s := range c.Servers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nwrite_bytes: ")
		var n int
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// Sizes of TestManyRecords.
const (
	manyOfTenant = 100_000
	smallTenant  = 5000
)

// TestManyRecords registers devices with one server without replicas, one key per
// device, and reads a small tenant among them.
func TestManyRecords(t *testing.T) {
	servers := natscluster.Start(t, natscluster.Options{Size: 1})
	small := newLayoutSide(t, recordLayout{}, servers, 1)
	memory, disk := settledMemory(servers), writtenBytes(t, servers)
	small.addDevices(smallTenant)
	var took time.Duration
	for n := range small.nodes {
		took += small.load(n)
	}
	total, points := smallTenant, []int{*manyDevices / 5, *manyDevices / 2, *manyDevices}
	for i := 0; total < *manyDevices; i++ {
		s := openLayoutSide(t, recordLayout{}, servers)
		s.tenant = fmt.Sprintf("t%d", i)
		s.addDevices(min(manyOfTenant, *manyDevices-total))
		var last time.Duration
		for n := range s.nodes {
			last += s.load(n)
		}
		s.close()
		took, total = took+last, total+len(s.devices)
		if total < points[0] {
			continue
		}
		points = points[1:]
		now := settledMemory(servers) - memory
		first := small.readAll()
		view := middle(make([]int, 5), func(int) time.Duration { return small.readAll() })
		t.Logf("%d devices: loaded in %s, the last %d at %.0f records/s; %.1f GB of memory, %d B per device; %.1f GB written to disk; a tenant of %d is read in %s, then in %s",
			total, short(took), len(s.devices), float64(len(s.devices))/last.Seconds(), float64(now)/1e9, now/total, float64(writtenBytes(t, servers)-disk)/1e9, smallTenant, short(first), short(view))
	}
}
