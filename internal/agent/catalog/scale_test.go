package catalog_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/agent/catalog"
	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/testenv/figure"
)

// TestScale checks changes and searches with many devices, CATALOG_DEVICES if set, and
// measures them with many more.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	n, kinds := 10_000, 1000
	if figure.Measuring() {
		n = 200_000
	}
	if text := os.Getenv("CATALOG_DEVICES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var manifests []*ferrule.Manifest
	var hashes []ferrule.Kind
	for k := range kinds {
		m := manifest(fmt.Sprintf("sensor mk%d", k), numbered("measure_value_", 5)...)
		manifests = append(manifests, m)
		hashes = append(hashes, online("x", m).Kind)
	}
	fleet := make([]*ferrule.Device, n)
	for i := range fleet {
		k := i % kinds
		fleet[i] = &ferrule.Device{
			ID: fmt.Sprintf("sensor-%d", i*7919%n), Kind: hashes[k], Model: manifests[k].Model,
			State: ferrule.StateOnline, Trust: ferrule.TrustAdopted,
			Labels: map[string]string{"room": fmt.Sprintf("hall %d", i%500)},
		}
	}
	before := heap()
	took := func(what string, most time.Duration, do func()) {
		t.Helper()
		start := time.Now()
		do()
		figure.AtMost(t, what, time.Since(start), most)
	}

	c := some(40)
	took(fmt.Sprintf("Put of %d devices of %d Kinds", n, kinds), time.Minute, func() {
		for i, dev := range fleet {
			c.Put(dev, manifests[i%kinds])
		}
	})
	t.Logf("memory per device: %d bytes", (heap()-before)/n)

	took("List", time.Second, func() { c.List() })
	took("100 times a change and List", 10*time.Second, func() {
		for i := range 100 {
			dev, m := fleet[i*31], manifests[i*31%kinds]
			c.Put(as(dev, ferrule.StateOffline, ferrule.TrustAdopted), m)
			c.List()
			c.Put(dev, m)
		}
	})
	took("Complete(sensor-47)", time.Second, func() {
		if ids, total := c.All().Complete("sensor-47", 100); len(ids) != 100 || total < n/200 {
			t.Errorf("%d, %d", len(ids), total)
		}
	})
	took("Complete()", time.Second, func() {
		if ids, total := c.All().Complete("", 100); len(ids) != 100 || total != n {
			t.Errorf("%d, %d", len(ids), total)
		}
	})
	took("Resolve", time.Second, func() {
		if device, tool, _, err := c.Resolve("sensor-4711__measure_value_3", nil); device != "sensor-4711" || tool != "measure_value_3" || err != nil {
			t.Errorf("%s %s %v", device, tool, err)
		}
	})
	took("FindTools(measure hall), 100", 10*time.Second, func() {
		if found, total := c.All().FindTools("measure hall", "", 100); len(found) != 100 || total != 5*kinds {
			t.Errorf("%d, %d", len(found), total)
		}
	})
	took("FindDevices(sensor 4711)", 20*time.Second, func() {
		if found, total := c.All().FindDevices("sensor 4711", 20); len(found) != 20 || found[0].ID != "sensor-4711" || total != n {
			t.Errorf("%v, %d", found, total)
		}
	})
	took("FindDevices(), all", time.Second, func() {
		if found, total := c.All().FindDevices("", 20); len(found) != 20 || total != n {
			t.Errorf("%d, %d", len(found), total)
		}
	})
	longest, search := hinder(c, fleet, manifests)
	figure.AtMost(t, "longest Put and List during searches, limit a quarter of these", longest, search/4)
}

// hinder returns the longest times of a change and a list during searches, and of these.
func hinder(c *catalog.Catalog, fleet []*ferrule.Device, manifests []*ferrule.Manifest) (longest, search time.Duration) {
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		c.All().FindDevices("sensor 4711", 20)
		c.All().FindTools("measure hall", "", 100)
		c.All().FindDevices("nothing of the sort", 20)
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
			return longest, time.Since(began)
		default:
		}
		dev, m := fleet[i%len(fleet)], manifests[i%len(fleet)%len(manifests)]
		start := time.Now()
		c.Put(as(dev, ferrule.StateOffline, ferrule.TrustAdopted), m)
		c.List()
		c.Put(dev, m)
		longest = max(longest, time.Since(start))
		time.Sleep(time.Millisecond)
	}
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
